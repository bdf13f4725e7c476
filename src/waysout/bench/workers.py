"""Searches without a real LLM, in parallel processes; only the parent process writes."""

from __future__ import annotations

import os
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from signal import SIG_IGN, SIGINT, signal
from threading import Thread
from time import process_time

from waysout.bench.kinds import KINDS, Stopped
from waysout.bench.measure import ArmSearches, environment, failure
from waysout.bench.progress import Outcome, Watch
from waysout.bench.replies import ReplyTally
from waysout.bench.tasks import Queue, Task
from waysout.errors import WaysoutError
from waysout.run.context import Stop
from waysout.run.find import find
from waysout.run.machine import one_thread_each
from waysout.search.base import Method

DIED = "the worker process died: killed, or out of memory (try fewer processes)"
_LOOK_SECONDS = 0.2

Keep = Callable[[Task, Outcome], None]


def reason(error: BaseException) -> str:
    """Describe in one line why a search failed."""
    text = str(error) if isinstance(error, WaysoutError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


@dataclass(frozen=True)
class WorkerPool:
    """Runs queues in processes. Each outcome goes to ``keep`` as its search ends."""

    jobs: int
    commit: str
    keep: Keep
    watch: Watch
    stop: Stop
    folder: Path

    def run(self, queue: Queue) -> None:
        """Run a queue until it is empty or the run is stopped."""
        tasks = self._prepared(queue.tasks)
        for suspect in self._drain(_by_query(tasks), 1 if queue.alone else self.jobs):
            # Try again alone: it may have died because the others used up the memory.
            for task in self._drain([[suspect]], 1):
                self._fail(task, DIED)

    def _drain(self, groups: Iterable[Sequence[Task]], jobs: int) -> list[Task]:
        """Run all searches; return those whose process died."""
        waiting, lost = deque(groups), list[Task]()
        running: dict[Future[Outcome], tuple[_Worker, Task]] = {}
        with _workers(min(jobs, sum(map(len, waiting)))) as workers:
            idle = [*workers]
            while not self.stop.reason:
                for worker in idle:
                    if task := _next(worker, workers, waiting):
                        running[worker.begin(task, self.commit, self.folder)] = worker, task
                if not running:
                    break
                idle = []
                for future in wait(running, _LOOK_SECONDS, FIRST_COMPLETED).done:
                    worker, task = running.pop(future)
                    try:
                        self.keep(task, future.result())
                    except BrokenProcessPool:
                        lost.append(task)
                        worker.start_again()
                    idle.append(worker)
        return lost

    def _prepared(self, tasks: Sequence[Task]) -> list[Task]:
        """Train models and build libraries before the searches, so that none is made twice.

        Return the tasks for which this succeeded.
        """
        able, prepared = [], set[tuple[str, str]]()
        for task in tasks:
            if self.stop.reason:
                return []
            arm, method = task.arm, task.arm.made
            try:
                if KINDS[arm.kind].memory:
                    searches = ArmSearches(
                        arm, task.llm, environment(arm.data), self.folder, self.stop
                    )
                    searches.options(task.llm or None)
                prepare = KINDS[arm.kind].prepare
                if prepare and (arm.kind, arm.data) not in prepared:
                    self._tell(f"models of {arm.data}", 0.0)
                    prepare(environment(arm.data))
                    prepared.add((arm.kind, arm.data))
                if type(method).learn is not Method.learn:
                    method.prepare()
                    place = environment(arm.data)
                    method.learn(place.problem_of(arm), place.data, self._tell)
            except Stopped:
                return []
            except Exception as error:
                self._fail(task, reason(error))
            else:
                able.append(task)
        return able

    def _tell(self, what: str, share: float) -> None:
        if self.stop.reason:
            raise Stopped
        self.watch.prepares(what, share)

    def _fail(self, task: Task, why: str) -> None:
        for query in task.queries:
            self.keep(task, failure(task.arm, task.llm, query, why))


def _by_query(tasks: Iterable[Task]) -> list[list[Task]]:
    """Return single searches, grouped by query, those that take long first.

    The arms of a query encode the same texts and evaluate the same rows, which a process does only
    once. Long searches come first, so that they do not delay the end.
    """
    together: dict[tuple[int, str, int], list[Task]] = defaultdict(list)
    for task in sorted(tasks, key=lambda task: -task.weight_of_one):
        for query in task.queries:
            alike = together[task.weight_of_one, task.arm.data, query]
            alike.append(Task(task.arm, task.llm, (query,)))
    return list(together.values())


def _next(
    worker: _Worker, workers: Sequence[_Worker], waiting: deque[Sequence[Task]]
) -> Task | None:
    """Return a worker's next task: from its own query, a new query, or a busy worker's queue."""
    if not worker.tasks and waiting:
        worker.tasks.extend(waiting.popleft())
    if worker.tasks:
        return worker.tasks.popleft()
    busiest = max(workers, key=lambda other: len(other.tasks))
    return busiest.tasks.pop() if busiest.tasks else None


# Processes -------------------------------------------------------------------------------------


class _Worker:
    """One process, so that a crash affects no other search, and its remaining tasks."""

    def __init__(self, alive: Connection) -> None:
        self.tasks: deque[Task] = deque()
        self._alive = alive
        self._pool = self._start()

    def _start(self) -> ProcessPoolExecutor:
        context = get_context("spawn")
        return ProcessPoolExecutor(1, context, initializer=_begin_worker, initargs=(self._alive,))

    def begin(self, task: Task, commit: str, folder: Path) -> Future[Outcome]:
        """Begin a search."""
        return self._pool.submit(search, task, commit, folder)

    def start_again(self) -> None:
        """Replace a process that died."""
        self.end()
        self._pool = self._start()

    def end(self) -> None:
        """Wait until the process has ended."""
        self._pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _workers(jobs: int) -> Iterator[list[_Worker]]:
    """Start processes that end with the block, or when this process is killed."""
    alive, ours = get_context("spawn").Pipe(duplex=False)
    with one_thread_each():
        workers = [_Worker(alive) for _ in range(jobs)]
        try:
            yield workers
        finally:
            ours.close()
            for worker in workers:
                worker.end()
            alive.close()


def _begin_worker(alive: Connection) -> None:
    """Leave Ctrl-C to the parent, print nothing to its stdout, and end when it does."""
    signal(SIGINT, SIG_IGN)
    sys.stdout = sys.stderr

    def end_with_parent() -> None:
        with suppress(EOFError, OSError):
            alive.recv_bytes()  # nothing is ever sent
        os._exit(0)

    Thread(target=end_with_parent, daemon=True).start()


def search(task: Task, commit: str, folder: Path) -> Outcome:
    """Run the only search of a task; an error becomes the failure of that search."""
    arm, (query,) = task.arm, task.queries
    try:
        place = environment(arm.data)
        searches = ArmSearches(arm, task.llm, place, folder, Stop())
        options = searches.options(task.llm or None)
        began = process_time()
        result = find(searches.problem, place.data.rows[query], **options)
        spent = process_time() - began
        return searches.cell(query, result, options.get("memory"), ReplyTally(), commit, spent)
    except Exception as error:
        return failure(arm, task.llm, query, reason(error))
