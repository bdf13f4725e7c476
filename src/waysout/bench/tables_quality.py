"""The quality of what is shown first: a line for each arm, and our method against every other."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from waysout.bench.cell import Cell
from waysout.bench.lasting import APPLICANTS
from waysout.bench.lasting import WORDS as SUCCESSORS
from waysout.bench.stats import hypervolume, non_empty_mean, paired
from waysout.bench.table import Figure, ResultTable, TableLine
from waysout.bench.tables_base import ArmSample, View, stored, title_of
from waysout.domain.ways import LESS

SUBJECT = "wayfinder"
"""The method that every other is compared with."""
FINISHED = ", finished"
MOST_ROWS = 1000
"""The rows at which the cheapest way that anybody found is looked up."""
FIVE = 5
FEWEST = 5
"""With fewer pairs than this, nobody beats anybody."""
BEYOND = 1.1
"""The reference point of lasts and yNN, counted from 1 down."""

_GRID = re.compile(r" (?:rules|rows|polish)=\S+")


# Queries -----------------------------------------------------------------------------------------


def parts_of(data: str, wanted: Sequence[int]) -> dict[str, list[int]]:
    """Split queries into those that settings were chosen on, and those that are reported."""
    first = stored(data).rows
    choosing, other_half = set(first[: len(first) // 2]), set(first[len(first) // 2 :])
    return {
        "chosen on": [q for q in wanted if q in choosing],
        "other half": [q for q in wanted if q in other_half],
        "other rows": [q for q in wanted if q not in choosing | other_half],
    }


PARTS = (
    "Queries: the first half of the stored ones, on which settings were chosen (chosen on); the "
    "other half of them; and rejected held-out rows that were never looked at (other rows)."
)


# One comparison ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PeerComparison:
    """The arms of a table under one rule set, on some queries."""

    data: str
    rules: str
    part: str
    arms: Mapping[str, ArmSample]

    @cached_property
    def best_known(self) -> dict[int, float]:
        """The cheapest way that is irreducible and holds, by query, of any arm with most rows."""
        found: dict[int, float] = {}
        for sample in self.arms.values():
            if sample.arm.rows == MOST_ROWS:
                for query, cell in sample.cells.items():
                    cost = cell.value("cheapest_firm")
                    if cost is not None:
                        found[query] = min(cost, found.get(query, cost))
        return found

    @cached_property
    def with_five(self) -> set[int]:
        """The queries that have five ways, of all that the enumeration and any arm found."""
        known: dict[int, dict[int, float]] = {}
        for sample in self.arms.values():
            for query, cell in sample.cells.items():
                costs = known.setdefault(query, {})
                for levers, cost in firm_sets(cell):
                    costs[levers] = min(cost, costs.get(levers, cost))
        return {query for query, costs in known.items() if count_ways(costs) >= FIVE}

    def to_known(self, sample: ArmSample) -> list[float]:
        """Return an arm's cheapest firm way ÷ the best known, by query; infinite without one."""
        costs = {q: cell.value("cheapest_firm") for q, cell in sample.cells.items()}
        return [
            math.inf if (cost := costs[query]) is None else cost / least
            for query, least in self.best_known.items()
            if query in costs
        ]

    def five_shown(self, sample: ArmSample) -> list[bool]:
        """Return whether five are shown, for each query that has five."""
        return [
            (cell.value("shown") or 0) >= FIVE
            for query, cell in sample.cells.items()
            if query in self.with_five
        ]

    def at(self, rows: int) -> list[ArmSample]:
        """Return the arms with so many rows, in the plan's order."""
        return [sample for sample in self.arms.values() if sample.arm.rows == rows]

    @property
    def budgets(self) -> list[int]:
        """The numbers of rows that arms have."""
        return sorted({sample.arm.rows for sample in self.arms.values()})


