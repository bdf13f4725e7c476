"""The driver of a batch: hands parts out, takes reports in, and retries what was lost."""

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
from waysout.batch.tables import has_failed, people_done, people_of, store_path
from waysout.domain.result import OutcomeKind
from waysout.errors import IntegrityError, UnavailableError, WaysoutError
from waysout.store import Store

# A lost part is retried once as it is (its worker may have died for another reason), then isolated.
ISOLATED_AFTER = 2
# A person may have been searched for by chance when a worker died: once is no proof.
SKIPPED_AFTER = 2
# For a part that is interrupted each time, or that kills its workers and no one person is to blame.
MOST_TRIES = 5
# So many who failed by an unexpected error although they were alone with a worker: that is a bug,
# and nothing that a model has done to its process. From then on, such an error is believed at once.
MOST_PROVEN = 8
# More deaths of isolated parts, with nobody searched for to the end between them, are not the fault
# of single rows.
MOST_DEATHS = 30
# More failures without a single search that worked are the fault of the job, not of the rows.
MOST_FAILURES = 100
_LOOK_SECONDS = 0.5


@dataclass
class BatchProgress:
    """How far a batch has got."""

    rows: int
    before: int = 0
    """Rows that were done when it started."""
    tally: BatchTally = field(default_factory=BatchTally)
    began: float = field(default_factory=time.monotonic)
    over: bool = False
    """Whether the searches have ended: the results are being counted."""

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
        """How long the rest will take at this pace; unknown before the first row is done."""
        people = self.tally.people
        return self.seconds / people * (self.rows - self.done) if people else None


@dataclass
class BatchEnd:
    """How one run of the batch command ended: what it did, what is left, and why."""

    rows: int
    """Rows done in it, without those it found on file in a part that was half done."""
    seconds: float
    left: int = 0
    """Parts that are not done."""
    stopped: str = ""
    exit_code: int = 0


OnBatchProgress = Callable[[BatchProgress], None]


