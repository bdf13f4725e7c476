"""How much of a plan is done, arm by arm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from waysout.bench.arms import ExperimentPlan
from waysout.bench.cell import Cell, Cells
from waysout.bench.results import Failure
from waysout.bench.tasks import NO_LLM, Llm
from waysout.errors import WaysoutError


@dataclass(frozen=True)
class ArmStatus:
    """How many of an arm's searches with an LLM are done.

    ``calls`` are those of its finished searches, ``from_file`` those of them that replies on file
    answered: another arm's, or its own before a stop. ``failures`` counts the failed searches by
    their reasons.
    """

    plan: str
    data: str
    arm: str
    id: str
    llm: str
    done: int
    wanted: int
    calls: int
    from_file: int
    failures: Mapping[str, int]


def status_of(
    plan: ExperimentPlan, cells: Cells, failures: Sequence[Failure], llms: Sequence[str] = ()
) -> list[ArmStatus]:
    """Return the status of each arm with these LLMs; else those used, else those of the plan."""
    named = dict.fromkeys(llm_name(llm) for llm in llms or plan.llms)
    names = named if llms else dict.fromkeys(plan_llms(plan, [*cells, *failures])) or named
    found = []
    for arm in plan.arms:
        wanted = arm.query_rows
        for llm in names if arm.asks_llm else [NO_LLM]:
            of_arm = cells.of(arm, llm)
            done = [of_arm[query] for query in wanted if query in of_arm]
            failed = [f for f in failures if (f.arm, f.llm) == (arm.id, llm) and f.query in wanted]
            calls, from_file = (sum(int(cell.spent.get(name, 0)) for cell in done)
                                for name in ("calls", "from_file"))  # fmt: skip
            found.append(
                ArmStatus(
                    plan=plan.name,
                    data=arm.data,
                    arm=arm.name,
                    id=arm.id,
                    llm=llm,
                    done=len(done),
                    wanted=len(wanted),
                    calls=calls,
                    from_file=from_file,
                    failures=dict(Counter(failure.reason for failure in failed)),
                )
            )
    return found


def llm_name(given: str) -> str:
    """Return an LLM's name in cells; if it is not installed, the name passed in."""
    try:
        return Llm.of(given).name
    except WaysoutError:
        return given


def plan_llms(plan: ExperimentPlan, searches: Iterable[Cell | Failure]) -> tuple[str, ...]:
    """Return the LLMs that a plan's arms were run with."""
    ids = {arm.id for arm in plan.arms if arm.asks_llm}
    return tuple(sorted({search.llm for search in searches if search.arm in ids}))
