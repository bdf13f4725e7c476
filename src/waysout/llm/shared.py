"""One LLM for several processes of a machine: a model in memory is loaded once, its batch shared.

`BackendServer` lives where the model does and gives each worker one end of a pair of pipes. In the
worker, `BackendClient` makes a backend of it like any other.
"""

from __future__ import annotations

import asyncio
import itertools
import pickle
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Self

from waysout.errors import LLMError, LLMFailure, LLMUnreachable, WaysoutError
from waysout.llm.base import Backend, Form, Reply, Request, counter, counting

# How long a backend may take to end what it was doing, in seconds.
_PATIENCE = 3.0
_GONE = "the process that asks the LLM is gone; what was answered is kept, and a run can be resumed"

PipeEnds = tuple[Connection, Connection]
"""What a process reads from and what it writes to."""


class BackendServer:
    """Passes the requests of several processes to one backend, which it closes at the end.

    It has an event loop of its own, to which everything belongs that the backend holds.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._clients: list[_Client] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="llm", daemon=True)
        self._thread.start()

    def open(self) -> PipeEnds:
        """Return the pipe ends for one more worker; close them here as soon as it has them."""
        ours, theirs = pipe_pair()
        self._clients.append(_Client(self._backend, self._loop, ours))
        return theirs

    def close(self) -> None:
        """Cancel all requests and close the backend."""
        if self._loop.is_closed():
            return
        for client in self._clients:
            client.channel.close()

        async def end() -> None:
            running = [task for client in self._clients for task in client.end()]
            if running:
                await asyncio.wait(running, timeout=_PATIENCE)
            with suppress(Exception):  # the server ends either way
                async with asyncio.timeout(_PATIENCE):
                    await self._backend.aclose()

        ending = asyncio.run_coroutine_threadsafe(end(), self._loop)
        with suppress(TimeoutError):
            ending.result(2 * _PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def serve_client(backend: Backend, loop: asyncio.AbstractEventLoop) -> PipeEnds:
    """Serve one worker in an event loop that runs already, and return its pipe ends."""
    ours, theirs = pipe_pair()
    _Client(backend, loop, ours)
    return theirs


class _Client:
    """One worker, as the server sees it: its channel, and its requests in flight."""

    def __init__(self, backend: Backend, loop: asyncio.AbstractEventLoop, ends: PipeEnds) -> None:
        self.backend = backend
        self.loop = loop
        self.running: dict[int, asyncio.Task[None]] = {}
        self.over = False
        self.info = _BackendInfo.of(backend)
        self.channel = Channel(
            ends,
            lambda messages: call_in_loop(loop, self._receive, messages),
            lambda: call_in_loop(loop, self.end),
        )
        self.channel.send(self.info)

    def _receive(self, messages: Sequence[tuple[int, Request | None]]) -> None:
        """Start each request; ``None`` in its place cancels it."""
        for number, request in messages:
            if request is not None and not self.over:
                task = self.running[number] = self.loop.create_task(self._answer(number, request))
                task.add_done_callback(partial(self._forget, number))
            elif (running := self.running.get(number)) is not None:
                running.cancel()

    def _forget(self, number: int, _: object) -> None:
        del self.running[number]

    def end(self) -> list[asyncio.Task[None]]:
        """Take no more requests, cancel those in flight, and return their tasks."""
        self.over = True
        running = [*self.running.values()]
        for task in running:
            task.cancel()
        return running

    async def _answer(self, number: int, request: Request) -> None:
        try:
            with counting(lambda: self.channel.send((number, None))):
                outcome: Reply | RemoteError = await self.backend.complete(request)
        except Exception as error:
            outcome = RemoteError.of(error, LLMError)
        except asyncio.CancelledError:
            if not self.over:  # the backend may have cancelled it, and the worker is waiting
                failure = LLMFailure("the request was cancelled")
                self.channel.send((number, RemoteError.of(failure, LLMError)))
            raise
        # A model may tell what it can do only when it is loaded, or was asked.
        if (info := _BackendInfo.of(self.backend)) != self.info:
            self.info = info
            self.channel.send(info)
        try:
            self.channel.send((number, outcome))
        except Exception as error:  # it cannot be pickled, and the worker is waiting
            self.channel.send((number, RemoteError.of(error, LLMError)))


class BackendClient(Backend):
    """The server's LLM, asked from another process; in any number of event loops."""

    def __init__(self, ends: PipeEnds) -> None:
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[Reply]] = {}
        self._counts: dict[int, Callable[[], None]] = {}
        self._gone = False
        self._described = threading.Event()
        self._channel = Channel(ends, self._receive, self._lose)
        self._described.wait()
        if self._gone:
            raise LLMUnreachable(_GONE)

    async def complete(self, request: Request) -> Reply:
        """Have the server answer one request; a cancelled one is cancelled there, too."""
        number = next(self._numbers)
        future = self._waiting[number] = Future()
        self._counts[number] = counter()  # until the server's last word, also of a cancelled one
        try:
            if self._gone:
                raise LLMUnreachable(_GONE)
            self._channel.send((number, request))
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._channel.send((number, None))
            raise
        finally:
            del self._waiting[number]

    async def aclose(self) -> None:
        """Disconnect from the server, for good."""
        self._channel.close()

    # In the thread that listens

    def _receive(
        self, messages: Sequence[_BackendInfo | tuple[int, Reply | RemoteError | None]]
    ) -> None:
        for message in messages:
            if isinstance(message, _BackendInfo):
                self.name, self.form, self.parallel = message.name, message.form, message.parallel
                self.notes_sent = message.notes_sent
                self._described.set()
            else:
                self._settle(*message)

    def _lose(self) -> None:
        self._gone = True
        self._described.set()
        for number in [*self._waiting]:
            self._settle(number, RemoteError(LLMUnreachable, (_GONE,)))
        self._counts.clear()

    def _settle(self, number: int, outcome: Reply | RemoteError | None) -> None:
        """Note what the server says of a request: that it was sent (``None``), or how it ended."""
        if outcome is None:
            # A run that is closed or cannot be written must not end this thread: whoever files the
            # reply finds out.
            with suppress(WaysoutError):
                self._counts[number]()
            return
        self._counts.pop(number, None)
        future = self._waiting.get(number) or Future()  # it may be gone already
        with suppress(InvalidStateError):  # it was cancelled
            if isinstance(outcome, RemoteError):
                future.set_exception(outcome.restore())
            else:
                future.set_result(outcome)