def firm_sets(cell: Cell) -> Iterator[tuple[int, float]]:
    """Yield lever sets, as bits, and costs of firm ways: of a search and of the enumeration."""
    of = cell.columns
    found = zip(of["way_levers"], of["way_cost"], of["way_firm"], strict=True)
    there = zip(of.get("there_levers", ()), of.get("there_cost", ()), strict=True)
    pairs = [*((levers, cost) for levers, cost, firm in found if firm), *there]
    yield from ((int(levers or 0), float(cost or 0.0)) for levers, cost in pairs)


def count_ways(costs: Mapping[int, float]) -> int:
    """Return how many lever sets are ways: those that cost a tenth less than any part of them.

    >>> count_ways({0b01: 1.0, 0b10: 2.0, 0b11: 0.95})
    2
    """
    ways: dict[int, float] = {}
    for levers in sorted(costs, key=int.bit_count):
        parts = [cost for other, cost in ways.items() if other & levers == other]
        if all(costs[levers] <= LESS * cost for cost in parts):
            ways[levers] = costs[levers]
    return len(ways)


def comparisons(view: View, *, joined: bool = False) -> Iterator[PeerComparison]:
    """Yield what can be compared: a table, rules, and a part of the queries, where it was run.

    ``joined`` puts both parts that are reported into one.
    """
    for data in view.plan.datasets:
        samples = view.samples(data)
        for rules in dict.fromkeys(sample.arm.rules for sample in samples):
            of_rules = [sample for sample in samples if sample.arm.rules == rules]
            wanted = max((sample.wanted for sample in of_rules), key=len)
            parts = parts_of(data, wanted)
            if joined:
                reported = parts.pop("other half") + parts.pop("other rows")
                parts["reported"] = reported
            for part, queries in parts.items():
                arms = {s.arm.name: _only(s, queries) for s in of_rules}
                if any(sample.n for sample in arms.values()):
                    yield PeerComparison(data, rules, part, arms)


def _only(sample: ArmSample, queries: Sequence[int]) -> ArmSample:
    wanted = [place for place, query in enumerate(sample.wanted) if query in set(queries)]
    return sample.at(wanted)


def arm_label(sample: ArmSample) -> str:
    """Return an arm's name without what the other columns say."""
    return _GRID.sub("", sample.arm.name) + (FINISHED if sample.arm.polish else "")


# Figures of one search ---------------------------------------------------------------------------


def volume(cell: Cell) -> float:
    """Return the hypervolume of what was shown, from 0 to 1: cost, 1 − lasts, and 1 − yNN.

    Costs are divided by the table's reference cost, at which they count for nothing. The other two
    are referred to a tenth beyond the worst, so that an option without one of them still counts.
    """
    most = cell.value("reference_cost")
    if not most:
        return 0.0
    names = ("shown_cost", "shown_lasts", "shown_ynn")
    shown = zip(*(cell.columns.get(name, ()) for name in names), strict=True)
    points = [((cost or 0.0) / most, 1.0 - (lasts or 0.0), 1.0 - (ynn or 0.0))
              for cost, lasts, ynn in shown]  # fmt: skip
    return hypervolume(points, (1.0, BEYOND, BEYOND)) / BEYOND**2


def _of(name: str) -> Callable[[Cell], float | None]:
    return lambda cell: cell.value(name)


# Tables ------------------------------------------------------------------------------------------

_MEANS = (
    ("ways", "ways", 1), ("irred.", "ways_irreducible", 1), ("tight", "ways_tight", 1),
    ("hold", "ways_hold", 1), ("firm sets", "firm_sets", 1),
    ("cheapest", "cheapest", 3), ("firm", "cheapest_firm", 3),
)  # fmt: skip
_SHOWN = (
    ("shown", "shown", 1), ("irred.", "shown_irreducible", 1), ("tight", "shown_tight", 1),
    ("hold", "shown_hold", 1), ("cost", "shown_cost", 3), ("changes", "shown_changes", 1),
    ("sets", "shown_sets", 1), ("yNN", "shown_ynn", 2), ("lasts", "shown_lasts", 2),
    ("real", "shown_real", 2), ("forests", "shown_forests", 2),
)  # fmt: skip
_COLUMNS = (
    "n", *(title for title, _, _ in _MEANS), "÷ proved", "÷ known", "≤ 1.05 %",
    *(f"5: {title}" for title, _, _ in _SHOWN), "five %", "volume", "empty", "rows", "ms",
)  # fmt: skip

