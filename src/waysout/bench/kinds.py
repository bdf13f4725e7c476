"""Kinds of plans: what is measured besides the metrics of a search, for each query of an arm.

Each kind runs one ordinary search for each arm and query, so that the runner, resuming, exports and
tables are the same for all. A kind may give the search a memory, and measures its result: by
proofs, an enumeration, or further searches without an LLM.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from waysout.bench.arms import FIND, Arm, digest
from waysout.domain.memory import Memory, Past
from waysout.domain.problem import Problem
from waysout.domain.schema import Edit, Row

if TYPE_CHECKING:
    from waysout.batch.shared_edits import SharedLibrary
    from waysout.bench.measure import Environment
    from waysout.report.result import Result
    from waysout.run.options import Options

SHORTLIST = 10
MOST_COMBINATIONS = 300_000
_BATCH = 5_000

Number = float | int | None


class Stopped(Exception):
    """The run was stopped during preparation."""


@dataclass(frozen=True)
class Finished:
    """A finished search: its arm, where it ran, what it found, and the memory it had.

    ``processor`` is the processor time that it took, in seconds, where that is known.
    """

    arm: Arm
    environment: Environment
    result: Result
    memory: Memory | None = None
    processor: float | None = None

    @cached_property
    def problem(self) -> Problem:
        """The problem under the arm's rules."""
        return self.environment.problem_of(self.arm)

    @cached_property
    def query(self) -> Row:
        """The row that was searched for."""
        return self.problem.row(self.result.query)

    @cached_property
    def found(self) -> dict[str, Row]:
        """The options by key, without any that has the query's key."""
        rows = {option.key: self.problem.row(option.row) for option in self.result.options}
        rows.pop(self.problem.key(self.query), None)
        return rows


@dataclass(frozen=True)
class Measures:
    """Figures of a search, and lists of figures: of each option, or of each shortlist length."""

    metrics: Mapping[str, Number] = field(default_factory=dict)
    columns: Mapping[str, Sequence[Number]] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """How to measure a search, its settings with their defaults, and the memory for searches.

    ``memory`` gets the arm, its environment, a folder to keep files in, and the options of a
    search; it is called before the first search of an arm, and again in each process. ``prepare``
    gets an environment, and makes what all its searches are measured with. ``timed``: searches
    share no answers of the model with each other, so that their processor time can be compared.
    """

    measure: Callable[[Finished], Measures]
    settings: Mapping[str, float] = field(default_factory=dict)
    memory: Callable[[Arm, Environment, Path, Options], Memory] | None = None
    prepare: Callable[[Environment], object] | None = None
    timed: bool = False


def checked(run: Finished) -> Measures:
    """Count the options that break a rule, or that the oracle refuses when queried again."""
    rows = [run.problem.row(option.row) for option in run.result.options]
    broken = sum(bool(run.problem.violations(run.query, row)) for row in rows)
    refused = int((~run.problem.oracle.ask(rows).decision).sum()) if rows else 0
    return Measures({"violations": broken, "refused": refused})


def each_option(run: Finished) -> Measures:
    """Count irreducible options, and measure each option alone and each length of the shortlist."""
    from waysout.bench.irreducible import irreducible
    from waysout.domain.known import approved
    from waysout.domain.metrics import set_metrics

    problem, query, result = run.problem, run.query, run.result
    options = [option for option in result.options if option.key in run.found]
    known = approved(run.environment.data, problem.schema).matrix
    alone = [set_metrics(problem, query, [row], known) for row in run.found.values()]
    first = [problem.row(option.row) for option in result.pick(SHORTLIST)]
    short = [set_metrics(problem, query, first[: n + 1]) for n in range(len(first))]
    return Measures(
        # Oracle rows for this are not counted in any search: it evaluates methods, and is not
        # a metric of a search.
        {"irreducible": sum(irreducible(problem, query, list(run.found.values())))},
        {
            "proximity": [option.proximity for option in options],
            "sparsity": [option.sparsity for option in options],
            "plausibility": [metrics["plausibility"] for metrics in alone],
            "shortlist_novelty": [metrics["novelty"] for metrics in short],
            "shortlist_lever_sets": [metrics["lever_sets"] for metrics in short],
        },
    )


