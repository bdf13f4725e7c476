"""Models behind an address, against a server that follows a script."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from oracle_server import Handler, Scripted, Step, answer, reply, serving
from waysout.datasets import registry
from waysout.domain.card import Card
from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import OracleError
from waysout.explainer import Explainer
from waysout.oracles.adapt import as_oracle
from waysout.oracles.http import KEY, HttpModel, HttpOracle
from waysout.oracles.load import load_model
from waysout.oracles.probe import check_oracle
from waysout.oracles.watchdog import ROW_SECONDS
from waysout.run.source import Source, Trust, problem_of

SCHEMA = Schema(
    (
        Feature("income", "number", missing="keep"),
        Feature("own", "boolean", levels=("N", "Y")),
        Feature("grade", "category", levels=(1, 2)),
    )
)
ROWS: list[Row] = [(i / 10, i % 2 == 0, "12"[i % 2]) for i in range(10)]


def score(row: dict[str, Any]) -> float:
    return float(row["income"] or 0)


@pytest.fixture
def server() -> Iterator[Scripted]:
    with serving(answer(score)) as made:
        yield made


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY, raising=False)


def oracle(server: Scripted, path: str = "/score", **settings: Any) -> HttpOracle:
    """An oracle that does not really wait."""
    model = HttpModel(server.url + path, **{"sleep": lambda seconds: None, **settings})
    made = as_oracle(model, SCHEMA, positive="good")
    assert isinstance(made, HttpOracle)
    return made


def counts(asked: HttpOracle) -> tuple[int, int, int]:
    return asked.requests, asked.attempts, asked.rows


def test_rows_are_asked_in_batches_over_one_connection(server: Scripted) -> None:
    asked = oracle(server, batch=4)
    assert asked.ask(ROWS).probability.tolist() == [row[0] for row in ROWS]
    assert (server.sizes(), counts(asked), server.connections) == ([4, 4, 2], (3, 3, 10), 1)
    assert not asked.labels_only
    assert asked.name == f"{server.url}/score"
    check_oracle(asked, ROWS)


def test_a_server_gets_the_tables_own_values(server: Scripted) -> None:
    oracle(server).ask([(None, True, "2")])
    assert server.asked == [{"rows": [{"income": None, "own": "Y", "grade": 2}]}]
    for path, under in (
        ("/v1/models/m:predict", "instances"),
        ("/invocations", "dataframe_records"),
    ):
        oracle(server, path).ask(ROWS[:1])
        assert list(server.asked[-1]) == [under]
    with pytest.raises(OracleError, match=r"inputs='codes' asks for others"):
        as_oracle(HttpModel(server.url), SCHEMA, positive=1, inputs="codes")


def test_an_address_is_a_model(server: Scripted) -> None:
    for made in (server.url, load_model(server.url)):
        assert as_oracle(made, SCHEMA, positive=1).ask(ROWS[9:]).decision.tolist() == [True]
    for wrong in ("http://", "http://host:port/", "http://[::1/"):
        with pytest.raises(OracleError, match="no address"):
            load_model(wrong)
    with pytest.raises(OracleError, match="holds a name or a password") as told:
        load_model("http://me:secret@host/score")
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    ("made", "expected", "labels_only"),
    [
        ([0.25, 0.75], [0.25, 0.75], False),
        ({"predictions": [0.25, 0.75]}, [0.25, 0.75], False),
        ({"probabilities": [0, 1]}, [0, 1], False),
        ({"scores": [0, 0.5]}, [0, 0.5], False),
        ({"outputs": [[0.75, 0.25], [0.25, 0.75]]}, [0.25, 0.75], False),
        ({"answers": [[0.75, 0.25], [0.5, 0.5]], "classes": ["good", "bad"]}, [0.75, 0.5], False),
        ({"answers": ["bad", "good"]}, [0, 1], True),
        ({"predictions": [0, 1]}, [0, 1], True),
        ({"predictions": [False, True]}, [0, 1], True),
    ],
)
def test_what_a_server_may_answer(
    server: Scripted, made: Any, expected: list[float], labels_only: bool
) -> None:
    server.usual = reply(made)
    asked = oracle(server)
    assert asked.ask(ROWS[:2]).probability.tolist() == expected
    assert asked.labels_only == labels_only


def test_whole_numbers_after_fractions_are_probabilities(server: Scripted) -> None:
    server.script += [reply([0.5, 0.25]), reply([1, 0])]
    asked = as_oracle(HttpModel(server.url), SCHEMA, positive=0)
    for expected in ([0.5, 0.25], [1.0, 0.0]):
        assert asked.ask(ROWS[:2]).probability.tolist() == expected
    assert not asked.labels_only


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (b"<html><body>Sorry</body></html>", r"is not JSON; what came back: '<html><body>Sorry"),
        (b"", "is not JSON; what came back: nothing"),
        (b"[0.5, NaN]", "holds NaN"),
        ([0.5], r"2 rows were asked, and 1 answered; what came back: '\[0.5\]'"),
        ({"result": [0.5, 0.5]}, "none of predictions, probabilities, scores, outputs, answers"),
        ({"predictions": 0.5}, "no list"),
        ([0.5, None], "not null"),
        ([0.5, {"p": 0.5}], r"not {\"p\": 0.5}"),
        ([[0.5], []], r"not \[\]"),
        ([[0.5, 0.5], [0.5]], "different lengths"),
        ([0.5, 1.5], "1.5 where a probability"),
        ({"predictions": [[0.5, 0.5]] * 2, "classes": ["a", "b", "c"]}, "3 classes"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_answer_is_told(server: Scripted, made: Any, message: str) -> None:
    server.usual = reply(made)
    asked = oracle(server)
    with pytest.raises(OracleError, match=message):
        asked.ask(ROWS[:2])
    assert asked.attempts == 1  # Asking again would not help.


@pytest.mark.parametrize("status", [400, 401, 404, 422, 500])
def test_a_refusal_is_an_error_at_once(server: Scripted, status: int) -> None:
    server.usual = reply(b"x" * 500, status)
    asked = oracle(server)
    with pytest.raises(OracleError, match=rf"answered {status} .*: 'x{{200}}'"):
        asked.ask(ROWS)
    assert counts(asked) == (1, 1, 0)


def test_a_redirect_is_not_followed(server: Scripted) -> None:
    server.usual = reply(b"", 307, Location="http://elsewhere/score")
    with pytest.raises(OracleError, match=r"307, a redirect to 'http://elsewhere/score'.*not "):
        oracle(server).ask(ROWS)
    assert len(server.asked) == 1


def test_a_huge_reply_is_not_read(server: Scripted) -> None:
    server.usual = reply(b"[" + b"0.5," * 10_000)
    with pytest.raises(OracleError, match="more than 1,000 bytes"):
        oracle(server, most_bytes=1000).ask(ROWS)


@pytest.mark.parametrize(
    "step",
    [
        reply(b"busy", 429), reply(b"", 502), reply(b"", 503), reply(b"", 504), Handler.hang_up,
        lambda handler, _: handler.wfile.write(b"nonsense\r\n\r\n"),
    ],
)  # fmt: skip
def test_what_may_pass_is_tried_again(server: Scripted, step: Step) -> None:
    server.script += [step, step, step]
    waits: list[float] = []
    asked = oracle(server, sleep=waits.append)
    assert len(asked.ask(ROWS)) == 10
    assert counts(asked) == (1, 4, 10)
    assert [at <= wait <= 2 * at for at, wait in zip((0.5, 1, 2), waits, strict=True)] == [True] * 3


def test_attempts_are_limited(server: Scripted) -> None:
    server.usual = reply(b"", 503)
    asked = oracle(server)
    with pytest.raises(OracleError, match="no answer after 4 attempts: it answered 503"):
        asked.ask(ROWS)
    assert counts(asked) == (1, 4, 0)
    # As long as it is away, nobody waits for it again.
    with pytest.raises(OracleError, match="no answer after 1 attempt:"):
        asked.ask(ROWS)
    server.usual = answer(score)
    asked.ask(ROWS)
    server.script += [reply(b"", 503)]
    asked.ask(ROWS)
    assert counts(asked) == (4, 8, 20)


def test_the_server_says_how_long_to_wait(server: Scripted) -> None:
    waits: list[float] = []
    soon = "Fri, 31 Dec 1999 23:59:59 GMT"
    server.script += [
        reply(b"", 429, Retry_After="7"), reply(b"", 503, Retry_After=soon),
        reply(b"", 503, Retry_After="soon"),
    ]  # fmt: skip
    oracle(server, sleep=waits.append).ask(ROWS)
    assert waits[:2] == [7.0, 0.0]
    assert waits[2] >= 2
    server.script += [reply(b"", 429, Retry_After="3600")]
    asked = oracle(server, sleep=waits.append)
    with pytest.raises(OracleError, match=r"answered 429 .* \(it asks to wait 3600 s\)"):
        asked.ask(ROWS)
    assert (asked.attempts, len(waits)) == (1, 3)


def silent(handler: Handler, _: Any) -> None:
    """Say nothing until the client hangs up."""
    handler.rfile.read(1)
    handler.hang_up()


def dribbling(handler: Handler, _: Any) -> None:
    """Send a byte now and then, so that no wait for one is long, until the client hangs up."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    with suppress(OSError):
        for _ in range(1000):
            handler.wfile.write(b" ")
            time.sleep(0.02)
    handler.hang_up()


