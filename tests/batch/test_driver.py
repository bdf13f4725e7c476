from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from part_files import write_part

from waysout.batch.driver import MOST_DEATHS, MOST_FAILURES, BatchProgress, Driver, cut
from waysout.batch.executor import Executor
from waysout.batch.job import BEGUN, BatchTally, PartReport, PartTask
from waysout.batch.tables import people_done, store_path
from waysout.domain.result import Outcome, OutcomeKind, ResultData
from waysout.domain.schema import Feature, Schema
from waysout.errors import IntegrityError, UnavailableError
from waysout.store import Store

SCHEMA = Schema((Feature("income", "integer"),))
Reply = Callable[[PartTask], PartReport]


def written(out: Path, task: PartTask, kind: OutcomeKind = OutcomeKind.EXHAUSTED) -> PartReport:
    """Do a part as a worker does: its files, then its report."""
    indices = range(task.first, task.first + len(task))
    results = [ResultData({}, Outcome(kind), index=i) for i in indices]
    write_part(out, task, SCHEMA, ["income"], results)
    return PartReport(task.part, sum(map(BatchTally.of, results), BatchTally()), done=True)


class FakeExecutor(Executor[Any]):
    """Answers as it is told, one part at a time, and remembers what it was given."""

    def __init__(self, answer: Reply, room: int = 2) -> None:
        self.answer = answer
        self.most = room
        self.given: list[PartTask] = []
        self.waiting: list[PartTask] = []
        self.stopped = ""
        self.closed = False

    @property
    def room(self) -> int:
        return self.most - len(self.waiting)

    def submit(self, task: PartTask) -> None:
        self.given.append(task)
        self.waiting.append(task)

    def wait(self, seconds: float) -> Sequence[PartReport]:
        task = self.waiting.pop(0)
        return [self.answer(task)]

    def tally(self) -> BatchTally:
        return BatchTally()

    def stop(self, reason: str) -> None:
        self.stopped = reason

    def close(self) -> None:
        self.closed = True


def tasks(rows: int = 7, part_rows: int = 2, limit: int | None = None) -> list[PartTask]:
    found = [{"income": str(i)} for i in range(rows)]
    return [*cut(found, part_rows, limit=limit, total=rows)]


def test_parts_are_cut_as_rows_come(tmp_path: Path) -> None:
    def rows() -> object:
        yield {"income": "1"}
        yield {"income": "2"}
        raise AssertionError("read too far")

    first = next(cut(rows(), 2, total=100))  # type: ignore[arg-type]
    assert (first.part, first.first, len(first)) == (0, 0, 2)
    assert [(t.part, t.first, len(t)) for t in tasks(5, 2)] == [(0, 0, 2), (1, 2, 2), (2, 4, 1)]


def test_all_parts_are_done_once_and_counted(tmp_path: Path) -> None:
    executor = FakeExecutor(lambda task: written(tmp_path, task))
    ended = Driver(tmp_path, tasks(), 7).run(lambda: executor)
    assert [task.part for task in executor.given] == [0, 1, 2, 3]
    assert (ended.rows, ended.left, ended.stopped, executor.closed) == (7, 0, "", True)


@pytest.mark.parametrize("is_made_anew", [True, False])
def test_a_folder_that_is_moved_ends_the_batch(tmp_path: Path, is_made_anew: bool) -> None:
    (out := tmp_path / "out").mkdir()

    def answer(task: PartTask) -> PartReport:
        report = written(out, task)
        if task.part == 1:
            out.rename(tmp_path / "moved")
            if is_made_anew:
                out.mkdir()
        return report

    executor = FakeExecutor(answer)
    with pytest.raises(UnavailableError, match="was moved or removed"):
        Driver(out, tasks(), 7).run(lambda: executor)
    assert executor.closed
    assert [people_done(tmp_path / "moved", part) for part in (0, 1)] == [2, 2]


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    for task in tasks()[:2]:
        written(tmp_path, task)
    executor = FakeExecutor(lambda task: written(tmp_path, task))
    driver = Driver(tmp_path, tasks(), 7)
    ended = driver.run(lambda: executor)
    assert [task.part for task in executor.given] == [2, 3]
    assert (ended.rows, driver.progress.before, driver.progress.done) == (3, 4, 7)


def test_a_part_that_a_limit_cut_is_done_again_when_more_rows_come(tmp_path: Path) -> None:
    for task in tasks(limit=3):
        written(tmp_path, task)
    executor = FakeExecutor(lambda task: written(tmp_path, task))
    Driver(tmp_path, tasks(limit=6), 6).run(lambda: executor)
    assert [task.part for task in executor.given] == [1, 2]
    assert people_done(tmp_path, 1) == 2
    fewer = FakeExecutor(lambda task: written(tmp_path, task))
    Driver(tmp_path, tasks(limit=3), 3).run(lambda: fewer)
    assert fewer.given == []