def cut(
    rows: Iterable[Mapping[str, Any]], part_rows: int, *, limit: int | None = None, total: int
) -> Iterator[PartTask]:
    """Cut a stream of rows into parts; the last is shorter, and ``cut`` if a limit made it so.

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
    """Gives the parts of a batch to an executor until all are done or it is stopped.

    With ``retry_failed``, parts in which a row failed are not done. `stop` may be called from
    anywhere, a signal's handler included.
    """

    def __init__(
        self,
        out: Path,
        tasks: Iterable[PartTask],
        rows: int,
        on_progress: OnBatchProgress | None = None,
        *,
        retry_failed: bool = False,
    ) -> None:
        self.out = out
        self.retry_failed = retry_failed
        self.progress = BatchProgress(rows)
        self._tasks = iter(tasks)
        self._ready: deque[PartTask] = deque()  # to submit before the next of `_tasks`
        self._under_way: dict[int, PartTask] = {}
        self._tries: Counter[int] = Counter()  # by part
        self._deaths: Counter[int] = Counter()  # by part
        self._suspects: Counter[int] = Counter()  # by row
        self._isolated_deaths = 0  # since a part was done, or somebody was searched for to the end
        self._survivors: Counter[int] = Counter()  # of isolated searches, by part
        self._handed_back: dict[int, PartReport] = {}  # of parts not done: the last one
        self._proven = 0
        self._left = self._on_file = 0
        self._done = BatchTally()
        self._on_progress = on_progress or (lambda progress: None)
        self._requested = ""  # the reason given to `stop`
        self._stopped, self._exit_code = "", 0

    def stop(self, reason: str) -> None:
        """Stop the batch with what it has."""
        self._requested = self._requested or reason

    def run(self, start_executor: Callable[[], Executor[Any]]) -> BatchEnd:
        """Run to the end; an executor is started only if there is something to do."""
        first = next(self._open_tasks(), None)
        if first is None:
            return BatchEnd(0, self.progress.seconds)
        self._ready.append(first)
        place = _identity(self.out)
        with closing(start_executor()) as executor:
            while True:
                # Workers would go on in a new folder of that name, which cannot be resumed.
                if place and _identity(self.out) != place:
                    raise UnavailableError(
                        f"{self.out} was moved or removed while the batch was under way: put it "
                        "back in the place of what was made there since, and run the same command"
                    )
                while not (self._stopped or self._requested) and executor.room > 0:
                    task = next(self._open_tasks(), None)
                    if task is None:
                        break
                    self._under_way[task.part] = task
                    executor.submit(task)
                if not self._under_way:
                    break
                if self._requested and not self._stopped:
                    self._end(executor, self._requested)
                for report in executor.wait(_LOOK_SECONDS):
                    self._handle(executor, report)
                self.progress.tally = self._done + executor.tally()
                self._on_progress(self.progress)
        rows, seconds = self._done.people - self._on_file, self.progress.seconds
        self.progress.over = True
        self._on_progress(self.progress)
        left = self._left + sum(1 for _ in self._open_tasks())
        return BatchEnd(rows, seconds, left, self._stopped or self._requested, self._exit_code)

    def _open_tasks(self) -> Iterator[PartTask]:
        """Yield the parts that are ready, then the next ones of the table that are not done."""
        while self._ready:
            yield self._ready.popleft()
        for task in self._tasks:
            if self._is_done(task):
                self.progress.before += len(task)
            else:
                yield task

    def _is_done(self, task: PartTask) -> bool:
        done = people_done(self.out, task.part) or 0
        # A part with more rows belongs to a greater limit, and must not shrink.
        retry = self.retry_failed and done == len(task) and has_failed(self.out, task.part)
        return done >= len(task) and not retry

    def _lacks_people(self, task: PartTask) -> bool:
        """Whether the mark of a part says fewer people than it has, whatever its worker said.

        On a disk that nodes share a new mark may not be seen here yet: that is looked at when all
        have ended.
        """
        done = people_done(self.out, task.part)
        return done is not None and done < len(task)

    # Reports -----------------------------------------------------------------------------------

    def _handle(self, executor: Executor[Any], report: PartReport) -> None:
        task = self._under_way.pop(report.part)
        if report.lost and self._is_done(task) and not store_path(self.out, task.part).exists():
            # Its worker died before it could say so. Where its store is left, doing it again costs
            # nothing and removes that; without, everything would be asked again.
            outcomes = people_of(self.out, task.part, ["outcome"])["outcome"].to_pylist()
            report = replace(report, tally=BatchTally(Counter(outcomes)), done=True)
        if report.done and self._lacks_people(task):
            report = PartReport(task.part, lost=True)
        if task.isolated:
            self._proven += len(report.doubted)
        if report.done:
            self._done += report.tally
            self._on_file += self._handed_back.pop(task.part, report).on_file
            self._isolated_deaths = 0
            self._look_for_hope(executor)
            return
        if report.stopped and not report.lost:
            self._end(executor, report.stopped, report.exit_code)
        if report.lost:
            task = self._after_death(task)
        elif not self._stopped:
            task = self._after_hand_back(task, report)
            self._look_for_hope(executor)
        if self._stopped:
            self._left += 1
        else:
            self._retry(executor, task, report)

    def _look_for_hope(self, executor: Executor[Any]) -> None:
        """End a batch in which nothing but failures has come out."""
        found = sum((report.tally for report in self._handed_back.values()), self._done)
        outcomes = Counter(found.outcomes)
        failed = outcomes.pop(str(OutcomeKind.FAILED), 0)
        del outcomes[str(OutcomeKind.ALREADY_APPROVED)]
        if failed >= MOST_FAILURES and not outcomes.total():
            reason = f"all of the first {failed} searches failed; see the reasons"
            self._end(executor, reason, 4)

    def _retry(self, executor: Executor[Any], task: PartTask, report: PartReport) -> None:
        self._tries[task.part] += 1
        if self._tries[task.part] < MOST_TRIES + SKIPPED_AFTER * len(task.skip):
            self._ready.append(task)
            if self._isolated_deaths >= MOST_DEATHS:
                self._end(executor, f"workers died {MOST_DEATHS} times in a row: out of memory?", 5)
            return
        self._left += 1
        if report.lost and report.stopped:
            self._end(executor, report.stopped, report.exit_code)
        elif self._deaths[task.part]:
            rows = f"rows {task.first} to {task.first + len(task) - 1}"
            self._end(executor, f"every worker with {rows} died: out of memory?", 5)

    def _after_death(self, task: PartTask) -> PartTask:
        """Return a part whose worker died, prepared for its next attempt."""
        self._deaths[task.part] += 1
        if not task.isolated:
            return replace(task, isolated=self._deaths[task.part] >= ISOLATED_AFTER)
        self._isolated_deaths += 1
        try:
            with Store.read(store_path(self.out, task.part)) as store:
                begun = [event.index for event in store.events() if event.kind == BEGUN]
        except WaysoutError:  # it died before it could record anything
            return task
        # The last person whose search was started is the one it died with.
        suspect = begun[-1] if begun else None
        survivors = len({*begun} - {*task.skip, suspect})
        if survivors > self._survivors[task.part]:
            self._survivors[task.part], self._isolated_deaths = survivors, 1
        if suspect is None or suspect in task.skip:
            return task
        self._suspects[suspect] += 1
        skipped = self._suspects[suspect] >= SKIPPED_AFTER
        return replace(task, skip=(*task.skip, suspect)) if skipped else task

    def _after_hand_back(self, task: PartTask, report: PartReport) -> PartTask:
        """Return a part that a worker has handed back unfinished, prepared for its next attempt.

        Who has a result keeps it, a failure of their own included. Where nobody was added to them
        since the last time, one person after the other is searched for: each attempt then settles
        whoever it ends with.
        """
        before = self._handed_back.get(task.part)
        # What its next worker finds on file was done in this run.
        first = before or report
        self._handed_back[task.part] = replace(report, on_file=first.on_file)
        settled = {*task.settled, *report.settled}
        if self._proven >= MOST_PROVEN:
            settled.update(report.doubted)
        if before is None or report.tally.people > before.tally.people:
            self._tries[task.part] = 0
        else:
            task = replace(task, isolated=True)
        return replace(task, settled=tuple(sorted(settled)))

    def _end(self, executor: Executor[Any], reason: str, exit_code: int = 0) -> None:
        if not self._stopped:
            self._stopped, self._exit_code = reason, exit_code
            executor.stop(reason)


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
