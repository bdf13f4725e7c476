"""How many ways out there are at all, and how many of them recombine finds.

    python benchmarks/limits.py loan --query 0 1 2 --levers 3

Every combination of up to so many of recombine's own edits is asked: one value for each bin of each
lever. Recombine then searches without an LLM, so that its library is the same. It may combine more
levers than were enumerated, so what it finds is counted as a whole, and as far as it is among
those. "lean" is recombine with settings that look for irreducible options rather than for many.
Needs the table and its trained oracle.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import prod

from paired import DATASETS, show
from yields import load

from waysout.datasets.queries import queries
from waysout.domain.metrics import irreducible
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.run.find import find
from waysout.search.base import Case, Method
from waysout.search.library import Combo, EditLibrary
from waysout.search.recombine import Recombine

BATCH = 5_000
# Settings that look for irreducible options rather than for many.
LEAN = Recombine(needless=10.0, quality=0.5)
ROWS = (150, 1_000)
HEAD = ["search", "rows", "unique valid", "among all", "irreducible", "among all", "lever sets"]


@dataclass(frozen=True)
class Options:
    """Ways out of one query, by key, and how many rows were asked for them."""

    problem: Problem
    query: Row
    rows: Mapping[str, Row]
    asked: int

    @cached_property
    def irreducible(self) -> Mapping[str, Row]:
        """Those that need every lever they move."""
        needed = irreducible(self.problem, self.query, list(self.rows.values()))
        return {
            key: row for (key, row), firm in zip(self.rows.items(), needed, strict=True) if firm
        }

    @property
    def lever_sets(self) -> int:
        """How many sets of levers they move."""
        return len({self.problem.rules.moved(self.query, row) for row in self.rows.values()})

    def cells(self, name: str, there: Options) -> list[str]:
        """Return a row of the table: of those that are there, how many are among these."""
        known = self.rows.keys() & there.rows.keys()
        firm = self.irreducible.keys() & there.irreducible.keys()
        counts = (self.asked, len(self.rows), len(known), len(self.irreducible), len(firm))
        return [name, *(f"{count:,}" for count in (*counts, self.lever_sets))]


def own_library(problem: Problem, query: Row) -> EditLibrary:
    """Return the edits that recombine has without an LLM."""
    library = EditLibrary(problem, query)
    library.add_own(Case(problem, query).generator())
    return library


def sets_of_slots(library: EditLibrary, levers: int) -> Iterator[tuple[int, ...]]:
    """Yield every set of up to so many levers."""
    for count in range(1, levers + 1):
        yield from combinations(range(len(library.slots)), count)


def count_combos(library: EditLibrary, levers: int) -> int:
    """Count the combinations of up to so many levers."""
    sizes = [len(slot.choices) for slot in library.slots]
    return sum(prod(sizes[s] for s in slots) for slots in sets_of_slots(library, levers))


def all_combos(library: EditLibrary, levers: int) -> Iterator[Combo]:
    """Yield every combination of up to so many levers."""
    for slots in sets_of_slots(library, levers):
        for choices in product(*(range(1, len(library.slots[s])) for s in slots)):
            chosen = dict(zip(slots, choices, strict=True))
            yield tuple(chosen.get(s, 0) for s in range(len(library.slots)))


def enumerated(problem: Problem, query: Row, library: EditLibrary, levers: int) -> Options:
    """Ask the oracle about all combinations that break no rule."""
    possible: dict[str, Row] = {}
    for combo in all_combos(library, levers):
        row = library.row(combo)
        if row != query and not problem.violations(query, row):
            possible.setdefault(problem.key(row), row)
    possible.pop(problem.key(query), None)
    return Options(problem, query, _approved(problem, query, possible), len(possible))


def _approved(problem: Problem, query: Row, rows: Mapping[str, Row]) -> dict[str, Row]:
    goal = problem.goal.for_query(float(problem.oracle.ask([query]).probability[0]))
    pairs = list(rows.items())
    found: dict[str, Row] = {}
    for start in range(0, len(pairs), BATCH):
        batch = pairs[start : start + BATCH]
        met = goal.met(problem.oracle.ask([row for _, row in batch])).tolist()
        found |= {key: row for (key, row), yes in zip(batch, met, strict=True) if yes}
    return found


def searched(problem: Problem, query: Row, rows: int, method: Method) -> Options:
    """Return what recombine finds without an LLM."""
    result = find(problem, query, method=method, calls=0, oracle_rows=rows)
    found = {option.key: tuple(option.row.values()) for option in result.options}
    found.pop(problem.key(query), None)
    return Options(problem, query, found, result.ledger.oracle_rows)


def report(problem: Problem, query: Row, levers: int, most: int) -> None:
    """Print how many ways out there are, and what recombine finds of them."""
    library = own_library(problem, query)
    while levers > 1 and count_combos(library, levers) > most:
        levers -= 1
    combos = count_combos(library, levers)
    print(f"{len(library)} edits of {len(library.slots)} levers; up to {levers} levers: {combos:,}")
    there = enumerated(problem, query, library, levers)
    lines = [there.cells(f"all up to {levers}", there)]
    lines += [
        searched(problem, query, rows, method).cells(name, there)
        for name, method in (("recombine", Recombine()), ("lean", LEAN))
        for rows in ROWS
    ]
    show([HEAD, *lines], markdown=True)
    sizes = Counter(len(problem.rules.moved(query, row)) for row in there.irreducible.values())
    told = ", ".join(f"{sizes[n]:,} of {n}" for n in range(1, levers + 1))
    print(f"irreducible by levers moved: {told}\n", flush=True)


def main() -> None:
    """Print a table for each query."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("datasets", nargs="+", choices=DATASETS)
    parser.add_argument(
        "--query", type=int, nargs="+", default=[0], help="which of the stored ones"
    )
    parser.add_argument("--levers", type=int, default=3)
    parser.add_argument("--most", type=int, default=300_000, help="combinations; else fewer levers")
    given = parser.parse_args()
    for name in given.datasets:
        problem, data = load(name)
        for number in given.query:
            print(f"{name}, query {number}: ", end="")
            report(problem, data.rows[queries(name)[number]], given.levers, given.most)


if __name__ == "__main__":
    main()