ABOUT = (
    "Judged by asking the model again, outside of the search. All ways: irreducible, tight, hold; "
    "firm: irreducible and holds, as lever sets, and the cost of the cheapest. Cost is a sum over "
    "changes (certify's). Means, over the queries that have the figure; counts over all.",
    "÷ proved: the cheapest way ÷ the proved least cost, which may be a pocket. ÷ known: the "
    f"cheapest firm way ÷ the cheapest firm one of any arm with {MOST_ROWS:,} rows; ≤ 1.05 %: for "
    "how many of these queries that is at most 1.05 (none found counts as more). Medians; a query "
    "without a firm way counts as infinite in ÷ known.",
    "5: of the five shown first. yNN: the share of the 5 nearest training rows that the oracle "
    f"approves. Lasts, forests: the share of other models that approve: {SUCCESSORS}. Real: how "
    f"{APPLICANTS} held-out applicants last to whom the oracle gives the nearest chances.",
    "Five %: queries with five shown, of those that have five ways: of the cheapest firm ones that "
    "an enumeration of up to three levers on a grid, or any arm, found for each lever set, five "
    "cost a tenth less than any with a part of their levers. Volume: exact hypervolume, 0 to 1, of "
    "(cost, lasts, yNN) of the five; reference point: (the median cost of becoming the nearest "
    "training row that the oracle approves, −0.1, −0.1). ms: median processor time of the search.",
    PARTS,
)  # fmt: skip


def quality(view: View) -> list[ResultTable]:
    """Return a table for each data set, rule set and part of the queries, and the comparisons."""
    tables = []
    for one in comparisons(view):
        lines = [
            TableLine((f"{rows:,}", arm_label(sample)), _figures(one, sample), sample.arm.id)
            for rows in one.budgets
            for sample in one.at(rows)
            if sample.n
        ]
        name = f"quality-{one.data}-{one.rules}-{one.part.replace(' ', '-')}"
        title = f"{title_of(one.data)}, {one.rules} rules, {one.part}"
        notes = [_there_is(one)]
        tables.append(view.table(name, title, ("rows", "arm"), _COLUMNS, lines, ABOUT, notes))
    return [*_targets(view), *tables, *_paired(view)]


def _figures(one: PeerComparison, sample: ArmSample) -> tuple[Figure, ...]:
    cells, known, five = sample.cells, one.to_known(sample), one.five_shown(sample)
    proved = [cost / least for cell in cells.values() if cell.value("least_proved")
              and (cost := cell.value("cheapest")) is not None
              and (least := cell.value("least_cost"))]  # fmt: skip
    milliseconds = [v for v in sample.values("processor_ms") if v is not None]
    return (
        sample.count(),
        *(Figure(sample.mean(name), digits=digits) for _, name, digits in _MEANS),
        Figure(statistics.median(proved) if proved else None, digits=2),
        _ratio(known),
        Figure(_percent([ratio <= 1.05 for ratio in known]), digits=0),
        *(Figure(sample.mean(name), digits=digits) for _, name, digits in _SHOWN),
        Figure(_percent(five), digits=0),
        Figure(non_empty_mean(map(volume, cells.values())), digits=3),
        Figure(float(sum(not cell.value("ways") for cell in cells.values())), digits=0),
        Figure(sample.mean("rows"), digits=0),
        Figure(statistics.median(milliseconds) if milliseconds else None, digits=0),
    )


def _ratio(ratios: Sequence[float]) -> Figure:
    if not ratios:
        return Figure(None)
    median = statistics.median(ratios)
    return Figure("none" if median == math.inf else median, digits=2)


def _percent(flags: Sequence[bool]) -> float | None:
    return 100 * statistics.fmean(flags) if flags else None


