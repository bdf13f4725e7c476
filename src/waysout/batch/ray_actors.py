"""The actors of a Ray executor, each in a process of its own on some node."""

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
    """Runs parts on its worker, several at once."""

    _worker: Worker

    async def begin(self, given: tuple[Any, type[Worker], Any]) -> RemoteError | None:
        """Make the worker; return the error that prevents it.

        ``given`` holds a reference to the job, the class of worker, and the actor of the LLM.
        """
        job_ref, worker, llm = given
        try:
            job: BatchJob = await job_ref
        except Exception as error:
            return RemoteError(UnavailableError, (cannot_start(last_line(error)),))
        try:
            backend = await ActorBackend.of(llm) if llm is not None else None
            self._worker = worker(job, backend)
        except Exception as error:
            return RemoteError.of(error, WaysoutError)
        return None

    async def run(self, task: PartTask) -> tuple[PartReport, BatchTally] | RemoteError:
        """Do a part; return its report, and the progress of the other parts."""
        try:
            report = await self._worker.run(task)
        except Exception as error:
            return RemoteError.of(error, WaysoutError)
        return report, self._worker.tally()

    async def tally(self) -> BatchTally:
        """Return the people done in parts under way."""
        return self._worker.tally()

    async def stop(self, reason: str) -> None:
        """Stop every search with what it has found."""
        self._worker.stop(reason)


class LLMActor:
    """Holds an LLM in memory for all workers."""

    def __init__(self, llm: str) -> None:
        self._name = llm
        self._backend: Backend | None = None

    async def about(self) -> tuple[str, Form, int] | RemoteError:
        """Connect, and return the backend's name, form and number of parallel requests."""
        try:
            self._backend = self._backend or connect(self._name)
        except Exception as error:
            return RemoteError.of(error, LLMError)
        return self._backend.name, self._backend.form, self._backend.parallel

    async def complete(self, request: Request) -> Reply | RemoteError:
        """Return the reply, or the error with its class."""
        try:
            self._backend = self._backend or connect(self._name)
            return await self._backend.complete(request)
        except Exception as error:
            return RemoteError.of(error, LLMError)

    async def aclose(self) -> None:
        """Close the backend."""
        if self._backend is not None:
            await self._backend.aclose()


class ActorBackend(Backend):
    """The LLM of an `LLMActor`, asked from another actor."""

    def __init__(self, llm: Any, name: str, form: Form, parallel: int) -> None:
        self._llm = llm
        self.name, self.form, self.parallel = name, form, parallel

    @classmethod
    async def of(cls, llm: Any) -> Self:
        """Return the backend that an actor holds."""
        return cls(llm, *await _answer(llm.about.remote()))

    async def complete(self, request: Request) -> Reply:
        """Return the actor's reply; a cancelled request is cancelled there as well."""
        reply: Reply = await _answer(self._llm.complete.remote(request))
        return reply


async def _answer(ref: Any) -> Any:
    """Wait for an answer of the LLM's actor; if it is gone the LLM is unreachable."""
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
    """Return the last line of an error of Ray: the rest is its traceback."""
    return str(error).strip().rpartition("\n")[2].strip()


def cannot_start(why: str) -> str:
    """Return the message for a worker that cannot start on its node."""
    return (
        f"a worker cannot start on its node: {why}. Waysout must be installed on every node of the "
        "cluster, in this version and with what the model needs"
    )