@pytest.mark.parametrize("step", [silent, dribbling])
def test_time_is_limited(server: Scripted, step: Step) -> None:
    server.script += [step]
    asked = oracle(server, seconds=0.3)
    assert len(asked.ask(ROWS)) == 10
    assert counts(asked) == (1, 2, 10)
    server.script += [step]
    asked = oracle(server, seconds=0.3, deadline=0.4)
    with pytest.raises(OracleError, match=r"after 1 attempt: no answer in 0\.3 s"):
        asked.ask(ROWS)  # Another attempt would pass the deadline.


def test_the_user_may_give_a_row_less_time_than_the_server_has() -> None:
    url, loan = "http://localhost:9/score", registry.card("loan")

    def limits(**said: Any) -> set[float]:
        source = Source("loan", model=url, **said)
        made = (
            as_oracle(HttpModel(url), SCHEMA, positive=1, **said),
            problem_of(source, Trust(), loan, []).oracle,
            Explainer(url, card=loan, **said).problem.oracle,
        )
        return {one.row_seconds for one in made if isinstance(one, HttpOracle)}

    assert limits() == {HttpModel(url).deadline}
    assert limits(row_seconds=2.0) == {2.0}
    assert as_oracle(HttpModel(url, deadline=5), SCHEMA, positive=1).row_seconds == ROW_SECONDS


