"""Ray actors as workers, on this machine or on a cluster; if one dies, the others go on.

Waysout itself must be installed on every node, in the version of the driver and for the same
Python, with the packages that the model needs; the model, the card and the folder of results lie
there under the same names (on a disk that all nodes share), and keys for an LLM are in the nodes'
own environments. An instance that is started here uses this very Python and this environment.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from waysout.batch.job import BatchJob, BatchTally, PartReport, PartTask, parts_at_once
from waysout.batch.ray_actors import HeldLLM, WorkerActor, cannot_begin, last_line
from waysout.batch.worker import Worker
from waysout.errors import InputError, MissingExtra, UnavailableError, WaysoutError, shown
from waysout.llm.shared import RemoteError

# A part that kills its workers does so a few times until it is known whose row it is.
_DEATHS_IN_A_ROW = 5
# A call to an actor that is being restarted fails, unless it may be tried again.
_BEGIN_TRIES = 3
# How often a worker is asked how far it is, how long a first one may take to come up (a cluster may
# have to start a machine), and how long anybody else is waited for, in seconds.
_ASK_SECONDS = 1.0
_BEGIN_SECONDS = 600.0
_PATIENCE = 5.0
# Actors wait for an LLM most of the time: several share a core, and leave room for others.
_SHARE = 0.5
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# What we pass around is small: parts, reports and one job.
_STORE_BYTES = 256 * 2**20
# Ray reads these when it is loaded. It reports to nobody, starts no process before it is needed,
# and does not write on our standard output that a worker died: we say what there is to say.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
}

_log = logging.getLogger(__name__)


class RayExecutor:
    """So many actors, each with a model of its own; see `Executor`.

    ``address`` is that of a cluster; without one, and without ``RAY_ADDRESS``, a small instance is
    started on this machine. ``backend`` names an LLM that lives in memory: one more actor holds it,
    on a GPU where there is one. Without it each worker connects to the LLM of the job itself.
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
        self._most = parts_at_once(job.trees, part_rows)
        self._waiting: deque[PartTask] = deque()
        self._ended: list[PartReport] = []
        self._seats: list[_Seat] = []
        self._llm: Any = None
        self._deaths = 0
        self._stopped = ""
        self._last_up = time.monotonic()
        self._ray, self._is_ours = _connected(address)
        try:
            if backend is not None:
                self._llm = self._hold(backend, workers * job.trees)
            self._seats = self._seated(job, worker, workers)
        except BaseException:
            self.close()
            raise

    @property
    def room(self) -> int:
        """How many more parts may be handed in now, so that nobody waits for work."""
        under_way = sum(len(seat.parts) for seat in self._seats)
        return len(self._seats) * self._most - under_way - len(self._waiting)

    def submit(self, task: PartTask) -> None:
        """Hand a part in."""
        if self._stopped:
            self._ended.append(PartReport(task.part, stopped=self._stopped))
            return
        self._waiting.append(task)
        self._deal()

    def wait(self, seconds: float) -> Sequence[PartReport]:
        """Return what has ended, waiting for it so long at most.

        Raises the error of a worker that cannot begin, and gives up where they die again and again
        or none comes up.
        """
        until = time.monotonic() + seconds
        while not self._ended and (left := until - time.monotonic()) > 0:
            self._look(left)
        self._look(0)
        reports, self._ended = self._ended, []
        return reports

    def tally(self) -> BatchTally:
        """Return what is known by now of the people in parts under way; it may be a little old."""
        for seat in self._seats:
            seat.ask()
        return sum((seat.tally for seat in self._seats), BatchTally())

    def stop(self, reason: str) -> None:
        """End every search with what it has; parts that nobody has begun come back at once."""
        self._stopped = reason
        self._ended += (PartReport(task.part, stopped=reason) for task in self._waiting)
        self._waiting.clear()
        for seat in self._seats:
            if seat.is_up:
                seat.actor.stop.remote(reason)

    def close(self) -> None:
        """Let all actors go, and Ray where we have connected to it; a cluster stays up."""
        if not self._ray.is_initialized():
            return
        if self._llm is not None:
            with suppress(self._ray.exceptions.RayError):  # it is let go either way
                self._ray.get(self._llm.aclose.remote(), timeout=_PATIENCE)
        for actor in (self._llm, *(seat.actor for seat in self._seats)):
            if actor is not None:
                self._ray.kill(actor)
        self._seats, self._llm = [], None
        if self._is_ours:
            self._ray.shutdown()

    # Who is there ------------------------------------------------------------------------------

    def _hold(self, llm: str, requests: int) -> Any:
        gpu = 1 if self._ray.cluster_resources().get("GPU", 0) >= 1 else 0
        held = self._ray.remote(
            num_cpus=0,
            num_gpus=gpu,
            max_restarts=3,
            max_concurrency=requests + 10,
            enable_task_events=False,
        )(HeldLLM)
        return held.remote(llm)

    def _seated(self, job: BatchJob, worker: type[Worker], workers: int) -> list[_Seat]:
        """Have the actors started: they come back when they die, and what they did does not."""
        share = _cpu_share(self._ray, workers)
        actor = self._ray.remote(
            num_cpus=share,
            max_restarts=-1,
            max_task_retries=0,
            enable_task_events=False,  # of each call, the cluster would keep a record
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": _ONE_THREAD},
        )(WorkerActor)
        sent = self._sent(job)
        given = (sent, worker, self._llm)
        return [_Seat(self._ray, actor.remote(), given) for _ in range(workers)]

    def _sent(self, job: BatchJob) -> Any:
        """Return a reference to the job, which is sent once to each node."""
        try:
            return self._ray.put(job)
        except Exception as error:  # each class that cannot be pickled has a way of its own
            said = str(error).partition("\n")[0]
            raise InputError(f"the job cannot be sent to other processes: {said}") from error

    # Who does what -----------------------------------------------------------------------------

    def _deal(self) -> None:
        """Give away what is waiting, in order, as far as there is somebody to take it."""
        while self._waiting and (seat := self._taker(self._waiting[0])) is not None:
            seat.give(self._waiting.popleft())

    def _taker(self, task: PartTask) -> _Seat | None:
        """Return who takes a part: whoever has the least to do.

        A part that may kill its worker is alone with it: no other is lost, or blamed.
        """
        most = 1 if task.careful else self._most
        able = [seat for seat in self._seats if seat.is_up and not seat.careful]
        able = [seat for seat in able if seat.load < most]
        return min(able, key=lambda seat: seat.load, default=None)

    # What they say -----------------------------------------------------------------------------

    def _look(self, seconds: float) -> None:
        """Hear who has something to say, waiting for the first one so long at most."""
        said = {ref: seat for seat in self._seats for ref in seat.refs}
        if not said:
            time.sleep(seconds)
            return
        self._ray.wait([*said], timeout=min(seconds, _ASK_SECONDS))
        ready, _ = self._ray.wait([*said], num_returns=len(said), timeout=0)
        for ref in ready:
            if ref in said[ref].refs:  # those of a worker that died are forgotten
                self._hear(said[ref], ref)
        self._check_somebody_is_there()
        self._deal()

    def _hear(self, seat: _Seat, ref: Any) -> None:
        errors = self._ray.exceptions
        try:
            said = self._ray.get(ref)
        except errors.RayTaskError as error:
            raise WaysoutError(f"a worker failed: {error.cause}") from error
        except errors.RayError as error:
            if getattr(error, "actor_init_failed", False):
                raise UnavailableError(cannot_begin(last_line(error))) from None
            self._lose(seat, error)
            return
        if isinstance(said, RemoteError):
            raise said.restore()
        if ref == seat.rising:
            seat.rising = None
            return
        self._ended.append(seat.take(ref, *said))
        self._deaths = 0

    def _lose(self, seat: _Seat, why: Exception) -> None:
        """Count a worker that died, or that cannot be reached; it is started afresh."""
        self._deaths = 0 if seat.tally.people else self._deaths + 1
        self._ended += (PartReport(part, lost=True) for part in seat.parts)
        if self._deaths > _DEATHS_IN_A_ROW + len(self._seats):
            raise UnavailableError(
                f"workers died {self._deaths} times in a row before they had finished a single "
                f"search (the last one: {last_line(why)}). Is there enough memory on the nodes "
                "for the model and its rows? Try one row there with `waysout find`"
            )
        seat.rise_again()

    def _check_somebody_is_there(self) -> None:
        now = time.monotonic()
        if any(seat.is_up for seat in self._seats):
            self._last_up = now
        elif now - self._last_up > _BEGIN_SECONDS:
            free = self._ray.available_resources()
            raise UnavailableError(
                f"no worker has come up on Ray in {_BEGIN_SECONDS:.0f} s: free are "
                f"{free.get('CPU', 0):g} CPUs and {free.get('GPU', 0):g} GPUs. "
                "See `ray status` for who holds the others"
            )


