"""Workers as processes of this machine: one that dies is replaced, and the others carry on.

`LocalExecutor` and `_WorkerProcess` live in the parent, `_serve` is what a worker process runs.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import queue
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from threading import Timer
from typing import Any

from waysout.batch.executor import Executor, WorkerHandle
from waysout.batch.job import BatchJob, PartReport, PartTask
from waysout.batch.process import EXIT_SECONDS, end_process, settle_in, start_process
from waysout.batch.worker import Worker
from waysout.errors import InputError, WaysoutError
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

# How often a worker reports its progress, in seconds.
_TELL_SECONDS = 0.5
# How long to read what a process has written after it has died, in seconds.
_DRAIN_SECONDS = 1.0
# So many steps of a worker's event loop may fail before it is ended.
_MOST_FAILED_STEPS = 20

_Inbox = queue.SimpleQueue[tuple["_WorkerProcess", Any]]


class LocalExecutor(Executor["_WorkerProcess"]):
    """Worker processes, each with its own copy of the model.

    With a ``backend`` all of them ask that one, which is closed at the end; without, each connects
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
        super().__init__(job, workers, part_rows)
        try:
            self._job = pickle.dumps((worker, job))
        except Exception as error:  # every class that cannot be pickled raises another error
            raise InputError(
                f"the job cannot be sent to other processes: {error}. Its parts must be picklable: "
                "functions at the top of a module, and no lambdas"
            ) from error
        self._llm = BackendServer(backend) if backend is not None else None
        self._inbox: _Inbox = queue.SimpleQueue()

    def stop(self, reason: str) -> None:
        """Stop every search; parts of workers that are still starting are reported at once."""
        super().stop(reason)
        for worker in [worker for worker in self._workers if not worker.is_up]:
            self._ended += (PartReport(part, stopped=reason) for part in worker.parts)
            self._replace(worker)

    def close(self) -> None:
        """End all workers, by force if necessary; what was answered is in their stores."""
        for worker in self._workers:
            worker.channel.close()
        until = time.monotonic() + EXIT_SECONDS + 0.5
        for worker in self._workers:
            worker.join(max(0.0, until - time.monotonic()) if worker.is_up else 0.0)
        self._workers.clear()
        if self._llm is not None:
            self._llm.close()

    def _available(self) -> Sequence[_WorkerProcess]:
        if len(self._workers) < self._size and all(worker.parts for worker in self._workers):
            self._workers.append(_WorkerProcess(self._job, self._llm, self._inbox))
        return self._workers

    def _poll(self, seconds: float) -> None:
        with suppress(queue.Empty):
            self._handle(*self._inbox.get(timeout=min(seconds, _DRAIN_SECONDS)))
            while True:
                self._handle(*self._inbox.get_nowait())
        for worker in [worker for worker in self._workers if worker.is_dead()]:
            self._lose(worker, self._replace(worker))

    def _handle(self, worker: _WorkerProcess, message: Any) -> None:
        """Handle a worker's message: an error, its progress, or ``None`` when its pipe closed."""
        if worker not in self._workers:
            return  # it was removed, and its parts were reported
        if message is None:
            self._lose(worker, self._replace(worker, _DRAIN_SECONDS))
        elif isinstance(message, RemoteError):
            self._replace(worker)
            raise message.restore()
        else:
            worker.tally, report = message
            worker.is_up, worker.silent = True, 0.0
            self._deaths = 0
            if report is not None:
                self._take(worker, report)

    def _replace(self, worker: _WorkerProcess, patience: float = 0.0) -> str:
        """Remove a worker and end its process: another is started when there is work for it."""
        self._workers.remove(worker)
        worker.channel.close()
        return worker.join(patience)


