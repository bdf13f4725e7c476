"""An executor of processes on this machine; whatever becomes of one, the others go on."""

from __future__ import annotations

import asyncio
import os
import pickle
import queue
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from threading import Timer
from typing import Any

from waysout.batch.job import BatchJob, BatchTally, PartReport, PartTask, parts_at_once
from waysout.batch.worker import Worker
from waysout.errors import InputError, UnavailableError, WaysoutError
from waysout.llm.base import Backend
from waysout.llm.shared import (
    BackendClient,
    BackendServer,
    Channel,
    PipeEnds,
    RemoteError,
    call_in_loop,
    pipe_pair,
)
from waysout.run.machine import one_thread_each

# Whoever cannot begin may be short of memory that others let go of by and by.
_DEATHS_IN_A_ROW = 5
# How often a worker tells how far it is, and how long one may take to go, in seconds.
_TELL_SECONDS = 0.5
_GOING_SECONDS = 3.0
# What a process has said may still be read when it has died already.
_LAST_WORDS_SECONDS = 1.0


@dataclass(frozen=True)
class _News:
    """What a worker tells: how many people are done in the parts it has, and which has ended."""

    tally: BatchTally
    report: PartReport | None = None


class LocalExecutor:
    """So many worker processes, each with a model of its own; see `Executor`.

    With a ``backend`` all of them ask that one, which is let go at the end; without, each connects
    to the LLM of the job itself. Processes are started when there is work for them.
    """

    def __init__(
        self,
        job: BatchJob,
        *,
        workers: int,
        part_rows: int,
        backend: Backend | None = None,
        worker: type[Worker] = Worker,
    ) -> None:
        self._job = _packed(worker, job)
        self._size = workers
        self._most = parts_at_once(job.trees, part_rows)
        self._hub = BackendServer(backend) if backend is not None else None
        self._workers: list[_Worker] = []
        self._waiting: deque[PartTask] = deque()
        self._ended: list[PartReport] = []
        self._heard: queue.SimpleQueue[tuple[_Worker, Any]] = queue.SimpleQueue()
        self._deaths = 0
        self._stopped = ""

    @property
    def room(self) -> int:
        """How many more parts may be handed in now, so that nobody waits for work."""
        under_way = sum(len(worker.parts) for worker in self._workers)
        return self._size * self._most - under_way - len(self._waiting)

    def submit(self, task: PartTask) -> None:
        """Hand a part in."""
        if self._stopped:
            self._ended.append(PartReport(task.part, stopped=self._stopped))
            return
        self._waiting.append(task)
        self._deal()

    def wait(self, seconds: float) -> Sequence[PartReport]:
        """Return what has ended, waiting for it so long at most.

        Raises the error of a worker that cannot begin, and gives up where they die again and again.
        """
        until = time.monotonic() + seconds
        while not self._ended and (left := until - time.monotonic()) > 0:
            with suppress(queue.Empty):
                self._take(*self._heard.get(timeout=min(left, _LAST_WORDS_SECONDS)))
            for worker in [worker for worker in self._workers if worker.is_gone()]:
                self._lose(worker)
        with suppress(queue.Empty):
            while True:
                self._take(*self._heard.get_nowait())
        self._deal()
        reports, self._ended = self._ended, []
        return reports

    def tally(self) -> BatchTally:
        """Return what is known by now of the people in parts under way; it may be a little old."""
        return sum((worker.tally for worker in self._workers), BatchTally())

    def stop(self, reason: str) -> None:
        """End every search with what it has; parts that nobody has begun come back at once."""
        self._stopped = reason
        never_begun = [task.part for task in self._waiting]
        self._waiting.clear()
        for worker in [*self._workers]:
            if worker.has_begun:
                worker.line.send(reason)
            else:
                never_begun += worker.parts
                self._dismiss(worker)
        self._ended += (PartReport(part, stopped=reason) for part in never_begun)

    def close(self) -> None:
        """Let all workers go, by force where one does not; what is under way is in its store."""
        for worker in self._workers:
            worker.line.close()
        until = time.monotonic() + _GOING_SECONDS + 0.5
        for worker in self._workers:
            worker.end(max(0.0, until - time.monotonic()) if worker.has_begun else 0.0)
        self._workers.clear()
        if self._hub is not None:
            self._hub.close()

    # Who does what -----------------------------------------------------------------------------

    def _deal(self) -> None:
        """Give away what is waiting, in order, as far as there is somebody to take it."""
        while self._waiting and (worker := self._taker(self._waiting[0])) is not None:
            task = self._waiting.popleft()
            worker.parts[task.part] = task.careful
            worker.line.send(task)

    def _taker(self, task: PartTask) -> _Worker | None:
        """Return who takes a part: somebody idle, somebody new, or whoever has the least to do.

        A part that may kill its worker is alone with it: no other is lost, or blamed.
        """
        idle = next((worker for worker in self._workers if not worker.parts), None)
        if idle is not None:
            return idle
        if len(self._workers) < self._size:
            return self._start()
        if task.careful:
            return None
        able = [w for w in self._workers if len(w.parts) < self._most and not any(w.parts.values())]
        return min(able, key=lambda worker: len(worker.parts), default=None)

    def _start(self) -> _Worker:
        worker = _Worker(self._job, self._hub, self._heard)
        self._workers.append(worker)
        return worker

    # What they say -----------------------------------------------------------------------------

    def _take(self, worker: _Worker, said: _News | RemoteError | None) -> None:
        if worker not in self._workers:
            return  # it was let go, and its parts have come back
        if said is None:
            self._lose(worker)
        elif isinstance(said, RemoteError):
            self._dismiss(worker)
            raise said.restore()
        else:
            worker.has_begun, worker.tally = True, said.tally
            self._deaths = 0
            if said.report is not None:
                worker.parts.pop(said.report.part)
                self._ended.append(said.report)

    def _lose(self, worker: _Worker) -> None:
        """Let a worker go that died; another takes its place when there is work.

        What becomes of parts that kill their workers is for others to say. Here it counts that
        none could even begin.
        """
        self._ended += (PartReport(part, lost=True) for part in worker.parts)
        how = self._dismiss(worker, _LAST_WORDS_SECONDS)
        self._deaths += 1
        if self._deaths > _DEATHS_IN_A_ROW + self._size:
            fewer = "--workers 1, or " if self._size > 1 else ""
            raise UnavailableError(
                f"workers died {self._deaths} times in a row before they could begin (the last "
                f"one: {how}). Is there enough memory for the model and its rows? Try {fewer}one "
                "row with `waysout find`"
            )

    def _dismiss(self, worker: _Worker, patience: float = 0.0) -> str:
        """Let a worker go; says how its process ended."""
        self._workers.remove(worker)
        worker.line.close()
        return worker.end(patience)


