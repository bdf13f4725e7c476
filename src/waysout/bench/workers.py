"""Searches that wait for no LLM, in processes side by side; this process alone writes."""

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
from signal import SIG_IGN, SIGINT, signal
from threading import Thread

from waysout.bench.measure import CellMeasurement, FoundAt, options, world
from waysout.bench.progress import Outcome, Watch
from waysout.bench.replies import ReplyTally
from waysout.bench.tasks import Lane, Todo
from waysout.errors import WaysoutError
from waysout.run.context import Stop
from waysout.run.find import find
from waysout.run.machine import one_thread_each
from waysout.search.base import Method

DIED = "the process that searched died: killed, or out of memory (try fewer --jobs)"
_LOOK_SECONDS = 0.2

Keep = Callable[[Todo, Outcome], None]


def reason(error: BaseException) -> str:
    """Say in a line why a search failed."""
    text = str(error) if isinstance(error, WaysoutError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


@dataclass(frozen=True)
class WorkerPool:
    """Runs lanes in processes. Each outcome goes to ``keep`` as its search ends."""

    jobs: int
    commit: str
    keep: Keep
    watch: Watch
    stop: Stop

    def run(self, lane: Lane) -> None:
        """Run a lane to its end, or until it is stopped."""
        todos = self._learned(lane.todos)
        for suspect in self._drain(_by_person(todos), 1 if lane.alone else self.jobs):
            # Once more and alone: it may have died because the others had taken the memory.
            for todo in self._drain([[suspect]], 1):
                self._fail(todo, DIED)

    def _drain(self, people: Iterable[Sequence[Todo]], jobs: int) -> list[Todo]:
        """Run all searches; returns those that were under way in processes that died."""
        waiting, lost = deque(people), list[Todo]()
        running: dict[Future[Outcome], tuple[_Worker, Todo]] = {}
        with _workers(min(jobs, sum(map(len, waiting)))) as workers:
            idle = [*workers]
            while not self.stop.reason:
                for worker in idle:
                    if todo := _next(worker, workers, waiting):
                        running[worker.begin(todo, self.commit)] = worker, todo
                if not running:
                    break
                idle = self._look(running, lost)
        return lost

    def _look(
        self, running: dict[Future[Outcome], tuple[_Worker, Todo]], lost: list[Todo]
    ) -> list[_Worker]:
        """Keep what has ended; returns those who have nothing to do now."""
        ended, _ = wait(running, _LOOK_SECONDS, FIRST_COMPLETED)
        idle = []
        for future in ended:
            worker, todo = running.pop(future)
            try:
                outcome = future.result()
            except BrokenProcessPool:
                lost.append(todo)
                worker.start_again()
            else:
                self.keep(todo, outcome)
            idle.append(worker)
        return idle

    def _learned(self, todos: Sequence[Todo]) -> list[Todo]:
        """Learn what has to be learned before the searches, so that no two of them do it at once.

        Returns the searches whose methods could.
        """
        able = []
        for todo in todos:
            if self.stop.reason:
                return []
            try:
                self._learn(todo)
            except _NotWanted:
                return []
            except Exception as error:
                self._fail(todo, reason(error))
            else:
                able.append(todo)
        return able

    def _learn(self, todo: Todo) -> None:
        method = todo.arm.made
        if type(method).learn is Method.learn:
            return
        method.prepare()
        place = world(todo.arm.data)

        def tell(what: str, share: float) -> None:
            if self.stop.reason:
                raise _NotWanted
            self.watch.prepares(what, share)

        method.learn(place.problem(todo.arm.rules), place.data, tell)

    def _fail(self, todo: Todo, why: str) -> None:
        measure = CellMeasurement(todo.arm, todo.llm, "", self.commit)
        for query in todo.people:
            self.keep(todo, measure.failure(query, why))


class _NotWanted(Exception):
    """Nobody waits for what is being learned."""


def _by_person(todos: Iterable[Todo]) -> list[list[Todo]]:
    """Return searches, those of each person together, and those that take long first.

    The arms of a person encode the same texts and ask the oracle for the same rows, which a process
    does once. What takes long would be waited for at the end.
    """
    together: dict[tuple[int, str, int], list[Todo]] = defaultdict(list)
    for todo in sorted(todos, key=lambda todo: -todo.weight_of_one):
        for person in todo.people:
            alike = together[todo.weight_of_one, todo.arm.data, person]
            alike.append(Todo(todo.arm, todo.llm, (person,)))
    return list(together.values())


def _next(
    worker: _Worker, workers: Sequence[_Worker], waiting: deque[Sequence[Todo]]
) -> Todo | None:
    """Return what a worker does next: the rest of its person, a new one, or help for the others."""
    if not worker.todos and waiting:
        worker.todos.extend(waiting.popleft())
    if worker.todos:
        return worker.todos.popleft()
    busiest = max(workers, key=lambda other: len(other.todos))
    return busiest.todos.pop() if busiest.todos else None


# Processes -------------------------------------------------------------------------------------


class _Worker:
    """A process, so that one that dies ends no other search, and what it has still to do."""

    def __init__(self, alive: Connection) -> None:
        self.todos: deque[Todo] = deque()
        self._alive = alive
        self._pool = self._start()

    def _start(self) -> ProcessPoolExecutor:
        context = get_context("spawn")
        return ProcessPoolExecutor(1, context, initializer=_begin_worker, initargs=(self._alive,))

    def begin(self, todo: Todo, commit: str) -> Future[Outcome]:
        """Begin a search."""
        return self._pool.submit(search, todo, commit)

    def start_again(self) -> None:
        """Have a new process in place of one that died."""
        self.end()
        self._pool = self._start()

    def end(self) -> None:
        """Wait until the process has ended."""
        self._pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _workers(jobs: int) -> Iterator[list[_Worker]]:
    """Have processes, which end with the block at the latest: also where this one is killed."""
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
    Thread(target=_end_with_parent, args=(alive,), daemon=True).start()


def _end_with_parent(alive: Connection) -> None:
    with suppress(EOFError, OSError):
        alive.recv_bytes()  # nothing is ever sent
    os._exit(0)


def search(todo: Todo, commit: str) -> Outcome:
    """Search for the one person of a todo; whatever goes wrong is that search's failure alone."""
    arm, (query,) = todo.arm, todo.people
    try:
        place, found = world(arm.data), FoundAt()
        problem = place.problem(arm.rules)
        asked = options(arm, place.data, todo.llm or None, found, Stop())
        result = find(problem, place.data.rows[query], **asked)
        measure = CellMeasurement.of(arm, todo.llm, place, commit)
        return measure.cell(query, result, found.of(problem, result), ReplyTally())
    except Exception as error:
        return CellMeasurement(arm, todo.llm, "", commit).failure(query, reason(error))