def test_a_lost_part_goes_out_again_then_with_care(tmp_path: Path) -> None:
    deaths = iter([True, True, True, False])

    def answer(task: PartTask) -> PartReport:
        if task.part == 1 and next(deaths):
            return PartReport(1, lost=True)
        return written(tmp_path, task)

    executor = FakeExecutor(answer)
    ended = Driver(tmp_path, tasks(), 7).run(lambda: executor)
    assert [task.isolated for task in executor.given if task.part == 1] == [
        False,
        False,
        True,
        True,
    ]
    assert (ended.left, ended.rows) == (0, 7)


@pytest.mark.parametrize("left", [True, False])
def test_a_part_whose_worker_died_as_it_was_done_is_done(left: bool, tmp_path: Path) -> None:
    """Between its mark and its report: only a store that is left makes doing it again free."""
    deaths = iter([True, False])

    def answer(task: PartTask) -> PartReport:
        done = written(tmp_path, task)
        if task.part != 1 or not next(deaths):
            return done
        if left:
            note(tmp_path, 1)
        return PartReport(1, lost=True)

    executor = FakeExecutor(answer)
    ended = Driver(tmp_path, tasks(), 7).run(lambda: executor)
    assert [task.part for task in executor.given].count(1) == (2 if left else 1)
    assert (ended.left, ended.rows) == (0, 7)


def note(out: Path, part: int, *begun: int) -> None:
    """File who was begun, as a worker does that takes care."""
    place = store_path(out, part)
    with Store.open(place) if place.exists() else Store.create(place, {}) as store:
        for index in begun:
            store.event(BEGUN, {}, index)


def test_whoever_kills_their_worker_each_time_is_left_out(tmp_path: Path) -> None:
    # A worker may be killed for another reason: once, row 2 was there by chance.
    begun = iter([(2,), (2, 3), (2, 3)])

    def answer(task: PartTask) -> PartReport:
        if task.part != 1 or 3 in task.skip:
            return written(tmp_path, task)
        if task.isolated:
            note(tmp_path, 1, *next(begun))
        return PartReport(1, lost=True)

    executor = FakeExecutor(answer)
    ended = Driver(tmp_path, tasks(), 7).run(lambda: executor)
    skipped = [task.skip for task in executor.given if task.part == 1]
    assert skipped == [(), (), (), (), (), (3,)]
    assert (ended.left, ended.rows) == (0, 7)


def test_a_part_where_many_kill_their_worker_is_done_without_them(tmp_path: Path) -> None:
    killers = [1, 2, 4, 7, 9]

    def answer(task: PartTask) -> PartReport:
        left = [row for row in killers if row not in task.skip]
        if not left:
            return written(tmp_path, task)
        if task.isolated:
            note(tmp_path, 0, *range(left[0] + 1))
        return PartReport(0, lost=True)

    executor = FakeExecutor(answer)
    ended = Driver(tmp_path, tasks(10, 10), 10).run(lambda: executor)
    assert (ended.left, [*executor.given[-1].skip]) == (0, killers)