def _packed(worker: type[Worker], job: BatchJob) -> bytes:
    try:
        return pickle.dumps((worker, job))
    except Exception as error:  # each class that cannot be pickled has a way of its own to say so
        raise InputError(
            f"the job cannot be sent to other processes: {error}. Its parts must be picklable: "
            "functions at the top of a module, and no lambdas"
        ) from error


# Processes -------------------------------------------------------------------------------------


class _Worker:
    """A process, as its parent sees it. What it says goes to ``heard``, and ``None`` at its end."""

    def __init__(
        self, job: bytes, hub: BackendServer | None, heard: queue.SimpleQueue[tuple[_Worker, Any]]
    ) -> None:
        self.parts: dict[int, bool] = {}
        """The parts it has, and whether each is done with care."""
        self.tally = BatchTally()
        self.has_begun = False
        self._died: float | None = None
        ours, theirs = pipe_pair()
        llm = hub.open() if hub is not None else None
        self._process = get_context("spawn").Process(
            target=_work, args=(theirs, llm), name="waysout worker", daemon=True
        )
        with _for_workers():
            self._process.start()
        # Else a pipe would stay open when the worker has died.
        for end in (*theirs, *(llm or ())):
            end.close()
        self._heard = heard
        self.line = Channel(ours, self._hear, lambda: self._hear([None]))
        self.line.send(job)

    def _hear(self, said: Sequence[Any]) -> None:
        for item in said:
            self._heard.put((self, item))

    def is_gone(self) -> bool:
        """Whether the process has died and somebody else holds its pipe open.

        Whoever a model has forked does that; else the pipe tells first.
        """
        if self._process.is_alive():
            return False
        self._died = self._died or time.monotonic()
        return time.monotonic() - self._died > _LAST_WORDS_SECONDS

    def end(self, patience: float) -> str:
        """Wait for the process to go, and make it after that; says how it ended."""
        self._process.join(patience)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        code = self._process.exitcode or 0
        self._process.close()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