def optimum(run: Finished) -> Measures:
    """Prove the least cost of a way out, and compare the cheapest option found."""
    from waysout.oracles.certify import certify

    problem, query, arm = run.problem, run.query, run.arm
    seconds = arm.kind_settings["seconds"]
    proof = run.environment.once(
        ("certificate", arm.rules, query, seconds), lambda: certify(problem, query, seconds=seconds)
    )
    rows, best = list(run.found.values()), proof.option
    return Measures(
        {
            "cost": float(problem.costs(query, rows).min()) if rows else None,
            "nearest": max((option.proximity for option in run.result.options), default=None),
            "infeasible": int(proof.kind == "infeasible"),
            "optimal": int(proof.kind == "optimal"),
            "least_cost": proof.cost,
            "least_bound": proof.bound,
            "least_proximity": None if best is None else best.proximity,
            "least_changes": None if best is None else best.sparsity,
            "proof_seconds": round(proof.seconds, 2),
        }
    )


# Limits ----------------------------------------------------------------------------------------


def limits(run: Finished) -> Measures:
    """Enumerate the combinations of recombine's own edits, and count which of them were found.

    Up to ``levers`` edits are combined, fewer where that is more than `MOST_COMBINATIONS`. The
    search may combine more levers, so what it finds is also counted as a whole.
    """
    from waysout.bench.irreducible import irreducible

    problem, query = run.problem, run.query
    levers = int(run.arm.kind_settings["levers"])

    def needed(rows: Mapping[str, Row]) -> set[str]:
        found = irreducible(problem, query, list(rows.values()))
        return {key for key, firm in zip(rows, found, strict=True) if firm}

    def enumerate_all() -> tuple[int, int, dict[str, Row], set[str]]:
        combos, possible, there = _enumerated(problem, query, levers)
        return combos, possible, there, needed(there)

    key = ("enumerated", run.arm.rules, query, levers)
    combos, possible, there, firm = run.environment.once(key, enumerate_all)
    ours = needed(run.found)
    return Measures(
        {
            "combinations": combos,
            "possible": possible,
            "ways_out": len(there),
            "ways_irreducible": len(firm),
            "among_ways": len(run.found.keys() & there.keys()),
            "irreducible": len(ours),
            "among_irreducible": len(ours & firm),
        }
    )


def _enumerated(problem: Problem, query: Row, levers: int) -> tuple[int, int, dict[str, Row]]:
    """Return how many combinations there are, how many keys break no rule, and the ways out."""
    from waysout.search.base import Case
    from waysout.search.library import EditLibrary

    library = EditLibrary(problem, query)
    library.add_own(Case(problem, query).generator())
    sizes = [len(slot.choices) for slot in library.slots]

    def sets_of(most: int) -> list[tuple[int, ...]]:
        places = range(len(sizes))
        return [slots for n in range(1, most + 1) for slots in combinations(places, n)]

    def count(most: int) -> int:
        return sum(prod(sizes[s] for s in slots) for slots in sets_of(most))

    while levers > 1 and count(levers) > MOST_COMBINATIONS:
        levers -= 1
    possible: dict[str, Row] = {}
    for slots in sets_of(levers):
        for choices in product(*(range(1, len(library.slots[s])) for s in slots)):
            chosen = dict(zip(slots, choices, strict=True))
            row = library.row(tuple(chosen.get(s, 0) for s in range(len(sizes))))
            if row != query and not problem.violations(query, row):
                possible.setdefault(problem.key(row), row)
    possible.pop(problem.key(query), None)
    goal = problem.goal.for_query(float(problem.oracle.ask([query]).probability[0]))
    pairs, there = list(possible.items()), dict[str, Row]()
    for start in range(0, len(pairs), _BATCH):
        batch = pairs[start : start + _BATCH]
        met = goal.met(problem.oracle.ask([row for _, row in batch])).tolist()
        there |= {key: row for (key, row), yes in zip(batch, met, strict=True) if yes}
    return count(levers), len(possible), there


# Going on after a lock -------------------------------------------------------------------------


def going_on(run: Finished) -> Measures:
    """Lock the feature that most options change, and search again for as many rows.

    With the memory of the first search (``going_on``), without it (``anew``), and with the rows of
    both searches and the lock known from the start (``with_lock``), as an upper bound.
    """
    from waysout.domain.rules import Immutable
    from waysout.run.find import find

    levers = Counter(name for option in run.result.options for name in option.changes)
    if not levers:
        return Measures()
    ((locked, used),) = levers.most_common(1)
    tighter, arm = run.problem.with_rules([Immutable(features=[locked])]), run.arm

    def count(rows: int, memory: Memory | None = None) -> int:
        found = find(
            tighter, run.query, method=arm.method, settings=arm.settings, calls=0, oracle_rows=rows,
            seed=arm.seed, memory=memory,
        )  # fmt: skip
        return len(found.options)

    return Measures(
        {
            "kept": len(run.result.options) - used,
            "going_on": count(arm.rows, run.memory),
            "anew": count(arm.rows),
            "with_lock": count(2 * arm.rows),
        }
    )