@dataclass
class _Seat:
    """An actor, as the driver sees it: whoever sits there now, dead or alive."""

    ray: Any
    actor: Any
    given: tuple[Any, ...]
    """What a worker needs to begin, each time anew."""
    parts: dict[int, bool] = field(default_factory=dict)
    """The parts it has, and whether each is done with care."""
    tally: BatchTally = field(default_factory=BatchTally)
    rising: Any = None
    """What it answers when it is up."""
    _running: dict[Any, int] = field(default_factory=dict)
    _asked: Any = None
    _ask_at: float = 0.0

    def __post_init__(self) -> None:
        self._rise()

    def _rise(self) -> None:
        # In a tuple the job stays a reference: what cannot be read there is the worker's to tell.
        self.rising = self.actor.begin.options(max_task_retries=_BEGIN_TRIES).remote(self.given)

    def rise_again(self) -> None:
        """Start afresh, without what it had: a worker that was only out of reach must not go on."""
        self.ray.kill(self.actor, no_restart=False)
        self.parts, self.tally, self._running, self._asked = {}, BatchTally(), {}, None
        self._rise()

    @property
    def is_up(self) -> bool:
        """Whether it has begun."""
        return self.rising is None

    @property
    def load(self) -> int:
        """How many parts it has."""
        return len(self.parts)

    @property
    def careful(self) -> bool:
        """Whether it has a part that is to be alone."""
        return any(self.parts.values())

    @property
    def refs(self) -> tuple[Any, ...]:
        """What answers are waited for, but that to `ask`."""
        return (*self._running, *(() if self.rising is None else (self.rising,)))

    def give(self, task: PartTask) -> None:
        """Have it do a part."""
        self._running[self.actor.run.remote(task)] = task.part
        self.parts[task.part] = task.careful

    def take(self, ref: Any, report: PartReport, tally: BatchTally) -> PartReport:
        """Take a report, which comes with how far the others were then."""
        del self.parts[self._running.pop(ref)]
        self.tally, self._asked = tally, None
        return report

    def ask(self) -> None:
        """Ask how far it is, now and then; the answer is taken when it is there."""
        if self._asked is not None and self.ray.wait([self._asked], timeout=0)[0]:
            with suppress(self.ray.exceptions.RayError):  # its death is noticed elsewhere
                self.tally = self.ray.get(self._asked)
            self._asked = None
        if self.parts and self._asked is None and time.monotonic() >= self._ask_at:
            self._asked = self.actor.tally.remote()
            self._ask_at = time.monotonic() + _ASK_SECONDS