def _there_is(one: PeerComparison) -> str:
    """Say what was proved and enumerated, and the reference cost."""
    queries = {q: c for sample in one.arms.values() for q, c in sample.cells.items()}
    cell = next(iter(queries.values()))
    proved = sum(bool(c.value("least_proved")) for c in queries.values())
    part = sum(not c.value("enumerated_whole") and q not in one.with_five
               for q, c in queries.items())  # fmt: skip
    return (
        f"Least cost proved for {proved} of {len(queries)} queries. Five ways are known for "
        f"{len(one.with_five)}; of the others the enumeration was cut short for {part}. "
        f"Reference cost: {cell.value('reference_cost'):.3f}."
    )


# Targets -----------------------------------------------------------------------------------------

AT = 150
"""The rows at which what is shown has targets."""
FEWEST_ROWS = 60
"""With fewer rows than this, nobody needs to be beaten."""
TARGETS = (
    f"Of {SUBJECT}'s five shown with {AT} rows: at least 96 % irreducible (4.8 of 5), 90 % hold, "
    "85 % tight; five shown for 95 % of the queries that have five; the cheapest firm way at most "
    f"1.10 × the best known, median, and 1.02 × with {MOST_ROWS:,} rows; lasts no lower than real "
    "applicants of equal chance (real); no other arm with as many rows, 60 at least, beats it in "
    "cost, firm sets or volume (beaten: how often one does; notes say which). * marks what misses "
    "its target."
)


def _targets(view: View) -> list[ResultTable]:
    """Return how far our method is from its targets, on what it was chosen on and reported."""
    lines, notes = [], []
    for one in comparisons(view, joined=True):
        ours = {s.arm.rows: s for s in one.arms.values() if arm_label(s) == SUBJECT and s.n}
        if AT in ours:
            labels = (title_of(one.data), one.rules, one.part)
            winners = _winners(one, ours)
            figures = (*_target_figures(one, ours), _marked(float(len(winners)), 0, -1))
            lines.append(TableLine(labels, figures, ours[AT].arm.id))
            notes += [f"{', '.join(labels)}: beaten by {'; '.join(winners)}."] if winners else []
    columns = ("n", "irred. %", "hold %", "tight %", "five %", "÷ known", f"at {MOST_ROWS:,}",
               "lasts", "real", "ms", "beaten")  # fmt: skip
    labels, title = ("data set", "rules", "queries"), f"Targets of {SUBJECT}"
    return [view.table("quality-targets", title, labels, columns, lines, (TARGETS, PARTS), notes)]


def _winners(one: PeerComparison, ours: Mapping[int, ArmSample]) -> list[str]:
    """Return the arms that beat ours with as many rows, and in what."""
    return [
        f"{arm_label(other)} at {rows:,} ({', '.join(found)})"
        for rows, own in ours.items()
        if rows >= FEWEST_ROWS
        for other in one.at(rows)
        if other is not own and other.n and (found := _compared(own, other)[1])
    ]


def _target_figures(one: PeerComparison, ours: Mapping[int, ArmSample]) -> tuple[Figure, ...]:
    sample = ours[AT]

    def share(name: str) -> float | None:
        shown = sum(cell.value("shown") or 0.0 for cell in sample.cells.values())
        found = sum(cell.value(name) or 0.0 for cell in sample.cells.values())
        return 100 * found / shown if shown else None

    def median(rows: int) -> float | None:
        known = one.to_known(ours[rows]) if rows in ours else []
        return statistics.median(known) if known else None

    lasts, people = sample.mean("shown_lasts"), sample.mean("shown_real")
    times = [v for v in sample.values("processor_ms") if v is not None]
    return (
        sample.count(),
        _marked(share("shown_irreducible"), 96, 1),
        _marked(share("shown_hold"), 90, 1),
        _marked(share("shown_tight"), 85, 1),
        _marked(_percent(one.five_shown(sample)), 95, 1),
        _marked(median(AT), 1.10, -1, 2),
        _marked(median(MOST_ROWS), 1.02, -1, 2),
        _marked(lasts, people or 0.0, 1, 2),
        Figure(people, digits=2),
        Figure(statistics.median(times) if times else None, digits=0),
    )


