"""Workers as Ray actors, on this machine or on a cluster: one that dies is restarted.

Waysout itself must be installed on every node, in the version of the driver and for the same
Python, with the packages that the model needs. The model, the card and the folder of results must
be there under the same names (on a disk that all nodes share), and keys for an LLM in the nodes'
own environments. An instance that is started here uses this very Python and this environment.

`RayExecutor` and `_ActorHandle` live in the driver, `WorkerActor` and `LLMActor` on the nodes.
Ray Data is not used: its LLM processor awaits a batch call by call, and the calls of a search
depend on each other.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import platform
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self

from waysout.batch.executor import Executor, WorkerHandle
from waysout.batch.job import BatchJob, BatchTally, PartReport, PartTask
from waysout.batch.worker import Worker
from waysout.errors import (
    InputError,
    LLMError,
    LLMFailure,
    LLMUnreachable,
    MissingExtra,
    UnavailableError,
    WaysoutError,
    shown,
)
from waysout.llm.base import Backend, Form, Reply, Request
from waysout.llm.connect import connect
from waysout.llm.shared import RemoteError
from waysout.run.machine import ONE_THREAD

# A call to an actor that is being restarted fails, unless it may be tried again.
_UNTIL_IT_IS_THERE = -1
# How often a worker is asked for its progress, how long the first one may take to start (a cluster
# may have to start a machine), and how long anything else may take, in seconds.
_ASK_SECONDS = 1.0
_BEGIN_SECONDS = 600.0
_PATIENCE = 5.0
# Actors wait for an LLM most of the time: several share a core, and leave room for others.
_SHARE = 0.5
# Only parts, reports and one job go through Ray's object store.
_STORE_BYTES = 256 * 2**20
# Ray reads these when it is imported. It sends no usage statistics, starts no process before it is
# needed, and does not print that a worker died: the driver reports what matters.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
}

_log = logging.getLogger(__name__)


class RayExecutor(Executor["_ActorHandle"]):
    """Worker actors, each with its own copy of the model.

    ``address`` is that of a cluster; without one, and without ``RAY_ADDRESS``, a small instance is
    started on this machine. ``backend`` names an LLM in memory: one more actor holds it, on a GPU
    if there is one. Without it each worker connects to the LLM of the job itself.
    """

    def __init__(
        self,
        job: BatchJob,
        *,
        workers: int,
        part_rows: int,
        address: str = "",
        backend: str | None = None,
        worker: type[Worker] = Worker,
    ) -> None:
        super().__init__(job, workers, part_rows)
        self._llm: Any = None
        self._last_up = time.monotonic()
        self._ray, self._is_ours = connect_ray(address)
        try:
            self._start(job, worker, backend)
        except BaseException:
            self.close()
            raise

    def _start(self, job: BatchJob, worker: type[Worker], backend: str | None) -> None:
        resources = self._ray.cluster_resources()
        if backend is not None:
            llm_actor = self._ray.remote(
                num_cpus=0,
                num_gpus=1 if resources.get("GPU", 0) >= 1 else 0,
                max_restarts=3,
                max_concurrency=self._size * job.trees + 10,
                enable_task_events=False,
            )(LLMActor)
            self._llm = llm_actor.remote(backend)
        nodes = sum(1 for node in self._ray.nodes() if node["Alive"])
        share = fitting_share(self._size, resources.get("CPU", 0.0), nodes)
        if share < _SHARE:
            _log.warning(
                "%d workers share too few CPUs: each asks Ray for %g of one", self._size, share
            )
        actor = self._ray.remote(
            num_cpus=share,
            max_restarts=-1,
            max_task_retries=0,
            enable_task_events=False,  # otherwise the cluster records every call
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": ONE_THREAD},
        )(WorkerActor)
        try:
            job_ref = self._ray.put(job)  # sent once to each node
        except Exception as error:  # every class that cannot be pickled raises another error
            said = str(error).partition("\n")[0]
            raise InputError(f"the job cannot be sent to other processes: {said}") from error
        given = (job_ref, worker, self._llm)
        for _ in range(self._size):
            self._workers.append(_ActorHandle(self._ray, actor.remote(), given))

    def tally(self) -> BatchTally:
        """Return the people done in parts under way, as last heard."""
        for worker in self._workers:
            worker.ask_progress()
        return super().tally()

    def close(self) -> None:
        """End all actors, and Ray if it was started here; a cluster stays up."""
        if not self._ray.is_initialized():
            return
        if self._llm is not None:
            with suppress(self._ray.exceptions.RayError):  # it is killed either way
                self._ray.get(self._llm.aclose.remote(), timeout=_PATIENCE)
        for actor in (self._llm, *(worker.actor for worker in self._workers)):
            if actor is not None:
                self._ray.kill(actor)
        self._workers, self._llm = [], None
        if self._is_ours:
            self._ray.shutdown()

    def _available(self) -> Sequence[_ActorHandle]:
        return [worker for worker in self._workers if worker.is_up]

    def _poll(self, seconds: float) -> None:
        pending = {ref: worker for worker in self._workers for ref in worker.pending}
        if not pending:
            time.sleep(seconds)
            return
        self._ray.wait([*pending], timeout=min(seconds, _ASK_SECONDS))
        ready, _ = self._ray.wait([*pending], num_returns=len(pending), timeout=0)
        for ref in ready:
            if ref in pending[ref].pending:  # those of a worker that died are forgotten
                self._handle(pending[ref], ref)
        now = time.monotonic()
        if self._available():
            self._last_up = now
        elif now - self._last_up > _BEGIN_SECONDS:
            free = self._ray.available_resources()
            raise UnavailableError(
                f"no worker has started on Ray in {_BEGIN_SECONDS:.0f} s: {free.get('CPU', 0):g} "
                f"CPUs and {free.get('GPU', 0):g} GPUs are free. See `ray status` for what uses "
                "the others"
            )
        self._assign()

    def _handle(self, worker: _ActorHandle, ref: Any) -> None:
        """Handle a worker's answer: that it has started, a report, or that it died."""
        errors = self._ray.exceptions
        try:
            answer = self._ray.get(ref)
        except errors.RayTaskError as error:
            raise WaysoutError(f"a worker failed: {error.cause}") from error
        except errors.RayError as error:
            if getattr(error, "actor_init_failed", False):
                raise UnavailableError(cannot_start(last_line(error))) from None
            self._lose(worker, last_line(error))
            self._replace(worker)
            return
        if isinstance(answer, RemoteError):
            raise answer.restore()
        part = worker.pending.pop(ref)
        if part is None and not worker.is_there:
            worker.load()
            return
        self._deaths = 0
        if part is None:
            worker.is_up = True
        else:
            report, tally = answer
            worker.heard(tally)
            self._take(worker, report)

    def _replace(self, worker: _ActorHandle) -> str:
        """Have Ray start an actor afresh."""
        worker.restart()
        return "silent"


