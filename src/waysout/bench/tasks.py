"""The searches of plans that are not stored yet, in queues that run one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from waysout.bench.arms import Arm, ExperimentPlan
from waysout.bench.cell import Key
from waysout.llm.base import Backend
from waysout.llm.connect import connect, stand_in

NO_LLM = ""


@dataclass(frozen=True)
class Llm:
    """An LLM: the name in its cells, and a connection string or a backend."""

    name: str
    reached: str | Backend

    @classmethod
    def of(cls, given: str | Backend) -> Llm:
        """Name a connection string or a backend, without contacting anything."""
        return cls((connect(given) if isinstance(given, str) else given).name, given)

    @property
    def is_free(self) -> bool:
        """Whether no language model is asked: it costs nothing, and each process has its own."""
        return isinstance(self.reached, str) and bool(stand_in(self.reached))


@dataclass(frozen=True)
class Task:
    """The queries of an arm that are still to be searched, and the name of the LLM, if any."""

    arm: Arm
    llm: str
    queries: tuple[int, ...]

    @property
    def weight_of_one(self) -> int:
        """Rough duration of one search: calls take long, oracle rows little."""
        return 1 + (self.arm.calls if self.arm.asks_llm else self.arm.rows // 100)

    @property
    def weight(self) -> int:
        """Rough duration of all searches, in the same unit."""
        return len(self.queries) * self.weight_of_one

    @property
    def most_calls(self) -> int:
        """Maximum number of LLM calls, those for the pilots of a shared library included."""
        pilots = int(self.arm.kind_settings.get("pilots", 0))
        return (len(self.queries) + pilots) * self.arm.calls if self.llm else 0


@dataclass(frozen=True)
class Queue:
    """Searches that run side by side.

    With ``llm`` they share one connection to a real LLM; without it they run in processes and ask
    no LLM or a stand-in for one. ``alone`` runs one search at a time, to measure its cost; with a
    real LLM ``in_flight`` of them, each of another arm.
    """

    llm: Llm | None
    in_flight: int | None = None
    alone: bool = False
    tasks: list[Task] = field(default_factory=list)

    @property
    def searches(self) -> int:
        """Number of searches."""
        return sum(len(task.queries) for task in self.tasks)

    @property
    def most_calls(self) -> int:
        """Maximum number of calls to the real LLM."""
        return sum(task.most_calls for task in self.tasks) if self.llm else 0


@dataclass(frozen=True)
class Backlog:
    """All searches to run and the number already stored.

    Those without an LLM come first, then those of each LLM together: it is connected once.
    """

    queues: tuple[Queue, ...]
    on_file: int

    @property
    def searches(self) -> int:
        """Number of searches to run."""
        return sum(queue.searches for queue in self.queues)


def backlog_of(
    plans: Iterable[ExperimentPlan],
    done: Collection[Key],
    *,
    llms: Sequence[str | Backend] = (),
    in_flight: int | None = None,
) -> Backlog:
    """Return the searches of some plans that are not stored yet, each once.

    ``llms`` and ``in_flight`` override those of the plans.
    """
    queues: dict[tuple[str, int | None, bool], Queue] = {}
    seen: set[Key] = set()
    for plan in plans:
        asks = any(arm.asks_llm for arm in plan.arms)
        known = [Llm.of(llm) for llm in llms or plan.llms] if asks else []
        for arm in plan.arms:
            for llm in known if arm.asks_llm else [None]:
                name = llm.name if llm else NO_LLM
                real = llm if llm and not llm.is_free else None
                width = (in_flight or plan.in_flight) if real else None
                key = (name if real else NO_LLM, width, arm.alone)
                queue = queues.setdefault(key, Queue(real, width, arm.alone))
                new = tuple(q for q in arm.query_rows if (arm.id, name, q) not in seen)
                queue.tasks.append(Task(arm, name, new))
                seen.update((arm.id, name, query) for query in new)
    for queue in queues.values():
        left = [
            replace(t, queries=tuple(q for q in t.queries if (t.arm.id, t.llm, q) not in done))
            for t in queue.tasks
        ]
        queue.tasks[:] = [task for task in left if task.queries]
    names = [NO_LLM, *dict.fromkeys(name for name, _, _ in queues)]
    ordered = [queues[key] for key in sorted(queues, key=lambda key: (names.index(key[0]), key[2]))]
    return Backlog(tuple(queue for queue in ordered if queue.tasks), len(seen & set(done)))