def test_a_reply_that_is_cut_short_is_asked_for_again(server: Scripted) -> None:
    def half(handler: Handler, _: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"[0.1,")
        handler.hang_up()

    server.script += [half]
    asked = oracle(server)
    assert len(asked.ask(ROWS)) == 10
    assert asked.attempts == 2


def test_a_connection_that_was_idle_too_long_is_made_anew(server: Scripted) -> None:
    waits: list[float] = []
    asked = oracle(server, sleep=waits.append)

    def closing(handler: Handler, body: Any) -> None:
        answer(score)(handler, body)
        handler.hang_up()

    server.script += [closing]
    asked.ask(ROWS)
    time.sleep(0.05)
    asked.ask(ROWS)
    assert waits in ([], [0.0])


def test_several_threads_ask_at_once(server: Scripted) -> None:
    asked = oracle(server, batch=2)
    found: list[list[float]] = []

    def ask() -> None:
        found.append(asked.ask(ROWS).probability.tolist())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[row[0] for row in ROWS]] * 8
    assert counts(asked) == (40, 40, 80)
    assert server.connections <= 8


def test_nothing_listens() -> None:
    with serving(answer(score)) as gone:
        pass
    with pytest.raises(OracleError, match=r"after 4 attempts: no connection: .*refused"):
        oracle(gone).ask(ROWS)


def test_the_key_is_sent_and_never_shown(server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "sesame-1234")
    asked = oracle(server)
    asked.ask(ROWS)
    assert server.headers[-1]["Authorization"] == "Bearer sesame-1234"
    server.usual = reply(b"no such key: sesame-1234", 401)
    with pytest.raises(OracleError) as told:
        asked.ask(ROWS)
    assert "sesame" not in str(told.value) + repr(asked.model)
    assert HttpModel("https://bank.example/score")._key
    plain = HttpModel("http://bank.example/score")
    assert not plain._key
    assert plain.notes == (f"{KEY} was not sent: the address is plain http",)
    monkeypatch.setenv(KEY, "two words")
    with pytest.raises(OracleError, match=KEY) as told:
        HttpModel(server.url)
    assert "words" not in str(told.value)


def test_a_model_travels_to_other_processes(server: Scripted) -> None:
    model = HttpModel(server.url + "/score")
    model.predict([{"income": 0.5}])
    other = pickle.loads(pickle.dumps(model))
    assert other.predict([{"income": 0.5}]).values == [0.5]


CARD = """
card = 1
name = "bank"
[outcome]
target = "status"
positive = "good"
[features.income]
kind = "number"
range = [0, 1]
decimals = 2
[features.hours]
kind = "integer"
range = [0, 60]
[features.rent]
kind = "integer"
range = [0, 2000]
"""


def bank(row: dict[str, Any]) -> float:
    return float(min(1, max(0, row["income"] / 2 + row["hours"] / 120 - row["rent"] / 8000)))


def test_a_server_that_dies_ends_the_search_with_what_it_found(tmp_path: Any) -> None:
    import waysout

    card = Card.parse(CARD)
    row = {"income": 0.2, "hours": 10, "rent": 900}

    def search(address: str, run: Any) -> Any:
        model = HttpModel(address, sleep=lambda seconds: None)
        problem = Problem.from_card(card, as_oracle(model, card), training=TRAINING)
        return waysout.find(problem, row, run=run, oracle_rows=300)

    with serving(answer(bank)) as server:
        whole, asked = search(server.url, None), len(server.asked)
    assert asked > 6
    with serving(answer(bank)) as server:
        server.script += [answer(bank)] * (asked - 3) + [Handler.hang_up] * 1000
        port = server.server_port
        cut = search(server.url, tmp_path / "a.run")
    assert cut.outcome.kind is OutcomeKind.FAILED
    assert "gives no answer after 4 attempts" in cut.outcome.reason
    assert 0 < len(cut.options) <= len(whole.options)
    with serving(answer(bank), port=port) as server:
        again = search(server.url, tmp_path / "a.run")
        assert len(server.asked) < asked
    assert again.outcome.kind is OutcomeKind.FOUND
    assert [o.row for o in again.options] == [o.row for o in whole.options]


TRAINING: list[Row] = [(i / 20, 3 * i, 100 * i) for i in range(20)]
