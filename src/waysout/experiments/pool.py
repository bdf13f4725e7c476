"""Searches that wait for no LLM, in processes side by side; this process alone writes."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from signal import SIG_IGN, SIGINT, signal
from threading import Thread

from waysout.errors import WaysoutError
from waysout.experiments.measure import FoundAt, Measure, options, oracle_sha256, world
from waysout.experiments.progress import Outcome, Watch
from waysout.experiments.replies import Tally
from waysout.experiments.work import Lane, Todo
from waysout.run.find import find
from waysout.run.office import Stop
from waysout.search.base import Method

PEOPLE_A_JOB = 5
DIED = "the process that searched died: killed, or out of memory (try fewer --jobs)"
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_LOOK_SECONDS = 0.2

Keep = Callable[[Todo, Outcome], None]


def cores() -> int:
    """Return how many cores this process may use."""
    with suppress(AttributeError):  # not every system tells
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def reason(error: BaseException) -> str:
    """Say in a line why a search failed."""
    text = str(error) if isinstance(error, WaysoutError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


@dataclass(frozen=True)
class Pool:
    """Runs lanes in processes. Each outcome goes to ``keep`` as its job ends."""

    jobs: int
    commit: str
    keep: Keep
    watch: Watch
    stop: Stop

    def run(self, lane: Lane) -> None:
        """Run a lane to its end, or until it is stopped."""
        todos = self._learned(lane.todos)
        jobs = 1 if lane.alone else self.jobs
        waiting = deque(_cut(todos, 1 if lane.alone else _people_a_job(todos, jobs)))
        while waiting and not self.stop.reason:
            suspects = deque(_cut(self._drain(waiting, jobs), 1))
            while suspects and not self.stop.reason:
                # One at a time: whose process dies now is to blame.
                for todo in self._drain(suspects, 1):
                    self._fail(todo, DIED)

    def _drain(self, waiting: deque[Todo], jobs: int) -> list[Todo]:
        """Run what is waiting; returns early what was under way where a process died."""
        running: dict[Future[list[Outcome]], Todo] = {}
        lost: list[Todo] = []
        with _workers(min(jobs, len(waiting))) as pool:
            while (running or waiting) and not lost:
                while waiting and len(running) < jobs:
                    todo = waiting.popleft()
                    running[pool.submit(search_people, todo, self.commit)] = todo
                self._look(running, lost)
                if self.stop.reason:
                    return []
            while running:  # a process died, and the others were ended with it
                self._look(running, lost)
        return lost

    def _look(self, running: dict[Future[list[Outcome]], Todo], lost: list[Todo]) -> None:
        ended, _ = wait(running, _LOOK_SECONDS, FIRST_COMPLETED)
        for future in ended:
            todo = running.pop(future)
            try:
                outcomes = future.result()
            except BrokenProcessPool:
                lost.append(todo)
            else:
                for outcome in outcomes:
                    self.keep(todo, outcome)

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
        measure = Measure(todo.arm, todo.llm, "", self.commit)
        for query in todo.people:
            self.keep(todo, measure.failure(query, why))


class _NotWanted(Exception):
    """Nobody waits for what is being learned."""


def _people_a_job(todos: Sequence[Todo], jobs: int) -> int:
    """Return how many people go into a job: a few, but so that every process has some."""
    people = sum(len(todo.people) for todo in todos)
    return max(1, min(PEOPLE_A_JOB, people // (2 * jobs)))


def _cut(todos: Iterable[Todo], size: int) -> Iterator[Todo]:
    """Yield the todos in parts, those that take long first: they would be waited for at the end."""
    for todo in sorted(todos, key=lambda todo: -todo.weight_of_one):
        for start in range(0, len(todo.people), size):
            yield Todo(todo.arm, todo.llm, todo.people[start : start + size])


# Processes -------------------------------------------------------------------------------------


@contextmanager
def _workers(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Have processes, which end with the block at the latest: also where this one is killed."""
    context = get_context("spawn")
    alive, ours = context.Pipe(duplex=False)
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    # Each process has a core of its own; libraries that take all of them would only wait.
    os.environ |= _ONE_THREAD
    pool = ProcessPoolExecutor(jobs, context, initializer=_begin_worker, initargs=(alive,))
    try:
        yield pool
    finally:
        ours.close()
        pool.shutdown(wait=True, cancel_futures=True)
        alive.close()
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _begin_worker(alive: Connection) -> None:
    """Leave Ctrl-C to the parent, print nothing to its stdout, and end when it does."""
    signal(SIGINT, SIG_IGN)
    sys.stdout = sys.stderr
    Thread(target=_end_with_parent, args=(alive,), daemon=True).start()


def _end_with_parent(alive: Connection) -> None:
    with suppress(EOFError, OSError):
        alive.recv_bytes()  # nothing is ever sent
    os._exit(0)


def search_people(todo: Todo, commit: str) -> list[Outcome]:
    """Search for some people of one arm, one after the other."""
    arm, failing = todo.arm, Measure(todo.arm, todo.llm, "", commit)
    try:
        place = world(arm.data)
        problem = place.problem(arm.rules)
        measure = Measure(arm, todo.llm, oracle_sha256(arm.data), commit)
    except Exception as error:
        return [failing.failure(query, reason(error)) for query in todo.people]
    outcomes: list[Outcome] = []
    for query in todo.people:
        found = FoundAt()
        try:
            asked = options(arm, place.data, todo.llm or None, found, Stop())
            result = find(problem, place.data.rows[query], **asked)
            outcomes.append(measure.cell(query, result, found.of(problem, result), Tally()))
        except Exception as error:  # one person's trouble is nobody else's
            outcomes.append(failing.failure(query, reason(error)))
    return outcomes
