"""A watch on the model: what hangs is left behind, and what none should raise is its failure."""

from __future__ import annotations

import contextvars
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

import numpy as np
import pytest

from waysout.domain.oracle import Answers
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import BudgetSpent, InputError, OracleError, OracleTimeout, WaysoutError
from waysout.oracles import watchdog
from waysout.oracles.adapt import as_oracle
from waysout.oracles.answers import ask_checked
from waysout.oracles.cache import CachedOracle
from waysout.oracles.watchdog import at_most, batch_seconds, hung, watched

SCHEMA = Schema((Feature("income", "number"), Feature("job", "category", levels=("a", "b"))))
ROWS: list[Row] = [(10.0, "a"), (90.0, "b")]
# What hangs here hangs until the test ends, so the limit only has to be long enough for the rest.
SOON = 0.3


class PanicException(BaseException):
    """As Rust libraries raise through pyo3."""


@pytest.fixture
def for_ever() -> Iterator[threading.Event]:
    """Return what a model waits for; all of them have come back when the test has ended."""
    event = threading.Event()
    yield event
    event.set()
    for thread in list(watchdog._left):
        thread.join(60)
    assert hung() == 0


class Hangs:
    """A model that waits for an event on incomes of 13, and answers everybody else."""

    def __init__(self, event: threading.Event) -> None:
        self.event = event
        self.asked: list[int] = []

    def __call__(self, frame: Any) -> Any:
        self.asked.append(len(frame))
        if (frame["income"] == 13).any():
            self.event.wait()
        return np.minimum(frame["income"] / 100, 1.0)


def test_who_asks_may_have_less_time_than_the_model(for_ever: threading.Event) -> None:
    model = as_oracle(Hangs(for_ever), SCHEMA, positive="yes")  # a minute for each row
    with at_most(SOON), pytest.raises(OracleTimeout, match="give a search more time"):
        CachedOracle(model).ask([(13.0, "a")])
    with at_most(None), at_most(60.0):
        assert model.ask(ROWS).decision.tolist() == [False, True]


def test_what_a_batch_may_take_grows_with_its_rows() -> None:
    assert batch_seconds(1, 10.0) == pytest.approx(10.1)
    assert batch_seconds(500, 10.0) == pytest.approx(60.0)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(InputError, match="row_seconds is a number of seconds above 0"):
        as_oracle(lambda frame: frame["income"], SCHEMA, positive="yes", row_seconds=seconds)


def test_a_row_that_hangs_is_left_behind_and_the_model_asked_on(
    for_ever: threading.Event,
) -> None:
    model = Hangs(for_ever)
    oracle = CachedOracle(as_oracle(model, SCHEMA, positive="yes", row_seconds=SOON))
    with pytest.raises(OracleTimeout, match=r"did not answer a row within .* raise row_seconds"):
        oracle.ask([(13.0, "a")])
    assert hung() == 1
    assert oracle.ask(ROWS).decision.tolist() == [False, True]
    assert model.asked == [1, 2]


def test_a_row_that_hangs_while_the_form_of_the_rows_is_found_locks_nobody_out(
    for_ever: threading.Event,
) -> None:
    class Estimator:
        def predict_proba(self, frame: Any) -> Any:
            chance = Hangs(for_ever)(frame)
            return np.column_stack([1 - chance, chance])

    oracle = as_oracle(Estimator(), SCHEMA, positive="yes", positive_class=1, row_seconds=SOON)
    with pytest.raises(OracleTimeout):
        oracle.ask([(13.0, "a")])
    assert hung() == 1, "it is not asked again in another form"
    assert oracle.ask(ROWS).decision.tolist() == [False, True]


def test_an_oracle_of_the_users_own_is_watched_too(for_ever: threading.Event) -> None:
    class Own:
        name, labels_only, row_seconds = "own", False, SOON

        def ask(self, rows: Sequence[Row]) -> Answers:
            for_ever.wait()
            raise AssertionError

    with pytest.raises(OracleTimeout, match="did not answer 2 rows"):
        ask_checked(Own(), ROWS)


def test_no_more_calls_are_made_when_too_many_hang(
    for_ever: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "MOST_HUNG", 2)
    for _ in range(2):
        with pytest.raises(OracleTimeout, match="did not answer"):
            watched(for_ever.wait, 1, 0.01)
    with pytest.raises(OracleTimeout, match="2 calls of the model have not come back"):
        watched(lambda: 1, 1, 60.0)