class _ActorHandle(WorkerHandle):
    """A worker actor, as the driver sees it; Ray restarts it when it dies."""

    def __init__(self, ray: Any, actor: Any, given: tuple[Any, ...]) -> None:
        super().__init__()
        self.actor = actor
        self.pending: dict[Any, int | None] = {}
        """The answers to wait for, each with its part; ``None`` is for one that is starting."""
        self.is_there = False
        """Whether its process runs, and may load the model."""
        self._ray = ray
        self._given = given
        self._asked: Any = None
        self._ask_at = 0.0
        self._begin()

    def _begin(self) -> None:
        # Alone, so that a process which a busy node is slow to start is not taken for one that died
        # of its model, and killed once more.
        wait = self.actor.wait.options(max_task_retries=_UNTIL_IT_IS_THERE)
        self.pending = {wait.remote(): None}
        self._asked, self.is_there, self.is_up = None, False, False
        self.is_worn, self.silent = False, 0.0

    def load(self) -> None:
        """Have it load the model."""
        self.is_there = True
        # In a tuple the job stays a reference, so an error in reading it there is the worker's.
        self.pending[self.actor.begin.remote(self._given)] = None

    def restart(self) -> None:
        """Start it afresh: a worker that was only unreachable must not carry on."""
        self._ray.kill(self.actor, no_restart=False)
        self._begin()

    def send(self, task: PartTask) -> None:
        """Send it a part."""
        self.pending[self.actor.run.remote(task)] = task.part

    def stop(self, reason: str) -> None:
        """Tell it to stop every search."""
        self.actor.stop.remote(reason)

    def heard(self, tally: BatchTally) -> None:
        """Take note of its progress."""
        self.tally, self._asked, self.silent = tally, None, 0.0

    def ask_progress(self) -> None:
        """Ask for its tally now and then, and take the answer when it is there."""
        if self._asked is not None and self._ray.wait([self._asked], timeout=0)[0]:
            with suppress(self._ray.exceptions.RayError):  # its death is noticed elsewhere
                self.heard(self._ray.get(self._asked))
            self._asked = None
        if self.parts and self._asked is None and time.monotonic() >= self._ask_at:
            self._asked = self.actor.tally.remote()
            self._ask_at = time.monotonic() + _ASK_SECONDS


# Within an actor -------------------------------------------------------------------------------


class WorkerActor:
    """Runs parts on its worker, several at once."""

    _worker: Worker

    async def wait(self) -> None:
        """Return as soon as the actor is there."""

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


# Ray ---------------------------------------------------------------------------------------------


def connect_ray(address: str) -> tuple[Any, bool]:
    """Return Ray, connected to a cluster or a small instance, and whether this call connected."""
    os.environ.update(_SETTINGS)
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise MissingExtra("ray", "ray") from None
    if ray.is_initialized():
        return ray, False
    place = address or os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if place == "local":  # a plain ray.init() would join whatever runs on this machine
        options |= {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
    else:
        check_reachable(place)
    try:
        with _same_handlers():
            ray.init(address=place, **options)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise UnavailableError(
            f"Ray ({shown(address or 'here')}) cannot be used: {error}. Does the cluster run the "
            f"same Ray ({ray.__version__}) and Python ({platform.python_version()}), and does it "
            "need a token (RAY_AUTH_MODE=token)?"
        ) from error
    return ray, True


def check_reachable(address: str) -> None:
    """Raise `UnavailableError` if nothing listens there: Ray itself would wait for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise UnavailableError(
            f"nothing answers at {shown(address)} ({error}): start Ray there with "
            f"`ray start --head --port {port}`, or give the address of a running cluster"
        ) from None


@contextmanager
def _same_handlers() -> Iterator[None]:
    """Keep the handler of SIGTERM, which Ray replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def fitting_share(workers: int, cpus: float, nodes: int) -> float:
    """Return the share of a CPU that lets all workers start, however CPUs are spread over nodes.

    A node may leave a rest smaller than a share unused. Without any CPU (yet) it is the usual one.

    >>> fitting_share(2, 2.0, 1), fitting_share(9, 2.0, 1), fitting_share(4, 0.0, 1)
    (0.5, 0.2, 0.5)
    """
    fits = int(1e4 * cpus / (workers + nodes)) / 1e4  # Ray counts in ten-thousandths
    return min(_SHARE, fits) if cpus else _SHARE