class _WorkerProcess(WorkerHandle):
    """A worker process, as its parent sees it. Its messages go to the executor's ``inbox``."""

    def __init__(self, job: bytes, llm: BackendServer | None, inbox: _Inbox) -> None:
        super().__init__()
        self._died: float | None = None
        ours, theirs = pipe_pair()
        llm_ends = llm.open() if llm is not None else None
        self._process = start_process(_work, theirs, llm_ends)
        # Else a pipe would stay open when the worker has died.
        for end in (*theirs, *(llm_ends or ())):
            end.close()

        def receive(messages: Sequence[Any]) -> None:
            for message in messages:
                inbox.put((self, message))

        self.channel = Channel(ours, receive, lambda: receive([None]))
        self.channel.send(job)

    def send(self, task: PartTask) -> None:
        """Send it a part; it may still be starting."""
        self.channel.send(task)

    def stop(self, reason: str) -> None:
        """Tell it to stop every search."""
        self.channel.send(reason)

    def is_dead(self) -> bool:
        """Whether the process has died although its pipe is open.

        A process that the model has forked may hold it open; else the closed pipe tells first.
        """
        if self._process.is_alive():
            return False
        self._died = self._died or time.monotonic()
        return time.monotonic() - self._died > _DRAIN_SECONDS

    def join(self, patience: float) -> str:
        """Wait for the process to exit, and kill it after that; return how it ended."""
        return end_process(self._process, patience)


# Within a worker process -----------------------------------------------------------------------


def _work(ends: PipeEnds, llm: PipeEnds | None) -> None:
    """Be a worker until the parent closes the pipe or dies."""
    settle_in()
    asyncio.run(_serve(ends, llm))


async def _serve(ends: PipeEnds, llm: PipeEnds | None) -> None:
    """Run the parts that the parent sends, and report progress; errors go to the parent."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_ending_if_broken())
    inbox: asyncio.Queue[Any] = asyncio.Queue()

    def receive(messages: Sequence[Any]) -> None:
        for message in messages:
            inbox.put_nowait(message)

    def parent_gone() -> None:
        call_in_loop(loop, receive, [None])
        # A model that is loading or predicting cannot be interrupted.
        timer = Timer(EXIT_SECONDS, os._exit, (0,))
        timer.daemon = True
        timer.start()

    def tell(report: PartReport | None = None) -> None:
        channel.send((worker.tally(), report))

    async def tell_progress() -> None:
        while True:
            await asyncio.sleep(_TELL_SECONDS)
            tell()  # whether or not there is progress: one that hangs is told by its silence

    async def run(task: PartTask) -> None:
        try:
            report = await worker.run(task)
        except Exception as error:
            channel.send(RemoteError.of(error, WaysoutError))
        else:
            tell(report)

    def over(task: asyncio.Task[None]) -> None:
        running.discard(task)
        # The parent would wait for ever for what could not be said: there was no memory left.
        if not task.cancelled() and task.exception() is not None:
            os._exit(1)

    # The channel is open before anything else: the parent may end while a model is loaded.
    channel = Channel(ends, lambda said: call_in_loop(loop, receive, said), parent_gone)
    try:
        kind, job = pickle.loads(await inbox.get())
        worker: Worker = kind(job, BackendClient(llm) if llm is not None else None)
        tell()
        running = set[asyncio.Task[None]]()

        def start(doing: Coroutine[Any, Any, None]) -> None:
            running.add(task := asyncio.create_task(doing))
            task.add_done_callback(over)

        start(tell_progress())
        while (message := await inbox.get()) is not None:
            if isinstance(message, str):
                worker.stop(message)
            else:
                start(run(message))
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await worker.aclose()
    except Exception as error:
        channel.send(RemoteError.of(error, WaysoutError))
        await asyncio.Event().wait()  # until the parent has read it


def _ending_if_broken() -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Return a handler that ends the process where the steps of its loop fail again and again.

    The model may have left it without memory or files: the loop would try the same for ever, and
    say so each time. A single step may fail in a library.
    """
    failed = 0

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal failed
        failed += "handle" in context
        if failed > _MOST_FAILED_STEPS:
            os._exit(1)
        loop.default_exception_handler(context)

    return handle