@dataclass(frozen=True, slots=True)
class _BackendInfo:
    """How a backend describes itself."""

    name: str
    form: Form
    parallel: int
    notes_sent: bool

    @classmethod
    def of(cls, backend: Backend) -> Self:
        return cls(backend.name, backend.form, backend.parallel, backend.notes_sent)


# Between processes ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RemoteError:
    """An error on its way to another process: of our own classes, with its attributes.

    Not every error can be pickled: to make it again takes the arguments of its constructor.
    Attributes that cannot be pickled stay behind.
    """

    kind: type[WaysoutError]
    args: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, error: Exception, otherwise: type[WaysoutError]) -> Self:
        """Take an error apart; one that is not ours becomes ``otherwise``."""
        if not isinstance(error, WaysoutError):
            return cls(otherwise, (f"{type(error).__name__}: {error}",))
        # The other process may not have the module of a class that is not ours.
        kind = next(kind for kind in type(error).__mro__ if kind.__module__ == "waysout.errors")
        args = tuple(arg if _can_travel(arg) else str(arg) for arg in error.args)
        return cls(kind, args, {k: v for k, v in vars(error).items() if _can_travel(v)})

    def restore(self) -> WaysoutError:
        """Return the error."""
        error = self.kind.__new__(self.kind, *self.args)
        vars(error).update(self.attributes)
        return error


def _can_travel(value: object) -> bool:
    """Whether a value can be pickled and unpickled; many can be pickled only."""
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:  # each class fails in a way of its own
        return False
    return True


def pipe_pair() -> tuple[PipeEnds, PipeEnds]:
    """Return the ends of a pair of pipes, one for each of two processes."""
    (a_reads, b_writes), (b_reads, a_writes) = Pipe(duplex=False), Pipe(duplex=False)
    return (a_reads, a_writes), (b_reads, b_writes)


def call_in_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *args: Any) -> None:
    """Call something in an event loop, from another thread."""
    with suppress(RuntimeError):  # the loop is closed, and nothing waits any more
        loop.call_soon_threadsafe(call, *args)


class Channel:
    """Messages to and from another process of ours, with a thread for each direction.

    ``receive`` is called with the messages of the other side, in order and several at once;
    ``closed``, when it has closed or died. Then this side closes, too.
    """

    # Pickle runs whatever it is told to. What is received here was written by our own processes:
    # the pipes have no name, and no other process can open them.

    def __init__(
        self, ends: PipeEnds, receive: Callable[[list[Any]], None], closed: Callable[[], None]
    ) -> None:
        self._reads, self._writes = ends
        self._receive, self._closed = receive, closed
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        for work in (self._write, self._read):
            threading.Thread(target=work, name="channel", daemon=True).start()

    def send(self, message: object) -> None:
        """Send a message, without waiting; whether the other side still reads is not known."""
        self._outbox.put(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def close(self) -> None:
        """Send no more; earlier messages are still delivered."""
        self._outbox.put(None)

    def _write(self) -> None:
        # Only this thread uses its end, so that none closes it while another writes.
        with self._writes, suppress(OSError):
            last: bytes | None = b""
            while last is not None:
                # Take all messages that are there: sending is what takes time.
                batch = [self._outbox.get()]
                with suppress(queue.Empty):
                    while batch[-1] is not None:
                        batch.append(self._outbox.get_nowait())
                last = batch[-1]
                if messages := [message for message in batch if message is not None]:
                    self._writes.send(messages)

    def _read(self) -> None:
        try:
            with self._reads, suppress(EOFError, OSError):
                while True:
                    self._receive([pickle.loads(message) for message in self._reads.recv()])
        finally:
            self._closed()
            self.close()
