"""Whether options need every change they make: a check of finished searches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from waysout.domain.problem import Problem
from waysout.domain.schema import Row


def irreducible(problem: Problem, query: Row, rows: Sequence[Row]) -> list[bool]:
    """Return for each option whether it needs every lever it moves.

    It does unless one lever (with the changes that followed from it) can be reverted so that the
    row is still approved and breaks no rule. The rows go to the oracle in one batch with the query,
    and are not counted in any ledger, because this is not part of the search.
    """
    shorter: list[list[Row]] = []
    for row in rows:
        levers = sorted(problem.rules.moved(query, row))
        without = [problem.rules.put_back(query, row, lever) for lever in levers]
        kept = [r for r in without if r != query and not problem.violations(query, r)]
        shorter.append(kept)
    answers = problem.oracle.ask([query, *(row for found in shorter for row in found)])
    met = iter(problem.goal.for_query(float(answers.probability[0])).met(answers)[1:].tolist())
    return [not any(list(islice(met, len(found)))) for found in shorter]
