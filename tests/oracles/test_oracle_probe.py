"""The probe and the protocol check, on oracles that are wrong in one way each."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from waysout.domain.oracle import Answers
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import InputError, OracleError, OracleTimeout
from waysout.oracles.adapt import as_oracle
from waysout.oracles.cache import CachedOracle
from waysout.oracles.probe import (
    ENOUGH_HANGS,
    ENOUGH_TO_GIVE_UP,
    ask_each,
    check_oracle,
    probe,
)

SCHEMA = Schema((Feature("income", "number"),))
ROWS: list[Row] = [(float(i),) for i in range(100)]
LABELS = [i >= 50 for i in range(100)]


def chance(frame: Any) -> Any:
    return frame["income"].to_numpy() / 100


def oracle(model: Callable[[Any], Any] = chance, **options: Any) -> Any:
    return as_oracle(model, SCHEMA, positive="yes", name="bank", **options)


class Fixed:
    """An oracle whose answers are made by a function of the rows."""

    def __init__(self, answer: Callable[[Sequence[Row]], Any], *, labels_only: Any = False) -> None:
        self.name = "fixed"
        self.labels_only = labels_only
        self.ask: Any = answer


def answers(p: Any, decision: Any = None) -> Answers:
    p = np.asarray(p)
    return Answers(p, p >= 0.5 if decision is None else decision)


def test_a_good_oracle() -> None:
    report = probe(oracle(), ROWS, labels=LABELS)
    assert (report.rows_asked, report.stable, report.labels_only) == (128, True, False)
    assert report.approved_share == pytest.approx(0.5, abs=0.02)
    assert report.agreement == 1.0
    assert report.notes == ()
    assert probe(oracle(), ROWS[:3]).rows_asked == 6
    assert probe(oracle(), ROWS, labels=[True] * 100).agreement is None


def test_a_small_probe_asks_few_rows_twice() -> None:
    sizes: list[int] = []

    def model(frame: Any) -> Any:
        sizes.append(len(frame))
        return chance(frame)

    report = probe(oracle(model), ROWS, labels=LABELS, max_rows=40, again=8)
    assert (report.rows_asked, report.stable, report.agreement) == (48, True, 1.0)
    assert sizes == [20, 20, 4, 4]
    assert probe(oracle(), ROWS[:3], max_rows=40, again=8).rows_asked == 6
    assert probe(oracle(), ROWS[:1], max_rows=40, again=8).rows_asked == 2


def test_a_small_probe_sees_what_a_large_one_does() -> None:
    few: dict[str, Any] = {"labels": LABELS, "max_rows": 40, "again": 8}
    with pytest.raises(OracleError, match="swapped"):
        probe(oracle(lambda frame: 1 - chance(frame)), ROWS, **few)
    rng, seen = np.random.default_rng(0), set[float]()

    def fickle(frame: Any) -> Any:
        """Waver where it is not sure, and nowhere else."""
        again = np.array([value in seen for value in frame["income"]])
        seen.update(frame["income"])
        near = frame["income"].between(46, 54).to_numpy()
        return chance(frame) + 0.1 * (near & again)

    assert not probe(oracle(fickle), ROWS, **few).stable
    assert not probe(oracle(lambda f: rng.random(len(f))), ROWS, max_rows=40, again=8).stable
    batchwise = oracle(lambda frame: chance(frame) / chance(frame).max())
    assert not probe(batchwise, ROWS, **few).stable
    assert probe(oracle(lambda f: (chance(f) > 0.5).astype(float)), ROWS, **few).labels_only
    with pytest.raises(OracleError, match=r"bank gave 20 rows .* and 20 .* the same answer, 0.3"):
        probe(oracle(lambda f: np.tile([0.7, 0.3], (len(f), 1))), ROWS, **few)


def test_swapped_classes_raise() -> None:
    turned = oracle(lambda frame: 1 - chance(frame))
    with pytest.raises(OracleError, match=r"bank .*swapped.*positive_class="):
        probe(turned, ROWS, labels=LABELS)
    assert probe(turned, ROWS[40:59], labels=LABELS[40:59]).agreement == pytest.approx(0, abs=0.2)


def test_swapped_labels_and_columns_name_both_sides() -> None:
    def labels(frame: Any) -> Any:
        return np.where(chance(frame) > 0.5, 0, 1)

    def columns(frame: Any) -> Any:
        return np.column_stack([chance(frame), 1 - chance(frame)])

    for model, taken in ((labels, "the label 1"), (columns, "column 1 of 2")):
        with pytest.raises(OracleError, match=rf"{taken} is taken for the card's 'good'"):
            probe(as_oracle(model, SCHEMA, positive="good"), ROWS, labels=LABELS)
        turned = as_oracle(model, SCHEMA, positive="good", positive_class=0)
        assert probe(turned, ROWS, labels=LABELS).agreement == pytest.approx(1, abs=0.02)


def test_labels_confirm_what_was_assumed() -> None:
    model = as_oracle(lambda f: np.where(chance(f) > 0.5, 1, 0), SCHEMA, positive="good")
    assert probe(model, ROWS, labels=LABELS).notes == ()
    assert "was taken for a yes" in probe(model, ROWS).notes[0]
    assert "was taken for a yes" in probe(model, ROWS[45:55], labels=LABELS[45:55]).notes[0]


def test_one_answer_for_all_is_an_error_where_labels_differ() -> None:
    text = as_oracle(lambda f: ["yes"] * len(f), SCHEMA, positive="good")
    with pytest.raises(OracleError, match=r"same answer, 0: the label 'good' is taken"):
        probe(text, ROWS, labels=LABELS)
    few = probe(oracle(lambda f: np.full(len(f), 0.3)), ROWS[45:55], labels=LABELS[45:55])
    assert "same answer (0.3)" in few.notes[0]


def test_a_weak_model_is_not_called_swapped() -> None:
    """A few positives, all missed, and a few negatives approved: that is within chance."""
    labels = [i < 6 for i in range(64)]
    report = probe(oracle(lambda f: np.where(f["income"] > 50, 0.9, 0.1)), ROWS[:64], labels=labels)
    assert report.agreement is not None
    assert report.agreement < 0.4


@pytest.mark.parametrize("model", [lambda f: (100 - f["income"]) / 400, lambda f: f["income"] < 60])
def test_swapped_classes_are_seen_among_few_positives(model: Any) -> None:
    """One row in twenty is positive, and every decision may be a no."""
    labels = [i >= 1900 for i in range(2000)]
    rows = [(i / 20,) for i in range(2000)]
    with pytest.raises(OracleError, match="swapped"):
        probe(oracle(lambda f: np.asarray(model(f), dtype=float)), rows, labels=labels)
    report = probe(oracle(), rows, labels=labels)
    assert report.agreement == pytest.approx(0.75, abs=0.05)
    assert report.approved_share == pytest.approx(0.5, abs=0.1)


def test_unstable_oracles_are_reported_not_refused() -> None:
    rng = np.random.default_rng(0)
    noisy = probe(oracle(lambda frame: rng.random(len(frame))), ROWS)
    batchwise = probe(oracle(lambda frame: chance(frame) / chance(frame).max()), ROWS)
    for report in (noisy, batchwise):
        assert not report.stable
        assert "other answers" in report.notes[0]


def test_labels_for_probabilities_are_noticed() -> None:
    report = probe(oracle(lambda frame: (chance(frame) > 0.5).astype(float)), ROWS)
    assert report.labels_only
    assert "only 0 and 1 came back" in report.notes[0]
    assert not probe(oracle(lambda f: (chance(f) > 0.5).astype(float)), ROWS[:9]).labels_only
    declared = probe(oracle(lambda f: np.where(chance(f) > 0.5, "yes", "no")), ROWS)
    assert declared.labels_only
    assert declared.notes == ()


def test_constant_and_assumed_are_noted() -> None:
    notes = probe(oracle(lambda f: np.tile([0.7, 0.3], (len(f), 1))), ROWS).notes
    assert "column 1 was taken for a yes: pass positive_class=0" in notes[0]
    assert "same answer (0.3)" in notes[1]


def test_the_cache_does_not_hide_instability() -> None:
    rng = np.random.default_rng(0)
    assert not probe(CachedOracle(oracle(lambda f: rng.random(len(f)))), ROWS).stable


def test_what_cannot_be_probed() -> None:
    with pytest.raises(InputError, match="no rows"):
        probe(oracle(), [])
    with pytest.raises(InputError, match=r"100 rows .* 1 labels"):
        probe(oracle(), ROWS, labels=[True])
    with pytest.raises(OracleError, match="returned nan"):
        probe(oracle(lambda f: np.full(len(f), np.nan)), ROWS)


def breaks_on(bad: Callable[[float], bool]) -> Callable[[Any], Any]:
    def model(frame: Any) -> Any:
        if any(map(bad, frame["income"])):
            raise ValueError("no such income")
        return chance(frame)

    return model


def test_a_row_that_the_model_breaks_on_is_left_out_and_told() -> None:
    for bad, told in ((4, "1 of 32"), (99, "32 of 64")):
        # Found among the rows of the first batch; for those of the second no rows are left.
        report = probe(oracle(breaks_on(partial(operator.eq, bad))), ROWS, labels=LABELS)
        assert (report.stable, report.agreement) == (True, 1.0)
        assert len(report.notes) == 1
        assert f"{told} rows tried have no answer: " in report.notes[0]
        assert "no such income" in report.notes[0]
    few = probe(oracle(breaks_on(lambda income: income > 40)), ROWS)
    assert few.approved_share == 0.0


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.5, 0.98, 1.0])
@pytest.mark.parametrize("again", [None, 8])
def test_a_model_that_breaks_is_asked_no_row_more(share: float, again: int | None) -> None:
    asked: list[int] = []
    broken = set(np.random.default_rng(0).permutation(100)[: round(100 * share)].tolist())

    def model(frame: Any) -> Any:
        asked.append(len(frame))
        if broken.intersection(frame["income"]):
            raise ValueError("no such income")
        return chance(frame)

    try:
        told = probe(oracle(model), ROWS, max_rows=40, again=again).rows_asked
    except OracleError:
        assert share >= 0.5
    else:
        assert share < 1
        assert told == sum(asked)
    assert sum(asked) <= 40 + (40 if again is None else again)


def test_a_model_that_breaks_on_every_row_or_takes_no_batch_is_refused() -> None:
    asked: list[int] = []

    def never(frame: Any) -> Any:
        asked.append(len(frame))
        raise ValueError("not today")

    with pytest.raises(OracleError, match="not today"):
        probe(oracle(never), ROWS)
    assert asked == [32] + [1] * ENOUGH_TO_GIVE_UP
    with pytest.raises(OracleError, match="asked for 32 rows"):
        probe(oracle(lambda frame: chance(frame)[:1]), ROWS)


def test_a_call_that_fails_once_is_told_and_refuses_nobody() -> None:
    asked: list[int] = []

    def model(frame: Any) -> Any:
        asked.append(len(frame))
        if len(asked) == 1:
            raise ConnectionError("not yet")
        return chance(frame)

    report = probe(oracle(model), ROWS, max_rows=40, again=8)
    assert (report.stable, report.rows_asked) == (True, 48)
    assert "only when they were asked alone: the model raised ConnectionError" in report.notes[0]
    asked.clear()
    answers, good, _, sent = ask_each(oracle(model), ROWS)
    assert (len(good), sent) == (100, 200)
    assert answers.probability.tolist() == [i / 100 for i in range(100)]


def test_a_model_that_hangs_on_every_row_is_given_up_soon() -> None:
    asked: list[int] = []
    end = threading.Event()

    def never(frame: Any) -> Any:
        asked.append(len(frame))
        end.wait()

    try:
        with pytest.raises(OracleTimeout, match="did not answer 32 rows"):
            probe(oracle(never, row_seconds=0.05), ROWS)
    finally:
        end.set()
    assert asked == [32] + [1] * ENOUGH_HANGS


def test_a_row_that_hangs_leaves_time_for_the_others() -> None:
    end = threading.Event()

    def model(frame: Any) -> Any:
        if (frame["income"] == 4).any():
            end.wait()
        return chance(frame)

    try:
        report = probe(oracle(model), ROWS, labels=LABELS, seconds=4.0)
    finally:
        end.set()
    assert (report.stable, report.agreement) == (True, 1.0)
    assert "1 of 32 rows tried have no answer: the model did not answer" in report.notes[0]


def test_when_time_is_up_nothing_more_is_asked_and_what_came_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, asked = [0.0], []
    monkeypatch.setattr("waysout.oracles.probe.time.monotonic", lambda: now[0])

    def model(frame: Any) -> Any:
        asked.append(len(frame))
        now[0] += 3.0
        return chance(frame)

    report = probe(oracle(model), ROWS, seconds=5.0)
    assert asked == [32, 32]  # and none again
    assert (report.rows_asked, report.stable) == (64, False)
    assert "whether the model gives the same answer each time is not known" in report.notes[0]
    assert "the deadline of 5 seconds passed" in report.notes[0]
    with pytest.raises(OracleTimeout, match="the deadline of 0 seconds passed"):
        probe(oracle(model), ROWS, seconds=0.0)


def test_a_row_that_breaks_the_second_time_is_instability() -> None:
    times: list[int] = []

    def model(frame: Any) -> Any:
        times.append(len(frame))
        if len(times) == 3:
            raise ValueError("out of breath")
        return chance(frame)

    assert not probe(oracle(model), ROWS).stable


def test_check_oracle_accepts_good_ones() -> None:
    check_oracle(oracle(), ROWS)
    check_oracle(oracle(lambda f: np.where(chance(f) > 0.5, "yes", "no")), ROWS)


def one_off() -> Callable[[Sequence[Row]], Answers]:
    calls: list[int] = []

    def answer(rows: Sequence[Row]) -> Answers:
        calls.append(1)
        return answers(np.full(len(rows), len(calls) / 100))

    return answer


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Fixed(lambda r: [0.5] * len(r)), "list instead of Answers"),
        (Fixed(lambda r: answers(np.zeros(3))), "asked for 0 rows"),
        (Fixed(lambda r: answers(np.zeros(len(r), dtype=np.float32))), "array of float64"),
        (Fixed(lambda r: answers(np.zeros(len(r)), np.zeros(len(r)))), "array of bool"),
        (
            Fixed(lambda r: answers(np.full(len(r), 1.5))),
            r"probability is 1.5 for the row \(0.0,\)",
        ),
        (Fixed(lambda r: answers(np.full(len(r), np.nan))), "probability is nan"),
        (Fixed(lambda r: answers(np.full(len(r), 0.7)), labels_only=True), "labels only"),
        (Fixed(lambda r: answers(np.zeros(len(r))), labels_only=None), "labels_only a bool"),
        (Fixed(one_off()), "second time"),
        (Fixed(lambda r: answers(np.arange(len(r)) / 200)), "order or the size"),
        (Fixed(lambda r: answers(np.full(len(r), 0.1 * (len(r) == 1)))), "row 0 differently"),
        (Fixed(lambda r: 1 / 0), "fixed raised ZeroDivisionError"),
    ],
)
def test_check_oracle_refuses(wrong: Any, message: str) -> None:
    with pytest.raises(OracleError, match=message):
        check_oracle(wrong, ROWS)


def test_check_oracle_compares_with_the_models_own_answers() -> None:
    own = [i / 100 for i in range(100)]
    check_oracle(oracle(), ROWS, expected=own)
    with pytest.raises(
        OracleError, match=r"2 of 100 rows.*\n  row 7 \(income=7\): 0.07 here, 0.7 exp"
    ):
        check_oracle(oracle(), ROWS, expected=[*own[:7], 0.7, *own[8:99], float("nan")])
    with pytest.raises(InputError, match=r"100 rows.*shape \(2,\)"):
        check_oracle(oracle(), ROWS, expected=[0.1, 0.2])


def test_check_oracle_needs_rows() -> None:
    with pytest.raises(InputError, match="no rows"):
        check_oracle(oracle(), [])