def test_time_in_which_the_process_was_suspended_is_not_the_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Suspended(Future[Any]):
        """Whoever waits is woken too late for the clock, and before the model could do anything."""

        waits: ClassVar[list[float]] = []

        def exception(self, timeout: float | None = None) -> BaseException | None:
            assert timeout is not None
            self.waits.append(timeout)
            if len(self.waits) < 3:
                raise TimeoutError
            return super().exception(60)

    monkeypatch.setattr(watchdog, "Future", Suspended)
    assert watched(lambda: "answered", 1, 60.0) == "answered"
    assert Suspended.waits == [1.0, 1.0, 1.0]


def test_all_waits_together_are_what_the_model_may_take(
    for_ever: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    begun = threading.Event()

    class Never(Future[Any]):
        def exception(self, timeout: float | None = None) -> BaseException | None:
            begun.wait(60)
            waits.append(timeout or 0.0)
            raise TimeoutError

    def hangs() -> None:
        begun.set()
        for_ever.wait()

    monkeypatch.setattr(watchdog, "Future", Never)
    for limit in (0.5, 30.0):
        waits.clear()
        begun.clear()
        with pytest.raises(OracleTimeout):
            watched(hangs, 1, limit)
        assert sum(waits) == pytest.approx(batch_seconds(1, limit))
        assert len(waits) > 9, "a single one would be lost whole to a short suspension"


def test_a_call_left_behind_while_others_are_counted_is_counted(
    for_ever: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave_one() -> None:
        with pytest.raises(OracleTimeout):
            watched(for_ever.wait, 1, 0.01)

    other = threading.Thread(target=leave_one)

    class Counted(list[Any]):
        def __setitem__(self, at: Any, threads: Any) -> None:
            if other.ident is None:
                other.start()
                other.join(0.5)  # it waits for us
            super().__setitem__(at, threads)

    monkeypatch.setattr(watchdog, "_left", Counted())
    hung()
    other.join(60)
    assert hung() == 1


def test_a_loop_in_python_is_ended() -> None:
    def spin() -> None:
        while True:
            pass

    with pytest.raises(OracleTimeout):
        watched(spin, 1, 0.05)
    for thread in list(watchdog._left):
        thread.join(60)
    assert hung() == 0


@pytest.mark.parametrize("error", [PanicException("at src/lib.rs:7"), SystemExit(3),
                                   KeyboardInterrupt(), GeneratorExit("over")])  # fmt: skip
def test_what_no_model_should_raise_is_its_failure(error: BaseException) -> None:
    def model(frame: Any) -> Any:
        raise error

    with pytest.raises(OracleError, match=f"the model raised {type(error).__name__}"):
        as_oracle(model, SCHEMA, positive="yes").ask(ROWS)


def test_an_interrupt_of_the_user_passes_through() -> None:
    script = """
import os, signal, threading, waysout
signal.signal(signal.SIGINT, signal.default_int_handler)
schema = waysout.Schema((waysout.Feature("income", "number"),))
def model(frame):
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()
try:
    waysout.as_oracle(model, schema, positive="yes").ask([(1.0,)])
except KeyboardInterrupt:
    print("interrupted")
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "interrupted\n"), ran.stderr


def test_calls_reuse_threads_and_see_the_callers_context() -> None:
    mine: contextvars.ContextVar[str] = contextvars.ContextVar("mine", default="no")
    mine.set("yes")
    made = {watched(threading.get_ident, 1, 60.0) for _ in range(20)}
    assert len(made) == 1
    assert threading.get_ident() not in made
    assert watched(mine.get, 1, 60.0) == "yes"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_starts_threads_of_its_own() -> None:
    assert watched(lambda: 1, 1, 60.0) == 1
    with watchdog._lock:  # as a call that ends just then holds it
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                threading.Timer(60, os._exit, [1]).start()
                code = 0 if watched(lambda: 2, 1, 10.0) == 2 else 1
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


class Lazy:
    """What some models return: nothing is computed before somebody looks."""

    def __init__(self, look: Callable[[], Any]) -> None:
        self.look = look

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.look()


def test_an_answer_that_is_worked_out_when_looked_at_is_watched_too(
    for_ever: threading.Event,
) -> None:
    lazy = as_oracle(
        lambda frame: Lazy(for_ever.wait), SCHEMA, positive="yes", inputs="raw", row_seconds=SOON
    )
    with pytest.raises(OracleTimeout, match="did not answer 2 rows"):
        lazy.ask(ROWS)


@pytest.mark.parametrize("kind", [Exception, OracleError])
def test_an_error_that_hangs_when_it_is_told_is_left_behind(
    kind: type[Exception], for_ever: threading.Event
) -> None:
    class Endless(kind):  # type: ignore[valid-type,misc]
        def __str__(self) -> str:
            return str(for_ever.wait())

    def model(frame: Any) -> Any:
        raise Endless("in vain")

    with pytest.raises(OracleTimeout, match="did not answer 2 rows"):
        as_oracle(model, SCHEMA, positive="yes", inputs="raw", row_seconds=SOON).ask(ROWS)


@pytest.mark.parametrize("error", [PanicException("late"), SystemExit(3), RecursionError("deep")])
def test_an_answer_that_raises_when_looked_at_is_a_failure(error: BaseException) -> None:
    def fail() -> Any:
        raise error

    oracle = as_oracle(lambda frame: Lazy(fail), SCHEMA, positive="yes", inputs="raw")
    with pytest.raises(OracleError, match=f"what the model returned raised {type(error).__name__}"):
        oracle.ask(ROWS)


@pytest.mark.parametrize("kind", [Exception, OracleError, SystemExit])
@pytest.mark.parametrize("error", [PanicException("in words"), SystemExit(3), ValueError("no")])
def test_an_error_that_cannot_be_told_is_a_failure(
    kind: type[BaseException], error: BaseException
) -> None:
    class Speechless(kind):  # type: ignore[valid-type,misc]
        def __str__(self) -> str:
            raise error

    def model(frame: Any) -> Any:
        raise Speechless("in vain")

    with pytest.raises(OracleError, match=f"the model raised {type(error).__name__}"):
        as_oracle(model, SCHEMA, positive="yes", inputs="raw").ask(ROWS)


@pytest.mark.parametrize("error", [BudgetSpent("pretended"), InputError("pretended")])
def test_an_error_that_a_model_borrows_from_us_is_its_failure(error: WaysoutError) -> None:
    def model(frame: Any) -> Any:
        raise error

    with pytest.raises(OracleError, match=f"the model raised {type(error).__name__}: pretended"):
        as_oracle(model, SCHEMA, positive="yes", inputs="raw").ask(ROWS)

    class Own:
        name, labels_only = "own", False

        def ask(self, rows: Sequence[Row]) -> Answers:
            raise error

    with pytest.raises(OracleError, match=f"own raised {type(error).__name__}: pretended"):
        ask_checked(Own(), ROWS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(("error", "code"), [(None, 0), (SystemExit(3), 1)])
def test_a_process_that_a_model_forked_ends_with_the_call(error: Any, code: int) -> None:
    forked: list[int] = []

    def forks() -> None:
        forked.append(os.fork())
        if not forked[0] and error is not None:
            raise error

    watched(forks, 1, 60.0)
    assert os.waitstatus_to_exitcode(os.waitpid(forked[0], 0)[1]) == code


def test_a_model_that_hangs_when_it_is_looked_at_is_given_up(for_ever: threading.Event) -> None:
    class Asleep:
        @property
        def classes_(self) -> Any:
            return for_ever.wait()

        def predict_proba(self, frame: Any) -> Any:
            raise AssertionError

    with pytest.raises(OracleTimeout, match=r"within 0\.303 s"):
        as_oracle(Asleep(), SCHEMA, positive="yes", row_seconds=SOON)


@pytest.mark.parametrize("error", [SystemExit(0), PanicException("at src/lib.rs:7"),
                                   KeyboardInterrupt()])  # fmt: skip
def test_a_model_that_exits_when_it_is_looked_at_is_refused(error: BaseException) -> None:
    class Exits:
        @property
        def classes_(self) -> Any:
            raise error

        def predict_proba(self, frame: Any) -> Any:
            raise AssertionError

    with pytest.raises(OracleError, match=f"the model raised {type(error).__name__}"):
        as_oracle(Exits(), SCHEMA, positive="yes")
