"""How many hard cases methods solve: searches without an LLM, judged by asking the model again.

A query is solved if, of all that a search returns, one row is valid, irreducible and holds. The
cases are in `hard_cases`, two tables of an installed package in `hard_tables`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from waysout.bench.hard_cases import CASES, Trial, trials_of
from waysout.bench.hard_tables import TABLES, table_trials
from waysout.domain.result import OutcomeKind, ResultData
from waysout.domain.schema import Row
from waysout.domain.ways import MOST_SUBSETS, Checks
from waysout.errors import InputError, UnavailableError, unknown
from waysout.methods import DEFAULT, all_methods, make_method
from waysout.run.find import find

FINISH = 50
"""Rows that a finished arm sets aside for finishing."""
PEERS = ("growing-spheres", "nice", "recombine", "nearest")
FINISHED = "+finish"
SEEDS = 8
_TRIED = 3


@dataclass(frozen=True)
class HardArm:
    """A method, plain or with rows set aside to finish what it found."""

    method: str
    finished: bool = False

    @classmethod
    def parse(cls, text: str) -> HardArm:
        """Read an arm: the name of a method, or that and ``+finish``."""
        return cls(text.removesuffix(FINISHED), text.endswith(FINISHED))

    def __str__(self) -> str:
        return self.method + (FINISHED if self.finished else "")


@dataclass(frozen=True)
class Judged:
    """One search, judged: ``cost`` is that of the cheapest sound row, ``sets`` counts lever sets.

    A row is sound if it is valid, irreducible and holds.
    """

    ways: int
    sets: int
    cost: float | None
    rows: int = 0
    milliseconds: float = 0.0
    failed: str = ""


@dataclass(frozen=True)
class Figures:
    """What an arm did with a case: counts and means over its searches.

    ``ratios`` is cost ÷ least of every search, nothing where it is not solved, and ``ratio`` the
    median of what is solved. ``milliseconds`` is processor time, what a method learns included.
    """

    case: str
    arm: str
    searches: int
    solved: int
    ratio: float | None
    ways: float
    sets: float
    rows: float
    milliseconds: float
    ratios: tuple[float | None, ...]
    failed: tuple[str, ...] = ()


def default_arms() -> tuple[HardArm, ...]:
    """Return the product's own method as it is, and its peers plain and finished."""
    peers = [name for name in PEERS if name != DEFAULT]
    return (
        HardArm(DEFAULT),
        *(HardArm(name, finished) for name in peers for finished in (False, True)),
    )


# Judging -----------------------------------------------------------------------------------------


def judge(trial: Trial, result: ResultData) -> Judged:
    """Ask the model again about all that a search returned; none of it counts in a ledger."""
    problem, query = trial.problem, trial.query
    checks = Checks(problem, query)
    options = (*result.ways, *(v for way in result.ways for v in way.variants), *result.options)
    rows = dict.fromkeys(problem.row(option.row) for option in options)
    allowed = [row for row in rows if row != query and not problem.violations(query, row)]
    met = _ask(trial, allowed)
    valid = _not_plainly_longer(trial, [row for row in allowed if met[row]])
    met |= _ask(trial, (c for row in valid for c in (*checks.shorter(row), *checks.farther(row))))
    sound = [r for r in valid if checks.irreducible(r, met.get) and checks.holds(r, met.get)]
    return Judged(
        ways=len(result.ways),
        sets=len({problem.rules.moved(query, row) for row in sound}),
        cost=float(problem.costs(query, sound).min()) if sound else None,
        rows=result.ledger.oracle_rows,
        failed=result.outcome.reason if result.outcome.kind == OutcomeKind.FAILED else "",
    )


def _not_plainly_longer(trial: Trial, rows: Sequence[Row]) -> list[Row]:
    """Return rows without those of many levers that do without one of the first few.

    To check a row of a hundred levers takes long, and hardly any needs them all.
    """
    rules, query = trial.problem.rules, trial.query
    tried: dict[Row, list[Row]] = {}
    for row in rows:
        moved = sorted(rules.moved(query, row))
        first = moved[:_TRIED] if len(moved) > MOST_SUBSETS else []
        without = (rules.put_back(query, row, lever) for lever in first)
        tried[row] = [shorter for shorter in without if not rules.violations(query, shorter)]
    met = _ask(trial, (shorter for found in tried.values() for shorter in found))
    return [row for row, found in tried.items() if not any(met[shorter] for shorter in found)]


