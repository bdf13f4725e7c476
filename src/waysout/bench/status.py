"""How much of a plan is on file, arm by arm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from waysout.bench.arms import Arm, ExperimentPlan
from waysout.bench.cell import Cells
from waysout.bench.results import Failure
from waysout.bench.tasks import NO_LLM, Llm
from waysout.errors import WaysoutError
from waysout.llm.connect import is_simulated


@dataclass(frozen=True)
class ArmStatus:
    """How far an arm has come with an LLM.

    ``calls`` are those of its finished searches, ``paid`` those of them that a real LLM was asked:
    no reply was on file. ``failures`` counts the searches that failed, by their reasons.
    """

    plan: str
    data: str
    arm: str
    id: str
    llm: str
    done: int
    wanted: int
    calls: int
    paid: int
    failures: Mapping[str, int]


def status_of(
    plan: ExperimentPlan, cells: Cells, failures: Sequence[Failure], llms: Sequence[str] = ()
) -> list[ArmStatus]:
    """Return the status of each arm, with each LLM that the plan names or that was asked."""
    named = map(llm_name, llms or plan.llms)
    names = dict.fromkeys(named if llms else [*named, *_asked(plan, cells)])
    return [
        _status(plan, arm, llm, cells, failures)
        for arm in plan.arms
        for llm in (names if arm.asks_llm else [NO_LLM])
    ]


def llm_name(given: str) -> str:
    """Return the name that an LLM's cells have; of one that is not here, what it was called."""
    try:
        return Llm.of(given).name
    except WaysoutError:
        return given


def _asked(plan: ExperimentPlan, cells: Cells) -> list[str]:
    ids = {arm.id for arm in plan.arms if arm.asks_llm}
    return sorted({cell.llm for cell in cells if cell.arm in ids})


def _status(
    plan: ExperimentPlan, arm: Arm, llm: str, cells: Cells, failures: Sequence[Failure]
) -> ArmStatus:
    wanted = arm.people
    of_arm = cells.of(arm, llm)
    done = [of_arm[query] for query in wanted if query in of_arm]
    failed = [f for f in failures if (f.arm, f.llm) == (arm.id, llm) and f.query in wanted]
    calls = sum(int(cell.spent.get("calls", 0)) for cell in done)
    from_file = sum(int(cell.spent.get("from_file", 0)) for cell in done)
    return ArmStatus(
        plan=plan.name,
        data=arm.data,
        arm=arm.name,
        id=arm.id,
        llm=llm,
        done=len(done),
        wanted=len(wanted),
        calls=calls,
        paid=0 if is_simulated(llm) else calls - from_file,
        failures=dict(Counter(failure.reason for failure in failed)),
    )
