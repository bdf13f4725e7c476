"""One LLM for several processes of a machine: a model in memory is loaded once, its batch shared.

The hub lives where the model does and hands each worker the ends of a pair of pipes. In the worker
these are a backend like any other.
"""

from __future__ import annotations

import asyncio
import itertools
import pickle
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Self

from waysout.errors import LLMError, LLMFailure, LLMUnreachable, WaysoutError
from waysout.llm.base import Backend, Form, Reply, Request

# How long a backend may take to end what it was doing, in seconds.
_PATIENCE = 3.0
_GONE = "the process that asks the LLM is gone; what was answered is kept, and a run can be resumed"

Ends = tuple[Connection, Connection]
"""What a process reads from and what it writes to."""


class BackendServer:
    """Puts the requests of several processes to one backend, which it lets go at the end.

    It has an event loop of its own, to which all belongs that the backend holds.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._desks: list[_Desk] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="hub", daemon=True)
        self._thread.start()

    def open(self) -> Ends:
        """Return the ends for one more worker; close them here as soon as it has them."""
        ours, theirs = pipes()
        self._desks.append(_Desk(self._backend, self._loop, ours))
        return theirs

    def close(self) -> None:
        """Cancel what is under way, and let everybody go."""
        if self._loop.is_closed():
            return
        for desk in self._desks:
            desk.line.close()
        ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        with suppress(TimeoutError):
            ending.result(2 * _PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        running = [task for desk in self._desks for task in desk.end()]
        if running:
            await asyncio.wait(running, timeout=_PATIENCE)
        with suppress(Exception):  # it is let go either way
            async with asyncio.timeout(_PATIENCE):
                await self._backend.aclose()


class _Desk:
    """Where one worker's requests come in."""

    def __init__(self, backend: Backend, loop: asyncio.AbstractEventLoop, ends: Ends) -> None:
        self.backend = backend
        self.loop = loop
        self.running: dict[int, asyncio.Task[None]] = {}
        self.over = False
        self.about = _About.of(backend)
        self.line = Channel(
            ends,
            lambda asked: soon(loop, self._take, asked),
            lambda: soon(loop, self.end),
        )
        self.line.say(self.about)

    def _take(self, asked: Sequence[tuple[int, Request | None]]) -> None:
        for number, request in asked:
            if request is not None and not self.over:
                self._begin(number, request)
            elif (task := self.running.get(number)) is not None:
                task.cancel()

    def _begin(self, number: int, request: Request) -> None:
        task = self.running[number] = self.loop.create_task(self._answer(number, request))
        task.add_done_callback(lambda _: self.running.pop(number))

    def end(self) -> list[asyncio.Task[None]]:
        """Take no more, cancel all that is under way, and return it."""
        self.over = True
        running = [*self.running.values()]
        for task in running:
            task.cancel()
        return running

    async def _answer(self, number: int, request: Request) -> None:
        try:
            outcome: Reply | Raised = await self.backend.complete(request)
        except Exception as error:
            outcome = Raised.of(error, LLMError)
        except asyncio.CancelledError:
            if not self.over:  # it may be the backend that has cancelled it: somebody is waiting
                self._tell(number, Raised.of(LLMFailure("the request was cancelled"), LLMError))
            raise
        # A model may tell what it can do only when it is loaded, or was asked.
        if (about := _About.of(self.backend)) != self.about:
            self.about = about
            self.line.say(about)
        self._tell(number, outcome)

    def _tell(self, number: int, outcome: Reply | Raised) -> None:
        try:
            self.line.say((number, outcome))
        except Exception as error:  # it cannot be pickled, and somebody is waiting
            self.line.say((number, Raised.of(error, LLMError)))