# Ray ---------------------------------------------------------------------------------------------


def _connected(address: str) -> tuple[Any, bool]:
    """Return Ray, connected, and whether it was us who did that."""
    os.environ.update(_SETTINGS)
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise MissingExtra("ray", "ray") from None
    if ray.is_initialized():
        return ray, False
    try:
        with _same_handlers():
            _begin(ray, address or os.environ.get("RAY_ADDRESS") or "local")
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise UnavailableError(
            f"Ray ({shown(address or 'here')}) cannot be used: {error}. Are the Ray and the Python "
            f"of a cluster of this version ({ray.__version__}), and does it want a token "
            "(RAY_AUTH_MODE=token)?"
        ) from error
    return ray, True


def _begin(ray: Any, address: str) -> None:
    """Connect to a cluster, or start a small one of our own."""
    quiet: Mapping[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address != "local":
        _knock(address)
        ray.init(address=address, **quiet)
        return
    ray.init(
        address="local", include_dashboard=False, object_store_memory=_STORE_BYTES, **quiet
    )  # a plain ray.init() would join whatever runs on this machine


def _knock(address: str) -> None:
    """Look whether somebody listens: Ray itself would wait for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise UnavailableError(
            f"nobody answers at {shown(address)} ({error}): start Ray there with "
            f"`ray start --head --port {port}`, or give the address of a cluster that runs"
        ) from None


@contextmanager
def _same_handlers() -> Iterator[None]:
    """Keep what a signal does: Ray takes SIGTERM for itself."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _cpu_share(ray: Any, workers: int) -> float:
    """Return how much of a CPU each worker asks for, so that all fit; two whole ones may not."""
    nodes = sum(1 for node in ray.nodes() if node["Alive"])
    share = fitting_share(workers, ray.cluster_resources().get("CPU", 0.0), nodes)
    if share < _SHARE:
        _log.warning("%d workers have few CPUs: each asks Ray for %g of one", workers, share)
    return share


def fitting_share(workers: int, cpus: float, nodes: int) -> float:
    """Return the share of a CPU that so many workers find on so many nodes, however CPUs lie.

    A node may leave a rest smaller than a share unused. Without any CPU (yet) it is the usual one.

    >>> fitting_share(2, 2.0, 1), fitting_share(9, 2.0, 1), fitting_share(4, 0.0, 1)
    (0.5, 0.2, 0.5)
    """
    fits = int(1e4 * cpus / (workers + nodes)) / 1e4  # Ray counts in ten-thousandths
    return min(_SHARE, fits) if cpus else _SHARE
