from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_samples import MANIFEST, MODEL, QUERY, evaluate, option, propose, result, sample, spent

from waysout.domain.budget import Spent
from waysout.domain.oracle import Answers
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
from waysout.errors import IntegrityError
from waysout.llm.base import FINISHES, Message, Reply, Request, Usage
from waysout.search.work import Evaluate, Propose
from waysout.store import Recorded, Store, add_event, check_same
from waysout.store.records import pack_answers, pack_rows, unpack_answers, unpack_rows

# Lone surrogates included, also a high and a low one side by side that are two characters.
any_text = st.text() | st.text(st.characters(categories=("Cs", "Cc", "Lu")))
values = (
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False)
    | any_text
)
few = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.create(tmp_path / "run.db", MANIFEST) as made:
        yield made


def typed(rows: object) -> str:
    return repr(rows)  # tells 1 from 1.0 and True, and 0.0 from -0.0


@given(st.lists(st.lists(values, max_size=5).map(tuple), max_size=4).map(tuple))
def test_rows_come_back_with_their_types(rows: tuple[Row, ...]) -> None:
    assert typed(unpack_rows(pack_rows(rows))) == typed(rows)


@given(st.lists(st.tuples(st.floats(), st.booleans())))
def test_answers_come_back_to_the_last_bit(pairs: list[tuple[float, bool]]) -> None:
    answers = Answers(np.array([p for p, _ in pairs], float), np.array([d for _, d in pairs], bool))
    again = unpack_answers(pack_answers(answers))
    np.testing.assert_array_equal(again.probability, answers.probability)
    np.testing.assert_array_equal(again.decision, answers.decision)
    assert (str(again.probability.dtype), str(again.decision.dtype)) == ("float64", "bool")


@few
@given(prompt=any_text, text=any_text, finish=st.sampled_from(FINISHES), latency=st.floats(0, 1e9))
def test_any_text_of_an_llm_comes_back_exactly(
    store: Store, prompt: str, text: str, finish: str, latency: float
) -> None:
    number = len(list(store.answers(0)))
    work = Propose(number, Request((Message("system", prompt), Message("user", "x")), draw=3))
    reply = Reply(text, Usage(5, 4, 3, estimated=True), latency, finish, "model")  # type: ignore[arg-type]
    store.record(0, number + 2, work, reply, spent(1), model=MODEL)
    last = list(store.answers(0))[-1]
    key = work.request.key(MODEL)
    assert last == Recorded(number + 2, number, "propose", key, (), reply)


def test_answers_come_back_in_the_order_they_were_told(store: Store) -> None:
    order = [(0, 1), (3, 4), (1, 4), (2, 5)]
    for number, asked in order:
        for index in (7, 8):
            store.record(index, asked, *sample(number), spent(asked), model=MODEL)
    recorded = list(store.answers(7))
    assert [(r.work_id, r.asked) for r in recorded] == order
    assert [r.kind for r in recorded] == ["propose", "evaluate", "evaluate", "propose"]
    assert recorded[1].rows == evaluate(3)[0].rows  # type: ignore[union-attr]
    assert (store.spent(7), store.spent(9)) == (spent(5), Spent())


def test_more_answers_than_are_read_at_once(store: Store) -> None:
    for number in range(250):
        store.record(0, number, *evaluate(number), spent(number))
    assert [r.work_id for r in store.answers(0)] == list(range(250))


def test_requests_under_way_are_on_file_and_no_answers(store: Store) -> None:
    store.record_sent(0, Spent(attempts=1))
    store.record(0, 1, *sample(0), spent(1), model=MODEL)
    store.record_sent(0, Spent(attempts=2, llm_calls=1))
    assert [r.work_id for r in store.answers(0)] == [0]
    assert list(store.setup(0)) == []
    assert (store.spent(0), store.spent(1)) == (Spent(attempts=2, llm_calls=1), Spent())
    assert (store.summary().llm_calls, store.summary().oracle_rows) == (1, 0)


def test_calls_without_a_reply_are_under_way(store: Store) -> None:
    assert store.calls_under_way(0) == 0
    for attempts in (1, 2):  # a call that is sent again is one
        store.record_sent(0, Spent(attempts=attempts))
        assert (store.calls_under_way(0), store.calls_under_way(1)) == (1, 0)
    store.record(0, 1, *sample(0), spent(1), model=MODEL)
    assert store.calls_under_way(0) == 0
    for calls in (1, 2, 3):
        store.record_sent(0, Spent(attempts=2 + calls, llm_calls=1), calls)
        store.record(0, 1, *evaluate(calls), spent(2))  # rows are asked meanwhile
        assert store.calls_under_way(0) == calls
    store.record(0, 1, *sample(0), spent(3), model=MODEL)
    assert store.calls_under_way(0) == 2
    assert store.summary().llm_calls == 2


def test_an_event_comes_into_a_run_that_is_being_written(store: Store) -> None:
    add_event(store.path, "pins", {"rows": [1]})
    store.event("stopped", {})
    assert [(event.kind, event.detail) for event in store.events()] == [
        ("pins", {"rows": [1]}), ("stopped", {}),
    ]  # fmt: skip
    store.close()
    add_event(store.path, "pins", {"rows": []})
    with Store.read(store.path) as again:
        assert [event.kind for event in again.events()] == ["pins", "stopped", "pins"]
    assert sorted(file.name for file in store.path.parent.iterdir()) == [store.path.name]