def _ask(trial: Trial, rows: Iterable[Row]) -> dict[Row, bool]:
    """Return which rows the model approves, asked in one batch with the query."""
    wanted = list(dict.fromkeys(rows))
    answers = trial.problem.oracle.ask([trial.query, *wanted])
    goal = trial.problem.goal.for_query(float(answers.probability[0]))
    return dict(zip(wanted, goal.met(answers)[1:].tolist(), strict=True))


# Running -----------------------------------------------------------------------------------------


def usable(arms: Sequence[HardArm], *, with_data: bool) -> tuple[list[HardArm], dict[str, str]]:
    """Return the arms that can run here, and of the others why they cannot."""
    can, cannot = [], {}
    for arm in arms:
        if arm.method in PEERS and arm.method not in all_methods():
            cannot[str(arm)] = "it is not installed"
            continue
        try:
            method = make_method(arm.method)
            method.prepare()
        except UnavailableError as error:
            cannot[str(arm)] = str(error)
            continue
        if method.needs_llm and method.needs_calls:
            cannot[str(arm)] = "it asks an LLM, and there is none here"
        elif method.needs_known and not with_data:
            cannot[str(arm)] = "it needs rows whose outcome is known"
        else:
            can.append(arm)
    if not can:
        raise InputError(f"no method can run: {'; '.join(map(': '.join, cannot.items()))}")
    return can, cannot


def search(trial: Trial, arm: HardArm, *, rows: int, seed: int, with_data: bool) -> Judged:
    """Search for one query and judge the result."""
    began = time.process_time()
    result = find(
        trial.problem, trial.query, method=arm.method, calls=0, oracle_rows=rows, seed=seed,
        polish=min(FINISH, rows // 3) if arm.finished else 0,
        data=trial.known if with_data else None,
    )  # fmt: skip
    spent = 1000 * (time.process_time() - began)
    return replace(judge(trial, result), milliseconds=spent)


def run_case(
    name: str, arms: Sequence[HardArm], *, rows: int = 150, seeds: int | None = None,
    with_data: bool = True, tell: Callable[[str], None] = lambda text: None,
) -> list[Figures]:  # fmt: skip
    """Search for every query of a case, or of a table, with every arm."""
    trials = list(trials_of(name, seeds or SEEDS) if name in CASES else table_trials(name, seeds))
    found: dict[str, list[Judged]] = {}
    for arm in arms:
        tell(f"{name}: {arm}")
        found[str(arm)] = [
            search(trial, arm, rows=rows, seed=seed, with_data=with_data)
            for seed, trial in enumerate(trials)
        ]
    least = [
        min((judged[i].cost for judged in found.values()), key=_or_infinity)
        if trial.least is None
        else trial.least
        for i, trial in enumerate(trials)
    ]
    return [_figures(name, arm, judged, least) for arm, judged in found.items()]


def _or_infinity(cost: float | None) -> float:
    return float("inf") if cost is None else cost


def _figures(
    case: str, arm: str, judged: Sequence[Judged], least: Sequence[float | None]
) -> Figures:
    ratios = [
        one.cost / best if one.cost is not None and best else None
        for one, best in zip(judged, least, strict=True)
    ]
    solved = [ratio for ratio in ratios if ratio is not None]
    return Figures(
        case, arm, len(judged),
        solved=len(solved),
        ratio=median(solved) if solved else None,
        ways=fmean(one.ways for one in judged),
        sets=fmean(one.sets for one in judged),
        rows=fmean(one.rows for one in judged),
        milliseconds=median(one.milliseconds for one in judged),
        ratios=tuple(ratios),
        failed=tuple(one.failed for one in judged if one.failed),
    )  # fmt: skip


def check_names(names: Sequence[str]) -> None:
    """Raise `InputError` unless all are cases or tables."""
    known = (*CASES, *TABLES)
    for name in names:
        if name not in known:
            raise InputError(unknown("hard case", name, known))


# Showing -----------------------------------------------------------------------------------------


def grid(figures: Sequence[Figures], cell: Callable[[Figures], str]) -> list[tuple[str, ...]]:
    """Return a line for every arm, with a cell for every case."""
    cells: dict[str, dict[str, str]] = {}
    for one in figures:
        cells.setdefault(one.arm, {})[one.case] = cell(one)
    cases = list(dict.fromkeys(one.case for one in figures))
    return [(arm, *(line.get(case, "") for case in cases)) for arm, line in cells.items()]


def solved_cell(one: Figures) -> str:
    """Return how many queries are solved, and how near to the least, in a narrow cell."""
    return f"{one.solved}" if one.ratio is None else f"{one.solved} {one.ratio:.2f}"


def sets_cell(one: Figures) -> str:
    """Return the mean number of sound lever sets, and of ways that the searches returned."""
    return f"{one.sets:.1f} {one.ways:.1f}"