@pytest.mark.parametrize("parts", [1, 3])
def test_deaths_do_not_add_up_while_anybody_survives(tmp_path: Path, parts: int) -> None:
    """Half of all kill their workers: more than would die in a row for want of memory."""
    rows = 3 * MOST_DEATHS

    def answer(task: PartTask) -> PartReport:
        people = range(task.first, task.first + len(task))
        left = [row for row in people if row % 2 and row not in task.skip]
        if not left:
            return written(tmp_path, task)
        if task.isolated:
            note(tmp_path, task.part, *range(task.first, left[0] + 1))
        return PartReport(task.part, lost=True)

    executor = FakeExecutor(answer, room=parts)
    ended = Driver(tmp_path, tasks(rows, rows // parts), rows).run(lambda: executor)
    assert (ended.left, ended.rows, ended.stopped) == (0, rows, "")


def test_deaths_do_not_add_up_while_parts_are_done(tmp_path: Path) -> None:
    def answer(task: PartTask) -> PartReport:
        if task.skip:
            return written(tmp_path, task)
        if task.isolated:
            note(tmp_path, task.part, task.first)
        return PartReport(task.part, lost=True)

    executor = FakeExecutor(answer)
    ended = Driver(tmp_path, tasks(MOST_DEATHS, 1), MOST_DEATHS).run(lambda: executor)
    assert (ended.left, ended.rows) == (0, MOST_DEATHS)


def test_where_everybody_kills_their_worker_the_batch_ends(tmp_path: Path) -> None:
    def answer(task: PartTask) -> PartReport:
        if task.isolated:
            note(tmp_path, 0, len(task.skip))
        return PartReport(0, lost=True)

    ended = Driver(tmp_path, tasks(200, 200), 200).run(lambda: FakeExecutor(answer))
    assert f"workers died {MOST_DEATHS} times in a row" in ended.stopped
    assert (ended.exit_code, ended.left) == (5, 1)


def test_a_table_that_has_lost_rows_is_noticed() -> None:
    for rows in (5, 6):
        with pytest.raises(IntegrityError, match="had 7 rows, and has fewer now"):
            [*cut([{}] * rows, 2, total=7)]


def test_whoever_failed_is_tried_again_but_no_part_shrinks(tmp_path: Path) -> None:
    for task in tasks(6):
        written(tmp_path, task, OutcomeKind.FAILED if task.part != 1 else OutcomeKind.EXHAUSTED)
    executor = FakeExecutor(lambda task: written(tmp_path, task))
    ended = Driver(tmp_path, tasks(6, limit=5), 5, retry_failed=True).run(lambda: executor)
    assert ([task.part for task in executor.given], ended.left) == ([0], 0)
    assert people_done(tmp_path, 2) == 2


def test_a_wish_before_anything_has_begun_is_told(tmp_path: Path) -> None:
    driver = Driver(tmp_path, tasks(), 7)
    driver.stop("enough")
    executor = FakeExecutor(lambda task: written(tmp_path, task))
    ended = driver.run(lambda: executor)
    assert (executor.given, ended.stopped, ended.left) == ([], "enough", 4)


def test_who_failed_keeps_that_when_a_part_is_handed_back(tmp_path: Path) -> None:
    """As long as people are added it goes on as it is, and then with care; nobody is let down."""

    def answer(task: PartTask) -> PartReport:
        if task.part or len(task.settled) == 10:
            return written(tmp_path, task)
        people = min(6, 2 + len(task.settled)) if not task.isolated else 1 + len(task.settled)
        tally, on_file = BatchTally({"found": 1, "failed": people}), 3 + len(task.settled)
        return PartReport(0, tally, on_file, worn=True, settled=tuple(range(people)))

    executor = FakeExecutor(answer)
    ended = Driver(tmp_path, tasks(20, 10), 20).run(lambda: executor)
    given = [task for task in executor.given if task.part == 0]
    settled = [len(task.settled) for task in given]
    assert settled == [0, 2, 4, 6, 6, 7, 8, 9, 10]
    assert [task.isolated for task in given] == [n > 3 for n in range(len(given))]
    assert (ended.left, ended.rows) == (0, 20 - 3)  # three were on file when it began


def test_an_unexpected_error_is_believed_after_a_while(tmp_path: Path) -> None:
    """Proving that it is a person's own takes a new worker each time."""

    def answer(task: PartTask) -> PartReport:
        open_ = [i for i in range(task.first, task.first + len(task)) if i not in task.settled]
        if not open_:
            return written(tmp_path, task)
        alone = open_[:1] if task.isolated else open_
        done = len(task) - len(open_) + (1 if task.isolated else 0)
        return PartReport(
            task.part, BatchTally({"found": 1 + done}), worn=True,
            settled=tuple(alone) if task.isolated else (), doubted=tuple(alone),
        )  # fmt: skip

    executor = FakeExecutor(answer, room=1)
    ended = Driver(tmp_path, tasks(40, 4), 40).run(lambda: executor)
    given = Counter(task.part for task in executor.given)
    assert (ended.left, [given[part] for part in range(10)]) == (0, [7, 7] + [2] * 8)


def test_nothing_but_failures_in_parts_handed_back_ends_the_batch_too(tmp_path: Path) -> None:
    def answer(task: PartTask) -> PartReport:
        failed = len(task.settled) + 16
        return PartReport(0, BatchTally({"failed": failed}), settled=tuple(range(failed)))

    ended = Driver(tmp_path, tasks(200, 200), 200).run(lambda: FakeExecutor(answer))
    assert (ended.exit_code, ended.left) == (4, 1)
    assert "all of the first 112 searches failed" in ended.stopped


def test_an_error_of_a_process_ends_the_batch_only_if_others_have_it_too(tmp_path: Path) -> None:
    spoilt = {"stopped": "too many open files", "exit_code": 5, "lost": True, "worn": True}
    broken = iter([True, True, False])

    def answer(task: PartTask) -> PartReport:
        if task.part == 1 and next(broken):
            return PartReport(1, **spoilt)  # type: ignore[arg-type]
        return written(tmp_path, task)

    ended = Driver(tmp_path, tasks(), 7).run(lambda: FakeExecutor(answer))
    assert (ended.left, ended.stopped, ended.rows) == (0, "", 7)
    always = FakeExecutor(lambda task: PartReport(task.part, **spoilt))  # type: ignore[arg-type]
    ended = Driver(tmp_path / "other", tasks(), 7).run(lambda: always)
    assert (ended.stopped, ended.exit_code, ended.left) == ("too many open files", 5, 4)


def test_a_part_is_done_with_everybody_on_file_whatever_its_worker_says(tmp_path: Path) -> None:
    wrong = iter([True, False])

    def answer(task: PartTask) -> PartReport:
        if task.part == 1 and next(wrong):
            whole = written(tmp_path / "elsewhere", task)
            written(tmp_path, replace(task, rows=task.rows[:1]))
            return whole
        return written(tmp_path, task)

    executor = FakeExecutor(answer)
    ended = Driver(tmp_path, tasks(), 7).run(lambda: executor)
    assert [task.part for task in executor.given].count(1) == 2
    assert (ended.left, ended.rows, people_done(tmp_path, 1)) == (0, 7, 2)


def test_a_part_that_only_ever_dies_ends_the_batch(tmp_path: Path) -> None:
    executor = FakeExecutor(lambda task: PartReport(task.part, lost=True))
    ended = Driver(tmp_path, tasks(), 7).run(lambda: executor)
    assert "every worker with rows 0 to 1 died" in ended.stopped
    assert (ended.exit_code, ended.left) == (5, 4)


def test_interrupted_people_are_tried_again_and_then_left(tmp_path: Path) -> None:
    def answer(task: PartTask) -> PartReport:
        return PartReport(2) if task.part == 2 else written(tmp_path, task)

    executor = FakeExecutor(answer)
    ended = Driver(tmp_path, tasks(), 7).run(lambda: executor)
    assert (ended.left, ended.stopped, ended.rows) == (1, "", 5)
    assert 1 < sum(task.part == 2 for task in executor.given) < 10


def test_what_meets_everybody_ends_the_batch_with_its_code(tmp_path: Path) -> None:
    gone = PartReport(0, stopped="the LLM is gone", exit_code=9)
    executor = FakeExecutor(
        lambda task: gone if task.part == 0 else PartReport(task.part, stopped="so")
    )
    ended = Driver(tmp_path, tasks(), 7).run(lambda: executor)
    assert (ended.stopped, ended.exit_code, executor.stopped) == (
        "the LLM is gone",
        9,
        "the LLM is gone",
    )
    assert (len(executor.given), ended.left) == (2, 4)


def test_a_wish_ends_the_batch_and_what_comes_back_counts(tmp_path: Path) -> None:
    driver = Driver(tmp_path, tasks(), 7, on_progress=lambda progress: driver.stop("enough"))
    executor = FakeExecutor(lambda task: written(tmp_path, task))
    ended = driver.run(lambda: executor)
    assert (executor.stopped, ended.stopped, ended.exit_code) == ("enough", "enough", 0)
    assert (ended.rows, ended.left) == (4, 2)


@pytest.mark.parametrize(
    ("first", "hopeless"),
    [
        (OutcomeKind.FAILED, True),
        (OutcomeKind.ALREADY_APPROVED, True),
        (OutcomeKind.EXHAUSTED, False),
    ],
)
def test_a_batch_of_nothing_but_failures_ends_early(
    tmp_path: Path, first: OutcomeKind, hopeless: bool
) -> None:
    many = tasks(2 * MOST_FAILURES, 20)
    executor = FakeExecutor(lambda t: written(tmp_path, t, OutcomeKind.FAILED if t.part else first))
    ended = Driver(tmp_path, many, 2 * MOST_FAILURES).run(lambda: executor)
    assert (ended.exit_code, ended.left > 0) == ((4, True) if hopeless else (0, False))


def test_the_rest_takes_as_long_as_what_was_done_now(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = BatchProgress(100, before=40, began=0.0)
    monkeypatch.setattr("time.monotonic", lambda: 6.0)
    assert pace.seconds_left is None
    later = replace(pace, tally=BatchTally({"found": 20}))
    assert (later.done, later.seconds_left) == (60, 12.0)