def test_set_up_answers_are_kept_apart(store: Store) -> None:
    rows = ((1, 1.0, True, None, "x"),)
    answers = Answers(np.array([0.1]), np.array([False]))
    store.record_setup(0, "query", rows, answers, Spent(setup_rows=1))
    store.record(0, 1, *sample(0), spent(1), model=MODEL)
    other = Answers(np.array([0.2]), np.array([True]))
    store.record_setup(0, "other", rows, other, Spent(setup_rows=3, llm_calls=1))
    assert [r.work_id for r in store.answers(0)] == [0]
    assert [a.probability.tolist() for a in store.setup(0)] == [[0.1], [0.2]]
    assert [a.decision.tolist() for a in store.setup(0)] == [[False], [True]]
    assert store.spent(0) == Spent(setup_rows=3, llm_calls=1)
    # Those rows are no candidates.
    assert store.summary().oracle_rows == 0


def test_an_answer_of_the_wrong_kind_is_refused(store: Store) -> None:
    with pytest.raises(TypeError, match="Reply is not an answer to Evaluate"):
        store.record(0, 1, evaluate(1)[0], propose(0)[1], spent(1))


@few
@given(st.dictionaries(st.text(max_size=5), values, max_size=5))
def test_queries_come_back_with_their_types(store: Store, query: dict[str, int]) -> None:
    index = sum(1 for _ in store.queries())
    store.add_query(index, query)
    store.add_query(index, query)
    assert typed(store.query(index)) == typed(query)
    assert list(store.queries())[-1][0] == index


def test_another_row_under_the_same_index_is_refused(store: Store) -> None:
    store.add_query(0, QUERY)
    with pytest.raises(IntegrityError, match="query 0 is another row"):
        store.add_query(0, {**QUERY, "age": 32})
    assert store.query(0) == QUERY
    assert store.query(1) is None
    with pytest.raises(ValueError, match="not -1"):
        store.add_query(-1, QUERY)


def test_options_are_kept_once_and_in_order(store: Store) -> None:
    store.options_found(0, [option(5), option(3)])
    store.options_found(1, [option(9)])
    store.options_found(0, [option(3), option(4)])  # a resumed search finds the first again
    assert list(store.options(0)) == [option(5), option(3), option(4)]
    assert store.summary().options == 4


@pytest.mark.parametrize("kind", [OutcomeKind.INTERRUPTED, OutcomeKind.FAILED])
def test_a_result_that_is_not_final_makes_way(store: Store, kind: OutcomeKind) -> None:
    store.finish(3, result(3, kind))
    store.finish(1, result(1))
    assert store.finished(3) is None
    assert store.partial(3) == result(3, kind)
    assert [r.index for r in store.results()] == [1, 3]
    store.finish(3, result(3))
    assert store.finished(3) == result(3)
    assert store.partial(3) is None
    with pytest.raises(IntegrityError, match=r"query 3 .* is finished already"):
        store.finish(3, result(3))
    assert list(store.results()) == [result(1), result(3)]


def test_events_and_manifest(store: Store) -> None:
    store.event("started", {"host": "h\ud800", "rows": np.int64(3)})
    store.event("finished", {}, index=2)
    first, second = store.events()
    assert (first.kind, first.detail, first.index) == (
        "started",
        {"host": "h\ud800", "rows": 3},
        None,
    )
    assert (second.kind, second.index) == ("finished", 2)
    assert first.at <= second.at
    assert store.manifest == {"waysout_run": 1, **MANIFEST}


def test_floats_that_json_does_not_know(store: Store) -> None:
    answers = Answers(np.array([math.nan, math.inf]), np.array([False, True]))
    store.record(0, 1, Evaluate(0, ((1,), (2,))), answers, spent(1))
    found = next(store.answers(0)).answer
    assert isinstance(found, Answers)
    np.testing.assert_array_equal(found.probability, answers.probability)


def test_the_same_work_is_recognised(store: Store) -> None:
    for number in (0, 1):
        store.record(0, number + 1, *sample(number), spent(1), model=MODEL)
    asked, evaluated = store.answers(0)
    check_same(sample(0)[0], asked, MODEL)
    check_same(sample(1)[0], evaluated, MODEL)
    other_request = Propose(0, Request((Message("user", "other"),)))
    for work, recorded, model in [
        (sample(0)[0], asked, "another model"),
        (sample(1)[0], asked, MODEL),
        (sample(0)[0], evaluated, MODEL),
        (other_request, asked, MODEL),
        (Evaluate(1, ((1,),)), evaluated, MODEL),
        (Evaluate(5, evaluated.rows), evaluated, MODEL),
    ]:
        with pytest.raises(IntegrityError, match="settings, the LLM, the problem"):
            check_same(work, recorded, model)


@pytest.mark.parametrize("clock", [-5, 10**20])
def test_what_is_filed_while_a_model_has_put_the_clock_anywhere_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: int
) -> None:
    monkeypatch.setattr("time.time_ns", lambda: clock)
    with Store.create(tmp_path / "run.db", MANIFEST) as store:
        store.event("seen", {})
    with Store.read(tmp_path / "run.db") as store:
        assert [event.kind for event in store.events()] == ["seen"]
        assert store.summary().updated.year in (1970, 3000)