def _marked(value: float | None, target: float, good: int, digits: int = 0) -> Figure:
    """Return a figure with a mark where it misses a target; more is better if ``good`` is 1."""
    if value is None:
        return Figure(None)
    text = "none" if value == math.inf else f"{value:.{digits}f}"
    return Figure(text if good * (value - target) >= 0 else f"{text}*")


# Comparisons -------------------------------------------------------------------------------------

Measure = Callable[[Cell], float | None]
_MEASURES: tuple[tuple[str, Measure, int, int], ...] = (
    ("cost", _of("cheapest_firm"), -1, 4),
    ("sets", _of("firm_sets"), 1, 2),
    ("volume", volume, 1, 4),
)
"""What is compared: its title, the figure, whether more is better (1) or less (−1), digits."""


def _paired(view: View) -> list[ResultTable]:
    differences = (f"{title}{end}" for title, *_ in _MEASURES for end in ("", " low", " high"))
    columns = ("n", *differences, "alone", "less", "beats")
    about = (
        f"The other arm less {SUBJECT} with as many rows: mean paired difference of the cheapest "
        "firm way's cost, of firm lever sets, and of the volume, with 95 % intervals (percentile "
        "bootstrap, 10,000 resamples, seed 42), on the queries that both have a figure for. "
        f"Alone: queries with a firm way of the other arm and none of {SUBJECT}'s; less: the "
        "reverse. Beats: where the interval excludes 0 in the other's favour (less cost, more sets "
        f"or volume), of {FEWEST} queries or more.",
        PARTS,
    )
    tables = []
    for one in comparisons(view, joined=True):
        lines = []
        for rows in one.budgets:
            ours = next((s for s in one.at(rows) if arm_label(s) == SUBJECT and s.n), None)
            others = [s for s in one.at(rows) if s is not ours and s.n]
            lines += [_paired_line(ours, other) for other in others if ours is not None]
        name = f"quality-paired-{one.data}-{one.rules}-{one.part.replace(' ', '-')}"
        title = f"{title_of(one.data)}, {one.rules} rules, {one.part}: against {SUBJECT}"
        tables.append(view.table(name, title, ("rows", "arm"), columns, lines, about))
    return tables


def _pairs(ours: ArmSample, other: ArmSample) -> list[tuple[Cell, Cell]]:
    return [(ours.cells[q], other.cells[q]) for q in ours.cells if q in other.cells]


def _compared(ours: ArmSample, other: ArmSample) -> tuple[list[Figure], list[str]]:
    """Return the difference in each measure, and the measures in which the other one is better."""
    both = _pairs(ours, other)
    figures, beaten = list[Figure](), []
    for title, measure, good, digits in _MEASURES:
        found = paired([measure(a) for a, _ in both], [measure(b) for _, b in both])
        ends = (found.low, found.high)
        figures += [Figure(value, digits=digits, signed=True) for value in (found.delta, *ends)]
        nearest_end = ends[0] if good > 0 else ends[1]
        if found.n >= FEWEST and good * (nearest_end or 0.0) > 0:
            beaten.append(title)
    return figures, beaten


def _paired_line(ours: ArmSample, other: ArmSample) -> TableLine:
    both, (differences, beaten) = _pairs(ours, other), _compared(ours, other)
    firm = [[cell.value("cheapest_firm") is not None for cell in pair] for pair in both]
    counts = (len(both), sum(b and not a for a, b in firm), sum(a and not b for a, b in firm))
    n, alone, less = (Figure(float(count), digits=0) for count in counts)
    figures = (n, *differences, alone, less, Figure(", ".join(beaten) or "no"))
    labels = (f"{other.arm.rows:,}", arm_label(other))
    return TableLine(labels, figures, f"{ours.arm.id} {other.arm.id}")