# A library shared between similar people ---------------------------------------------------------


class NamedEdits(Memory):
    """Starts each search with the shared edits, and records the named edits of each person."""

    def __init__(self, library: SharedLibrary | None) -> None:
        from waysout.batch.shared_edits import SharedEdits

        super().__init__()
        self.library = library
        self.pasts: dict[Row, Past] = {}
        self.shared: dict[Row, int] = {}
        self._inner = SharedEdits(library) if library else None

    def of(self, problem: Problem, query: Row) -> Past:
        """Return the edits shared with a person."""
        past = Past() if self._inner is None else self._inner.of(problem, query)
        self.pasts[query], self.shared[query] = past, len(past.edits)
        return past


def shared_memory(arm: Arm, environment: Environment, folder: Path, options: Options) -> NamedEdits:
    """Return a memory with the library of an arm's pilots; build it if it does not exist.

    Pilots are searched with the arm's settings, but use the LLM throughout.
    """
    from waysout.batch.shared_edits import library_in

    pilots = int(arm.kind_settings["pilots"])
    if not pilots:
        return NamedEdits(None)
    llm = options.get("llm")
    name = llm if isinstance(llm, str) else getattr(llm, "name", "")
    place = folder / "libraries" / f"{arm.id}-{digest(name)[:12]}"

    def load() -> SharedLibrary:
        place.mkdir(parents=True, exist_ok=True)
        settings = {key: value for key, value in arm.settings.items() if key != "ask"}
        pilot_options: Options = {**options, "settings": settings}
        pilot_options.pop("progress", None)
        rows = [environment.data.rows[number] for number in arm.all_query_rows]
        library = library_in(place, environment.problem_of(arm), rows, pilot_options, pilots)
        if library is None:
            raise Stopped
        return library

    return NamedEdits(environment.once(("library", str(place)), load))


def shared(run: Finished) -> Measures:
    """Measure which options consist of named edits only, and the cost of the pilots."""
    memory, query = run.memory, run.query
    assert isinstance(memory, NamedEdits)
    rows, edits = list(run.found.values()), memory.pasts[query].edits
    pilots = memory.library.pilots if memory.library else ()
    return Measures(
        {
            "named": named_share(run.problem, query, rows, edits),
            "own": named_share(run.problem, query, rows, edits[memory.shared[query] :]),
            "pilot": int(any(pilot.row == query for pilot in pilots)),
            "pilot_calls": memory.library.tally.spent.llm_calls if memory.library else 0,
        }
    )


def named_share(
    problem: Problem, query: Row, rows: Sequence[Row], edits: Sequence[Edit]
) -> float | None:
    """Return the share of options that consist of such edits and what follows from them."""
    known = {(edit.feature, edit.value) for edit in edits}

    def is_named(row: Row) -> bool:
        changes = {name: new for name, (_, new) in problem.changes(query, row).items()}
        named = {name: new for name, new in changes.items() if (name, new) in known}
        return problem.rules.apply(query, named) == row

    return statistics.fmean(map(is_named, rows)) if rows else None


# The quality of what is shown ---------------------------------------------------------------------


def quality(run: Finished) -> Measures:
    """Judge the ways of a search (see `waysout.bench.quality`)."""
    from waysout.bench.quality import judged

    return judged(run)


def lasting(place: Environment) -> object:
    """Train the models that tell whether options last."""
    from waysout.bench.lasting import table_facts

    return table_facts(place)


KINDS: Mapping[str, Kind] = {
    FIND: Kind(lambda run: Measures()),
    "checked": Kind(checked),
    "options": Kind(each_option),
    "optimum": Kind(optimum, {"seconds": 20.0}),
    "limits": Kind(limits, {"levers": 3}),
    "going-on": Kind(going_on, memory=lambda *_: Memory()),
    "shared": Kind(shared, {"pilots": 0}, shared_memory),
    "quality": Kind(quality, {"seconds": 20.0, "rows": 100_000}, prepare=lasting, timed=True),
}
