"""The quality of what a search found, judged by asking the model again, outside of the search.

Nothing that the result says of its ways is believed: whether they are irreducible, tight and hold
is found out with `waysout.domain.ways.Checks`, and costs are computed anew.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from waysout.bench.kinds import Finished, Measures, Number
from waysout.bench.lasting import table_facts
from waysout.bench.yardsticks import least_cost, ways_there
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.domain.ways import Checks

SHOWN = 5
"""How many ways a person reads first."""


@dataclass(frozen=True)
class JudgedRow:
    """What the model says of a way when it is asked again."""

    row: Row
    levers: frozenset[str]
    cost: float
    valid: bool
    irreducible: bool
    tight: bool
    holds: bool

    @property
    def firm(self) -> bool:
        """Whether it is irreducible and holds: a way in the full sense."""
        return self.irreducible and self.holds


def verdicts(problem: Problem, query: Row, rows: Sequence[Row]) -> list[JudgedRow]:
    """Judge rows; all that has to be asked goes to the model in one batch.

    A row that is no yes, or breaks a rule, is neither irreducible nor tight, nor does it hold.
    """
    if not rows:
        return []
    checks = Checks(problem, query)
    asked = dict.fromkeys(
        other
        for row in rows
        for other in (row, *checks.shorter(row), *checks.farther(row), *checks.nearer(row))
    )
    answers = problem.oracle.ask([query, *asked])
    goal = problem.goal.for_query(float(answers.probability[0]))
    valid = dict(zip(asked, goal.met(answers)[1:].tolist(), strict=True)).get
    found = []
    for row, cost in zip(rows, problem.costs(query, rows).tolist(), strict=True):
        stands = bool(valid(row)) and not problem.violations(query, row)
        flags = (bool(stands and check(row, valid))
                 for check in (checks.irreducible, checks.tight, checks.holds))  # fmt: skip
        found.append(JudgedRow(row, problem.rules.moved(query, row), cost, stands, *flags))
    return found


def judged(run: Finished) -> Measures:
    """Judge all ways of a search, and those shown first; add what there is to be found."""
    problem, query, result = run.problem, run.query, run.result
    ways = [problem.row(way.row) for way in result.ways]
    first = [problem.row(option.row) for option in result.pick(SHOWN)]
    known = {one.row: one for one in verdicts(problem, query, list(dict.fromkeys(ways + first)))}
    of_ways = [known[row] for row in ways]
    shown, columns = _shown(run, [known[row] for row in first])
    firm = [one for one in of_ways if one.firm]
    metrics: dict[str, Number] = {
        "ways": len(of_ways),
        "ways_broken": sum(not one.valid for one in of_ways),
        "ways_irreducible": sum(one.irreducible for one in of_ways),
        "ways_tight": sum(one.tight for one in of_ways),
        "ways_hold": sum(one.holds for one in of_ways),
        "firm_sets": len({one.levers for one in firm}),
        "cheapest": min((one.cost for one in of_ways if one.valid), default=None),
        "cheapest_firm": min((one.cost for one in firm), default=None),
        "processor_ms": None if run.processor is None else round(1000 * run.processor, 1),
    }
    there_is, there = _there_is(run)
    return Measures(
        {**metrics, **shown, **there_is},
        {
            "way_cost": [one.cost for one in of_ways],
            "way_firm": [int(one.firm) for one in of_ways],
            "way_levers": [_code(problem, one.levers) for one in of_ways],
            **columns,
            **there,
        },
    )


def _code(problem: Problem, levers: Collection[str]) -> int:
    """Return a lever set as a number: the sum of 2 to the places of its levers in the schema."""
    return sum(2**place for place, name in enumerate(problem.schema.names) if name in levers)


def _shown(
    run: Finished, shown: Sequence[JudgedRow]
) -> tuple[dict[str, Number], dict[str, list[float]]]:
    facts, rows = table_facts(run.environment), [one.row for one in shown]
    lasts, forests = facts.successors.shares(rows)
    columns = {
        "shown_cost": [one.cost for one in shown],
        "shown_lasts": lasts,
        "shown_forests": forests,
        "shown_ynn": facts.ynn(rows),
        "shown_real": facts.real(rows),
    }
    metrics: dict[str, Number] = {
        "shown": len(shown),
        "shown_irreducible": sum(one.irreducible for one in shown),
        "shown_tight": sum(one.tight for one in shown),
        "shown_hold": sum(one.holds for one in shown),
        "shown_changes": statistics.fmean(len(one.levers) for one in shown) if shown else None,
        "shown_sets": len({one.levers for one in shown}),
    }
    metrics |= {name: statistics.fmean(found) if found else None for name, found in columns.items()}
    return metrics, columns


def _there_is(run: Finished) -> tuple[dict[str, Number], dict[str, list[float]]]:
    """Return what does not depend on the arm: proof, enumeration, and facts of the table."""
    where, arm, query = run.environment, run.arm, run.query
    found: dict[str, Number] = {"reference_cost": table_facts(where).reference_cost}
    if seconds := arm.kind_settings["seconds"]:
        proof = least_cost(where, arm.rules, query, seconds)
        found |= {
            "infeasible": int(proof["kind"] == "infeasible"),
            "least_proved": int(proof["kind"] == "optimal"),
            "least_cost": proof["cost"],
            "proof_seconds": proof["seconds"],
        }
    columns: dict[str, list[float]] = {}
    if rows := int(arm.kind_settings["rows"]):
        there = ways_there(where, arm.rules, query, rows)
        found["enumerated_whole"] = int(there["whole"])
        columns["there_levers"] = [_code(run.problem, levers) for levers in there["levers"]]
        columns["there_cost"] = there["costs"]
    return found, columns