class BackendClient(Backend):
    """The hub's LLM, asked from another process; in any number of event loops."""

    def __init__(self, ends: Ends) -> None:
        self._numbers = itertools.count()
        self._waiting: dict[int, _Waiting] = {}
        self._gone = False
        self._told = threading.Event()
        self._line = Channel(ends, self._hear, self._lose)
        self._told.wait()
        if self._gone:
            raise LLMUnreachable(_GONE)

    async def complete(self, request: Request) -> Reply:
        """Have the hub answer one request; a cancelled one is cancelled there, too."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply | Raised] = loop.create_future()
        number = next(self._numbers)
        self._waiting[number] = loop, future
        try:
            if self._gone:
                raise LLMUnreachable(_GONE)
            self._line.say((number, request))
            outcome = await future
        except asyncio.CancelledError:
            self._line.say((number, None))
            raise
        finally:
            del self._waiting[number]
        if isinstance(outcome, Raised):
            raise outcome.again()
        return outcome

    async def aclose(self) -> None:
        """Leave the hub, for good."""
        self._line.close()

    # In the thread that listens

    def _hear(self, said: Sequence[_About | tuple[int, Reply | Raised]]) -> None:
        for item in said:
            if isinstance(item, _About):
                self.name, self.form, self.parallel = item.name, item.form, item.parallel
                self._told.set()
            else:
                self._settle(*item)

    def _lose(self) -> None:
        self._gone = True
        self._told.set()
        for number in [*self._waiting]:
            self._settle(number, Raised(LLMUnreachable, (_GONE,)))

    def _settle(self, number: int, outcome: Reply | Raised) -> None:
        if (waiting := self._waiting.get(number)) is not None:
            loop, future = waiting
            soon(loop, _set, future, outcome)


_Waiting = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Reply | Raised]"]


def _set(future: asyncio.Future[Any], outcome: object) -> None:
    if not future.done():
        future.set_result(outcome)


@dataclass(frozen=True, slots=True)
class _About:
    """What a backend says of itself."""

    name: str
    form: Form
    parallel: int

    @classmethod
    def of(cls, backend: Backend) -> Self:
        return cls(backend.name, backend.form, backend.parallel)


# Between processes ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Raised:
    """An error on its way to another process: of our own classes, with all that it knows.

    Not every error can be pickled: to make it again takes what its constructor was given. What
    cannot travel stays behind.
    """

    kind: type[WaysoutError]
    args: tuple[Any, ...]
    known: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, error: Exception, otherwise: type[WaysoutError]) -> Self:
        """Take an error; one that is not ours becomes one that is."""
        if not isinstance(error, WaysoutError):
            return cls(otherwise, (f"{type(error).__name__}: {error}",))
        # The other process may not have the module of a class that is not ours.
        kind = next(kind for kind in type(error).__mro__ if kind.__module__ == "waysout.errors")
        args = tuple(arg if _travels(arg) else str(arg) for arg in error.args)
        return cls(kind, args, {k: v for k, v in vars(error).items() if _travels(v)})

    def again(self) -> WaysoutError:
        """Return the error."""
        error = self.kind.__new__(self.kind, *self.args)
        vars(error).update(self.known)
        return error


def _travels(value: object) -> bool:
    """Whether something can be pickled and made again; much can be pickled only."""
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:  # each class has a way of its own to fail
        return False
    return True


def pipes() -> tuple[Ends, Ends]:
    """Return the ends of a pair of pipes, one for each of two processes."""
    (a_reads, b_writes), (b_reads, a_writes) = Pipe(duplex=False), Pipe(duplex=False)
    return (a_reads, a_writes), (b_reads, b_writes)


def soon(loop: asyncio.AbstractEventLoop, do: Callable[..., object], *what: Any) -> None:
    """Have something done in a loop, from another thread."""
    with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
        loop.call_soon_threadsafe(do, *what)


class Channel:
    """A way to another process of ours and back, with a thread for each: nobody here waits.

    ``hear`` is told what the other one says, in order and several things at once; ``lost``, that it
    has closed or died. Whoever is left by the other closes, too.
    """

    # Pickle runs whatever it is told to. What comes through here was written by our own processes:
    # the pipes have no name, and nobody else can open them.

    def __init__(
        self, ends: Ends, hear: Callable[[list[Any]], None], lost: Callable[[], None]
    ) -> None:
        self._reads, self._writes = ends
        self._hear, self._lost = hear, lost
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        for work in (self._speak, self._listen):
            threading.Thread(target=work, name="line", daemon=True).start()

    def say(self, item: object) -> None:
        """Tell the other one something; whether it is still there is not known."""
        self._outbox.put(pickle.dumps(item, pickle.HIGHEST_PROTOCOL))

    def close(self) -> None:
        """Say no more; what was said is still sent."""
        self._outbox.put(None)

    def _speak(self) -> None:
        # Only this thread has to do with its end, so that none closes it under the other's hands.
        with self._writes, suppress(OSError):
            while (said := self._next()) is not None:
                self._writes.send(said)

    def _next(self) -> list[bytes] | None:
        """Wait for something to say, and take all that is there: sending is what takes time."""
        items = [self._outbox.get()]
        with suppress(queue.Empty):
            while items[-1] is not None:
                items.append(self._outbox.get_nowait())
        if items[0] is None:
            return None
        if items[-1] is None:
            self.close()  # again, for the next time
        return [item for item in items if item is not None]

    def _listen(self) -> None:
        try:
            with self._reads, suppress(EOFError, OSError):
                while True:
                    self._hear([pickle.loads(item) for item in self._reads.recv()])
        finally:
            self._lost()
            self.close()
