"""Searches with a real LLM in several processes, with one connection and one file of replies.

A call costs a search 5 to 25 ms of a processor, most of it where texts are embedded, so that one
process asks for some tens of replies a second; a GPU writes more.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from signal import SIG_IGN, SIGINT, signal

from waysout.bench.llm_queue import LlmQueueRun
from waysout.bench.measure import failure
from waysout.bench.progress import Outcome, StopAll
from waysout.bench.replies import TALLY, FiledReply, Replies, SharedReplies
from waysout.bench.tasks import Queue, Task
from waysout.bench.workers import DIED, Keep
from waysout.errors import LLMError
from waysout.llm.base import Reply, Request
from waysout.llm.shared import (
    BackendClient,
    Channel,
    PipeEnds,
    RemoteError,
    call_in_loop,
    pipe_pair,
    serve_client,
)
from waysout.run.context import Stop
from waysout.run.machine import one_thread_each

SEARCHES_EACH = 100
"""A process takes seconds to start: it gets at least so many searches."""


def processes_for(queue: Queue, jobs: int) -> int:
    """Return how many processes a queue is worth; searches that are timed alone stay in this one.

    >>> processes_for(Queue(None), 8)
    1
    """
    return 1 if queue.alone else max(1, min(jobs, queue.searches // SEARCHES_EACH))


@dataclass(frozen=True)
class _Ended:
    """The last message of a worker: why its LLM could not be asked any more, if so."""

    error: RemoteError | None


@dataclass
class _Worker:
    """One process, as the parent sees it: its tasks, and what it has not reported yet."""

    tasks: Sequence[Task]
    process: BaseProcess
    channel: Channel
    over: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False

    def __post_init__(self) -> None:
        self.left = {(i, query) for i, task in enumerate(self.tasks) for query in task.queries}


@dataclass
class LlmWorkers:
    """Runs a queue in ``jobs`` processes. ``error`` is set if the LLM became unavailable."""

    queue: Queue
    replies: SharedReplies
    commit: str
    keep: Keep
    stop: StopAll
    folder: Path
    jobs: int
    error: LLMError | None = None

    async def run(self) -> None:
        """Run all searches until the run is stopped or the LLM is unavailable."""
        with one_thread_each(), ExitStack() as stack:
            workers = [self._start(tasks, stack) for tasks in _shares(self.queue.tasks, self.jobs)]
        stopping = _Forward([worker.channel for worker in workers])
        self.stop.add(stopping)
        try:
            for worker in workers:
                await worker.over.wait()
                if self.replies.lost and not stopping.reason:
                    stopping("its results cannot be stored")
        finally:
            self.stop.remove(stopping)
            for worker in workers:
                worker.channel.close()
            for worker in workers:
                await asyncio.to_thread(worker.process.join)
        if self.replies.lost:
            raise self.replies.lost

    def _start(self, tasks: Sequence[Task], stack: ExitStack) -> _Worker:
        """Start a process; the pipe ends that are its own are closed here with the stack."""
        loop = asyncio.get_running_loop()
        (ours, theirs), asking = pipe_pair(), serve_client(self.replies, loop)
        for end in (*theirs, *asking):
            stack.enter_context(end)
        process = get_context("spawn").Process(
            target=_work, args=(tasks, self.commit, self.folder, self.jobs, asking, theirs)
        )
        process.start()
        channel = Channel(
            ours,
            lambda messages: call_in_loop(loop, self._receive, worker, messages),
            lambda: call_in_loop(loop, self._lose, worker),
        )
        worker = _Worker(tasks, process, channel)
        return worker

    def _receive(self, worker: _Worker, messages: Sequence[_Ended | tuple[int, Outcome]]) -> None:
        for message in messages:
            if isinstance(message, _Ended):
                worker.ended = True
                if message.error:
                    self.error = self.error or _llm_error(message.error)
                worker.over.set()
                worker.channel.close()  # it waits for that, so that nothing it sent is lost
            else:
                index, outcome = message
                worker.left.discard((index, outcome.query))
                self._keep(worker.tasks[index], outcome)

    def _lose(self, worker: _Worker) -> None:
        """Notice that a process is gone; if it did not say goodbye, its searches have failed."""
        if not worker.ended and not self.stop.reason:
            for index, query in sorted(worker.left):
                task = worker.tasks[index]
                self._keep(task, failure(task.arm, task.llm, query, DIED))
        worker.over.set()

    def _keep(self, task: Task, outcome: Outcome) -> None:
        if self.replies.lost is None:  # there is no point in continuing without the file
            with suppress(Exception), self.replies.filing():
                self.keep(task, outcome)


class _Forward(Stop):
    """Stops the searches of other processes."""

    def __init__(self, channels: Sequence[Channel]) -> None:
        super().__init__()
        self._channels = channels

    def __call__(self, reason: str) -> None:
        """Pass the reason on."""
        super().__call__(reason)
        for channel in self._channels:
            channel.send(reason)


def _shares(tasks: Sequence[Task], jobs: int) -> list[list[Task]]:
    """Share tasks out by query: the arms of a query embed the same texts, and ask the same rows."""
    parts = ([replace(t, queries=t.queries[i::jobs]) for t in tasks] for i in range(jobs))
    return [[task for task in part if task.queries] for part in parts]


def _llm_error(told: RemoteError) -> LLMError:
    error = told.restore()
    return error if isinstance(error, LLMError) else LLMError(str(error))


# In the other process ----------------------------------------------------------------------------


class _SharedWith(Replies):
    """The replies of the parent process; of its requests at once, an equal share."""

    def __init__(self, client: BackendClient, jobs: int) -> None:
        super().__init__()
        self._client, self._jobs = client, jobs
        self.name, self.form = client.name, client.form

    @property
    def parallel(self) -> int:  # type: ignore[override]
        """Maximum number of requests at once."""
        return -(-self._client.parallel // self._jobs)

    async def complete(self, request: Request) -> Reply:
        """Have the parent process answer, and count what it says of the reply."""
        reply = await self._client.complete(request)
        on_file = isinstance(reply, FiledReply)
        if not on_file:
            self.last_reply = time.monotonic()
        if tally := TALLY.get(None):
            tally.llm_seconds += reply.latency
            tally.from_file += on_file
        return reply

    def filing(self) -> AbstractContextManager[None]:
        """Do nothing: the parent process stores all."""
        return nullcontext()


def _work(
    tasks: Sequence[Task], commit: str, folder: Path, jobs: int, asking: PipeEnds, ends: PipeEnds
) -> None:
    """Run some searches, leaving Ctrl-C to the parent and its stdout alone."""
    signal(SIGINT, SIG_IGN)
    sys.stdout = sys.stderr
    stop, parted = StopAll(), threading.Event()
    channel = Channel(ends, lambda reasons: stop(reasons[0]), parted.set)
    places = {(task.arm.id, task.llm): i for i, task in enumerate(tasks)}

    def keep(task: Task, outcome: Outcome) -> None:
        channel.send((places[task.arm.id, task.llm], outcome))

    error: LLMError | None = None
    try:
        replies, queue = _SharedWith(BackendClient(asking), jobs), Queue(None, tasks=[*tasks])
        running = LlmQueueRun(queue, replies, commit, keep, stop, folder)
        asyncio.run(running.run())
        error = running.error
    except LLMError as gone:
        error = gone
    channel.send(_Ended(RemoteError.of(error, LLMError) if error else None))
    parted.wait()
