"""The driver of a batch: parts go out, reports come in; the lost go out again, with more care."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from waysout.batch.executor import Executor
from waysout.batch.job import BEGUN, BatchTally, PartReport, PartTask
from waysout.batch.tables import has_failed, people_done, store_path
from waysout.domain.result import OutcomeKind
from waysout.errors import IntegrityError, WaysoutError
from waysout.store import Store

# Once more as it was (what killed the worker may have been no fault of the part), then with care.
CAREFUL_AFTER = 2
# Somebody who may have been there by chance is not to blame yet.
BLAMED_AFTER = 2
# A part whose workers die and show no person who is to blame, or that is interrupted each time.
MOST_TRIES = 5
# So many deaths in spite of care, and no part done between them, are no fault of single rows.
MOST_DEATHS = 30
# So many failures without a single search that worked are the job's fault, not the rows'.
HOPELESS = 100
_LOOK_SECONDS = 0.5


@dataclass
class BatchProgress:
    """How far a batch has come, for whoever watches."""

    rows: int
    before: int = 0
    """Rows that were done when it began."""
    tally: BatchTally = field(default_factory=BatchTally)
    began: float = field(default_factory=time.monotonic)
    over: bool = False
    """Whether the searches have ended: what is left is being counted."""

    @property
    def done(self) -> int:
        """How many rows are done by now."""
        return self.before + self.tally.people

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self.began

    @property
    def seconds_left(self) -> float | None:
        """How long the rest will take at this pace; unknown before anybody is done."""
        people = self.tally.people
        return self.seconds / people * (self.rows - self.done) if people else None


@dataclass
class BatchEnd:
    """How a sitting ended: what it did, what is left, and why."""

    rows: int
    """Rows that were done in it; those of a part that it found half done were not."""
    seconds: float
    left: int = 0
    """Parts that are not done."""
    stopped: str = ""
    exit_code: int = 0


Watch = Callable[[BatchProgress], None]


def cut(
    rows: Iterable[Mapping[str, Any]], part_rows: int, *, limit: int | None = None, total: int
) -> Iterator[PartTask]:
    """Cut rows into parts, as they come; the last is shorter, and ``cut`` where a limit made it so.

    >>> [(task.first, len(task), task.cut) for task in cut([{}] * 9, 2, limit=5, total=9)]
    [(0, 2, False), (2, 2, False), (4, 1, True)]
    """
    most = total if limit is None else min(limit, total)
    source = iter(rows)
    for part, first in enumerate(range(0, most, part_rows)):
        held = list(islice(source, min(part_rows, most - first)))
        if first + len(held) < min(first + part_rows, most):
            raise IntegrityError(
                f"the table had {total:,} rows, and has fewer now: was it changed?"
            )
        yield PartTask(part, first, held, most < total and len(held) < part_rows)


class Driver:
    """Hands the parts of a batch to an executor until all are done or it is stopped.

    With ``retry_failed``, parts in which somebody failed are not done. `stop` may be called from
    anywhere, a signal's handler too.
    """

    def __init__(
        self,
        out: Path,
        tasks: Iterable[PartTask],
        rows: int,
        watch: Watch | None = None,
        *,
        retry_failed: bool = False,
    ) -> None:
        self.out = out
        self.retry_failed = retry_failed
        self.pace = BatchProgress(rows)
        self._tasks = iter(tasks)
        self._again: deque[PartTask] = deque()
        self._under_way: dict[int, PartTask] = {}
        self._tries: Counter[int] = Counter()
        self._deaths: Counter[int] = Counter()
        self._suspects: Counter[int] = Counter()
        self._careful_deaths = 0
        self._left = self._on_file = 0
        self._done = BatchTally()
        self._watch = watch or (lambda pace: None)
        self._wish = ""
        self._stopped, self._exit_code = "", 0

    def stop(self, reason: str) -> None:
        """End the batch, with what it has."""
        self._wish = self._wish or reason

    def run(self, muster: Callable[[], Executor]) -> BatchEnd:
        """Run to the end; an executor is only called together where something is to be done."""
        first = next(self._open_tasks(), None)
        if first is None:
            return BatchEnd(0, self.pace.seconds)
        self._again.append(first)
        with closing(muster()) as executor:
            while True:
                self._fill(executor)
                if not self._under_way:
                    break
                if self._wish and not self._stopped:
                    self._end(executor, self._wish)
                for report in executor.wait(_LOOK_SECONDS):
                    self._heed(executor, report)
                self.pace.tally = self._done + executor.tally()
                self._watch(self.pace)
        rows, seconds = self._done.people - self._on_file, self.pace.seconds
        self.pace.over = True
        self._watch(self.pace)
        left = self._left + len(self._again) + sum(1 for _ in self._open_tasks())
        return BatchEnd(rows, seconds, left, self._stopped or self._wish, self._exit_code)

    def _fill(self, executor: Executor) -> None:
        while not (self._stopped or self._wish) and executor.room > 0:
            task = self._again.popleft() if self._again else next(self._open_tasks(), None)
            if task is None:
                return
            self._under_way[task.part] = task
            executor.submit(task)

    def _open_tasks(self) -> Iterator[PartTask]:
        """Go on through the parts, past those that are done."""
        for task in self._tasks:
            if self._is_done(task):
                self.pace.before += len(task)
            else:
                yield task

    def _is_done(self, task: PartTask) -> bool:
        rows = people_done(self.out, task.part) or 0
        # One with more rows belongs to a greater limit, and is not to shrink.
        again = self.retry_failed and rows == len(task) and has_failed(self.out, task.part)
        return rows >= len(task) and not again

    # Reports -----------------------------------------------------------------------------------

    def _heed(self, executor: Executor, report: PartReport) -> None:
        task = self._under_way.pop(report.part)
        if report.done:
            self._done += report.tally
            self._on_file += report.on_file
            self._careful_deaths = 0
            self._check_hope(executor)
            return
        if report.stopped:
            self._end(executor, report.stopped, report.exit_code)
        if self._stopped:
            self._left += 1
        elif report.lost:
            self._send_again(executor, self._with_care(task))
        else:
            self._send_again(executor, task)

    def _send_again(self, executor: Executor, task: PartTask) -> None:
        self._tries[task.part] += 1
        if self._tries[task.part] < MOST_TRIES + BLAMED_AFTER * len(task.skip):
            self._again.append(task)
            if self._careful_deaths >= MOST_DEATHS:
                self._end(executor, f"workers died {MOST_DEATHS} times in a row: out of memory?", 5)
            return
        self._left += 1
        rows = f"rows {task.first} to {task.first + len(task) - 1}"
        if self._deaths[task.part]:
            self._end(executor, f"whoever searched for {rows} died each time: out of memory?", 5)

    def _with_care(self, task: PartTask) -> PartTask:
        """Return a part that was lost as it is to be tried again."""
        self._deaths[task.part] += 1
        if not task.careful:
            return replace(task, careful=self._deaths[task.part] >= CAREFUL_AFTER)
        self._careful_deaths += 1
        suspect = self._suspect(task)
        if suspect is None:
            return task
        self._suspects[suspect] += 1
        blamed = self._suspects[suspect] >= BLAMED_AFTER
        return replace(task, skip=(*task.skip, suspect)) if blamed else task

    def _suspect(self, task: PartTask) -> int | None:
        """Return who was being searched when the worker died: the last who was begun."""
        try:
            with Store.read(store_path(self.out, task.part)) as store:
                begun = [event.index for event in store.events() if event.kind == BEGUN]
        except WaysoutError:  # it died before it could file anything
            return None
        return begun[-1] if begun and begun[-1] not in task.skip else None

    def _check_hope(self, executor: Executor) -> None:
        outcomes = Counter(self._done.outcomes)
        failed = outcomes.pop(str(OutcomeKind.FAILED), 0)
        del outcomes[str(OutcomeKind.ALREADY_APPROVED)]
        if failed >= HOPELESS and not outcomes.total():
            self._end(executor, f"all of the first {failed} searches failed; see the reasons", 4)

    def _end(self, executor: Executor, reason: str, exit_code: int = 0) -> None:
        if not self._stopped:
            self._stopped, self._exit_code = reason, exit_code
            executor.stop(reason)