@contextmanager
def _for_workers() -> Iterator[None]:
    """Let processes that are started here inherit what they need."""
    with one_thread_each(), _no_interrupts():
        yield


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Leave Ctrl-C to the parent from the first moment: blocked signals are inherited."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which unblocks them when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# Within a worker -------------------------------------------------------------------------------


def _work(ends: PipeEnds, llm: PipeEnds | None) -> None:
    """Be a worker, until the parent says that it is over or is no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout = sys.stderr
    with suppress(OSError):  # libraries print past Python, too
        os.dup2(2, 1)
    asyncio.run(_Hands().work(ends, llm))


class _Hands:
    """What a worker process does: runs parts, and tells how far they are."""

    def __init__(self) -> None:
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()
        self._running: set[asyncio.Task[None]] = set()
        self._line: Channel
        self._worker: Worker
        self._told = BatchTally()

    async def work(self, ends: PipeEnds, llm: PipeEnds | None) -> None:
        """Work until it is over; an error that keeps the worker from being made goes to the parent.

        The parent is listened to before anything else: it may end while a model is loaded.
        """
        loop = asyncio.get_running_loop()
        self._line = Channel(
            ends, lambda said: call_in_loop(loop, self._put, said), lambda: self._over(loop)
        )
        try:
            worker, job = pickle.loads(await self._inbox.get())
            self._worker = worker(job, BackendClient(llm) if llm is not None else None)
            self._tell()
            await self._serve()
        except Exception as error:
            self._line.send(RemoteError.of(error, WaysoutError))
            await asyncio.Event().wait()  # until the parent has heard it

    def _put(self, said: Sequence[Any]) -> None:
        for item in said:
            self._inbox.put_nowait(item)

    def _over(self, loop: asyncio.AbstractEventLoop) -> None:
        # A model that is being loaded or asked cannot be interrupted.
        timer = Timer(_GOING_SECONDS, os._exit, (0,))
        timer.daemon = True
        timer.start()
        call_in_loop(loop, self._put, [None])

    async def _serve(self) -> None:
        ticking = asyncio.create_task(self._tick())
        while (item := await self._inbox.get()) is not None:
            if isinstance(item, str):
                self._worker.stop(item)
            else:
                task = asyncio.create_task(self._run(item))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
        for task in (ticking, *self._running):
            task.cancel()
        await asyncio.gather(ticking, *self._running, return_exceptions=True)
        await self._worker.aclose()

    async def _run(self, task: PartTask) -> None:
        try:
            report = await self._worker.run(task)
        except Exception as error:
            self._line.send(RemoteError.of(error, WaysoutError))
        else:
            self._tell(report)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TELL_SECONDS)
            if self._worker.tally() != self._told:
                self._tell()

    def _tell(self, report: PartReport | None = None) -> None:
        self._told = self._worker.tally()
        self._line.send(_News(self._told, report))
