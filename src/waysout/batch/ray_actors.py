"""What the actors of a Ray executor do, each in a process of its own on some node."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from waysout.batch.job import BatchJob, BatchTally, PartReport, PartTask
from waysout.batch.worker import Worker
from waysout.errors import LLMError, LLMFailure, LLMUnreachable, UnavailableError, WaysoutError
from waysout.llm.base import Backend, Form, Reply, Request
from waysout.llm.connect import connect
from waysout.llm.shared import RemoteError


class WorkerActor:
    """What an actor does: runs parts on its worker, several at once."""

    _worker: Worker

    async def begin(self, given: tuple[Any, type[Worker], Any]) -> RemoteError | None:
        """Make the worker; an error that keeps it from being made is the answer.

        Given are a reference to the job, the class of worker, and the actor that holds the LLM.
        """
        sent, worker, llm = given
        try:
            job: BatchJob = await sent
        except Exception as error:
            return RemoteError(UnavailableError, (cannot_begin(last_line(error)),))
        try:
            backend = await ActorBackend.of(llm) if llm is not None else None
            self._worker = worker(job, backend)
        except Exception as error:
            return RemoteError.of(error, WaysoutError)
        return None

    async def run(self, task: PartTask) -> tuple[PartReport, BatchTally] | RemoteError:
        """Do a part; the answer says, too, how far the others are by then."""
        try:
            report = await self._worker.run(task)
        except Exception as error:
            return RemoteError.of(error, WaysoutError)
        return report, self._worker.tally()

    async def tally(self) -> BatchTally:
        """Return the people of parts under way who have their result."""
        return self._worker.tally()

    async def stop(self, reason: str) -> None:
        """End every search with what it has."""
        self._worker.stop(reason)


class HeldLLM:
    """An actor that holds an LLM which lives in memory, for all workers."""

    def __init__(self, llm: str) -> None:
        self._name = llm
        self._backend: Backend | None = None

    async def about(self) -> tuple[str, Form, int] | RemoteError:
        """Connect, and say what the backend says of itself."""
        try:
            self._backend = self._backend or connect(self._name)
        except Exception as error:
            return RemoteError.of(error, LLMError)
        return self._backend.name, self._backend.form, self._backend.parallel

    async def complete(self, request: Request) -> Reply | RemoteError:
        """Answer one request; an error is an answer, too, and keeps its class."""
        try:
            self._backend = self._backend or connect(self._name)
            return await self._backend.complete(request)
        except Exception as error:
            return RemoteError.of(error, LLMError)

    async def aclose(self) -> None:
        """Let go of what the backend holds."""
        if self._backend is not None:
            await self._backend.aclose()


class ActorBackend(Backend):
    """An LLM that another actor holds; see `HeldLLM`."""

    def __init__(self, llm: Any, name: str, form: Form, parallel: int) -> None:
        self._llm = llm
        self.name, self.form, self.parallel = name, form, parallel

    @classmethod
    async def of(cls, llm: Any) -> Self:
        """Return the backend that an actor holds, as it describes itself."""
        return cls(llm, *await _answer(llm.about.remote()))

    async def complete(self, request: Request) -> Reply:
        """Have the actor answer one request; a cancelled one is cancelled there, too."""
        reply: Reply = await _answer(self._llm.complete.remote(request))
        return reply


async def _answer(ref: Any) -> Any:
    """Wait for what the actor of an LLM says; an actor that is gone is an LLM out of reach."""
    import ray
    from ray.exceptions import ActorUnavailableError, RayError

    try:
        said = await ref
    except asyncio.CancelledError:
        ray.cancel(ref)
        raise
    except ActorUnavailableError:
        raise LLMFailure("the actor of the LLM died, and is being started again") from None
    except RayError as error:
        raise LLMUnreachable(f"the actor of the LLM is gone: {last_line(error)}") from None
    if isinstance(said, RemoteError):
        raise said.restore()
    return said


def last_line(error: object) -> str:
    """Return the end of what an error of Ray says: the rest is how it came there."""
    return str(error).strip().rpartition("\n")[2].strip()


def cannot_begin(why: str) -> str:
    """Say that a worker cannot begin where it is."""
    return (
        f"a worker cannot begin on its node: {why}. Waysout must be installed on every node of the "
        "cluster, in this version and with what the model needs"
    )
