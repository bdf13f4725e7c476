"""What plans ask for and is not on file: searches, in lanes that run one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from waysout.bench.arms import Arm, ExperimentPlan
from waysout.bench.cell import Key
from waysout.datasets.queries import queries as stored_queries
from waysout.llm.base import Backend
from waysout.llm.connect import connect, is_simulated

NO_LLM = ""


@dataclass(frozen=True)
class Llm:
    """An LLM by the name that its cells have, and how it is reached."""

    name: str
    reached: str | Backend

    @classmethod
    def of(cls, given: str | Backend) -> Llm:
        """Return it for a connection string or a backend; nothing is contacted."""
        return cls((connect(given) if isinstance(given, str) else given).name, given)

    @property
    def is_simulated(self) -> bool:
        """Whether it is no LLM at all: it costs nothing, and any process can have its own."""
        return isinstance(self.reached, str) and is_simulated(self.reached)


@dataclass(frozen=True)
class Todo:
    """The queries of an arm that are still to be searched, and the LLM's name, if one is asked."""

    arm: Arm
    llm: str
    people: tuple[int, ...]

    @property
    def weight_of_one(self) -> int:
        """How long a search takes, roughly: calls take long, rows little."""
        return 1 + (self.arm.calls if self.arm.asks_llm else self.arm.rows // 100)

    @property
    def weight(self) -> int:
        """How long all of it takes, in the same measure."""
        return len(self.people) * self.weight_of_one

    @property
    def most_calls(self) -> int:
        """How many LLM calls that may take."""
        return len(self.people) * self.arm.calls if self.llm else 0


@dataclass(frozen=True)
class Lane:
    """Searches that run side by side: on one LLM or, where none is waited for, in processes.

    The latter ask no LLM or a simulated one. ``alone`` has searches run one after the other, to see
    what each costs.
    """

    llm: Llm | None
    in_flight: int | None = None
    alone: bool = False
    todos: list[Todo] = field(default_factory=list)

    @property
    def searches(self) -> int:
        """How many there are."""
        return sum(len(todo.people) for todo in self.todos)

    @property
    def most_calls(self) -> int:
        """How many calls of its LLM they may take."""
        return sum(todo.most_calls for todo in self.todos) if self.llm else 0


@dataclass(frozen=True)
class Work:
    """All that is to be done, the searches without an LLM first, and how much is on file."""

    lanes: tuple[Lane, ...]
    on_file: int

    @property
    def searches(self) -> int:
        """How many searches are to be done."""
        return sum(lane.searches for lane in self.lanes)


def work_of(
    plans: Iterable[ExperimentPlan],
    done: Collection[Key],
    *,
    llms: Sequence[str | Backend] = (),
    in_flight: int | None = None,
) -> Work:
    """Return the searches of some plans that are not on file, each once.

    ``llms`` and ``in_flight`` count in place of what the plans say.
    """
    lanes: dict[tuple[str, int | None, bool], Lane] = {}
    seen: set[Key] = set()
    for plan in plans:
        asked = [Llm.of(llm) for llm in llms or plan.llms] if _asks(plan) else []
        width = in_flight or plan.in_flight
        for arm in plan.arms:
            for llm in asked if arm.asks_llm else [None]:
                name, real = llm.name if llm else NO_LLM, llm and not llm.is_simulated
                place = (name, width, arm.alone) if real else (NO_LLM, None, arm.alone)
                new = Lane(llm if real else None, place[1], arm.alone)
                _add(lanes.setdefault(place, new), arm, name, seen)
    on_file = len(seen & set(done))
    for lane in lanes.values():
        lane.todos[:] = [left for todo in lane.todos if (left := _without(todo, done)).people]
    ordered = sorted(lanes.values(), key=lambda lane: (lane.llm is not None, lane.alone))
    return Work(tuple(lane for lane in ordered if lane.todos), on_file)


def _asks(plan: ExperimentPlan) -> bool:
    return any(arm.asks_llm for arm in plan.arms)


def _add(lane: Lane, arm: Arm, llm: str, seen: set[Key]) -> None:
    keys = [(arm.id, llm, query) for query in stored_queries(arm.data)[: arm.queries]]
    lane.todos.append(Todo(arm, llm, tuple(key[2] for key in keys if key not in seen)))
    seen.update(keys)


def _without(todo: Todo, done: Collection[Key]) -> Todo:
    left = tuple(q for q in todo.people if (todo.arm.id, todo.llm, q) not in done)
    return Todo(todo.arm, todo.llm, left)
