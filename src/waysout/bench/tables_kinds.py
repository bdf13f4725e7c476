"""Tables of the plans that measure more than a search: baselines, optimum, limits and others."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from waysout.bench import paper
from waysout.bench.cell import Cell
from waysout.bench.stats import non_empty_mean, paired
from waysout.bench.table import Figure, ResultTable, TableLine
from waysout.bench.tables_arms import oracle_row
from waysout.bench.tables_base import (
    NOVELTY,
    PROXIMITY,
    SPARSITY,
    ArmSample,
    Metric,
    View,
    mean_figures,
    title_of,
)
from waysout.bench.tables_methods import COMMON, common


def _number(value: float | None, digits: int) -> Figure:
    return Figure(value, digits=digits)


def _total(values: Iterable[object]) -> Figure:
    return Figure(float(sum(map(bool, values))), digits=0)


def _values(cells: Iterable[Cell], name: str) -> list[float]:
    return [value for cell in cells if (value := cell.value(name)) is not None]


def _median(values: Sequence[float], digits: int) -> Figure:
    return _number(statistics.median(values) if values else None, digits)


# Baselines -------------------------------------------------------------------------------------

_UNIQUE = Metric("unique valid", "unique_valid", 1, "unique_valid")
_QUALITY = (
    PROXIMITY, replace(SPARSITY, title="changes"), NOVELTY, Metric("lever sets", "lever_sets", 1),
    Metric("plausibility", "plausibility", 3),
)  # fmt: skip


def baselines(view: View) -> list[ResultTable]:
    """Return what methods without an LLM find for the same oracle rows."""
    lines = []
    for data in view.plan.datasets:
        for sample in sorted(view.samples(data), key=lambda sample: sample.arm.rows):
            arm, cells = sample.arm, list(sample.cells.values())
            row = view.row(arm, oracle_row)
            spent = [cell.found[0][1] if cell.found else math.inf for cell in cells]
            first = statistics.median(spent) if spent else math.inf
            unique, theirs = sample.mean("unique_valid"), paper.number(row, "unique_valid")
            solved = {q: c for q, c in sample.cells.items() if c.value("unique_valid")}
            strong = None
            if unique is not None and isinstance(theirs, float):
                strong = "yes" if unique >= theirs else "NO"
            figures = (
                sample.count(),
                *mean_figures(sample, [_UNIQUE], row),
                *mean_figures(replace(sample, cells=solved), _QUALITY, row),
                sample.empty(),
                Figure(f"{first:g}" if first < math.inf else f"> {arm.rows:,}"),
                _number(sample.mean("rows"), 0),
                _number(sum(_values(cells, "violations") + _values(cells, "refused")), 0),
                _number(sample.mean("seconds"), 1),
                Figure(strong or ""),
            )
            name = arm.name.removesuffix(f" rows={arm.rows}")
            lines.append(TableLine((title_of(data), f"{arm.rows:,}", name), figures, arm.id))
    columns = ("n", _UNIQUE.title, *(m.title for m in _QUALITY), "empty", "first after",
               "rows spent", "broken", "seconds", "as strong")  # fmt: skip
    about = (
        "Means over all queries; proximity, changes, novelty, lever sets and plausibility over "
        "those with an option. First after: the median of the rows asked when the batch with the "
        "first option came. Broken: options that break a rule, or are refused when asked again. As "
        "strong: whether unique valid is no lower than the paper's.",
    )
    labels, title = ("data set", "rows", "arm"), "Methods without an LLM, every option checked"
    return [view.table("baselines", title, labels, columns, lines, about)]


# Optimum ---------------------------------------------------------------------------------------


def optimum(view: View) -> list[ResultTable]:
    """Return what was proved of each data set, and how far the methods are from the least cost."""
    proofs, gaps = [], []
    for data in view.plan.datasets:
        samples = common(view, data)
        if not samples:
            continue
        one = next(iter(samples.values()))
        cells = list(one.cells.values())
        proofs.append(TableLine((title_of(data),), (one.count(), *_proofs(cells))))
        costs = {
            query: min(_values((s.cells[query] for s in samples.values()), "cost")
                       + _values([one.cells[query]], "least_cost"), default=None)
            for query in one.cells
        }  # fmt: skip
        known = {query: cost for query, cost in costs.items() if cost is not None}
        for name, sample in samples.items():
            labels = (title_of(data), name)
            gaps.append(TableLine(labels, _gaps(sample, known), sample.arm.id))
    about = (
        "The least cost is proved, or the best found in time; cost is the distance with the mean "
        "of the scaled gaps in place of their RMS.", COMMON,
    )  # fmt: skip
    heads = ("n", "no way out", "optimum proved", "best found", "unknown", "s to a proof",
             "longest", "proximity", "changes")  # fmt: skip
    columns = ("n", "found", "cost / least", "worst", "at the least", "of which proved",
               "nearest option")  # fmt: skip
    title = "The cheapest option of each method against the least cost"
    return [
        view.table("optimum-proofs", "Proofs", ("data set",), heads, proofs, about),
        view.table("optimum", title, ("data set", "method"), columns, gaps, about),
    ]


def _proofs(cells: Sequence[Cell]) -> list[Figure]:
    proved = [c for c in cells if c.value("infeasible") or c.value("optimal")]
    best = [c for c in cells if c not in proved and c.value("least_cost") is not None]
    seconds = _values(proved, "proof_seconds")
    return [
        _total(c.value("infeasible") for c in cells),
        _total(c.value("optimal") for c in cells),
        _number(float(len(best)), 0),
        _number(float(len(cells) - len(proved) - len(best)), 0),
        _median(seconds, 1),
        _number(max(seconds, default=None), 1),
        _median(_values(cells, "least_proximity"), 3),
        _median(_values(cells, "least_changes"), 0),
    ]


def _gaps(sample: ArmSample, least: Mapping[int, float]) -> tuple[Figure, ...]:
    cells = {query: sample.cells[query] for query in least}
    ratios = [
        cost / least[query]
        for query, cell in cells.items()
        if (cost := cell.value("cost")) is not None
    ]
    proved = sum(bool(cell.value("optimal")) for cell in cells.values())
    return (
        sample.count(),
        Figure(f"{len(ratios)} of {len(cells)}"),
        _median(ratios, 2),
        _number(max(ratios, default=None), 1),
        _total(ratio <= 1 + 1e-9 for ratio in ratios),
        Figure(f"{proved} of {len(cells)}"),
        _median(_values(cells.values(), "nearest"), 3),
    )


# Limits and going on ---------------------------------------------------------------------------


def limits(view: View) -> list[ResultTable]:
    """Return how many ways out were enumerated for each query, and how many each arm finds."""
    arms = list(dict.fromkeys(arm.name for arm in view.plan.arms))
    lines = []
    for data in view.plan.datasets:
        samples = common(view, data)
        one = next(iter(samples.values()), None)
        for place, query in enumerate(one.wanted if one else ()):
            if one is None or query not in one.cells:
                continue
            cells = {name: sample.cells[query] for name, sample in samples.items()}
            first = next(iter(cells.values()))
            there = [first.value(name) for name in ("combinations", "ways_out", "ways_irreducible")]
            found = [
                f"{cell.value('unique_valid'):.0f} / {cell.value('among_irreducible'):.0f}"
                if (cell := cells.get(name))
                else ""
                for name in arms
            ]
            figures = (_number(float(len(cells)), 0), *(_number(value, 0) for value in there))
            lines.append(TableLine((title_of(data), str(place)), (*figures, *map(Figure, found))))
    about = (
        "Combinations of up to so many own edits, enumerated: how many are ways out, and how many "
        "of those are irreducible. Of each arm: unique valid in all / irreducible ones of those "
        "enumerated.",
    )
    columns = ("n", "combinations", "ways out", "irreducible", *arms)
    title = "Ways out there are, and how many are found"
    return [view.table("limits", title, ("data set", "query"), columns, lines, about)]


_GOING_ON = (("kept", "kept"), ("going on", "going_on"), ("half anew", "anew"),
             ("all with the lock", "with_lock"))  # fmt: skip


def going_on(view: View) -> list[ResultTable]:
    """Return how many options there are under a lock, searched again in three ways."""
    lines = [
        TableLine(
            (title_of(sample.arm.data), sample.arm.name),
            (sample.count(), *(_number(sample.mean(name), 1) for _, name in _GOING_ON)),
            sample.arm.id,
        )
        for data in view.plan.datasets
        for sample in view.samples(data)
    ]
    about = (
        "Mean options under the lock, over the queries with something to lock. Kept: those of the "
        "first half. Going on: the second half with what is known. Half anew: without it. All with "
        "the lock: both halves with the lock known from the start, which nobody could know.",
    )
    columns = ("n", *(title for title, _ in _GOING_ON))
    labels, title = ("data set", "arm"), "Going on after a lock"
    return [view.table("going-on", title, labels, columns, lines, about)]


# A shared library ------------------------------------------------------------------------------

THROUGHOUT = "throughout"
MANY = 10_000
_SHARED = (
    Metric("unique valid", "unique_valid", 1), Metric("proximity", "proximity", 3),
    Metric("sparsity", "sparsity", 2), Metric("lever sets", "lever_sets", 1),
    Metric("named share", "named", 3), Metric("named for this person", "own", 3),
)  # fmt: skip


def shared(view: View) -> list[ResultTable]:
    """Return what each arm spends and yields, and how it differs from asking throughout."""
    parts: dict[tuple[bool, int], dict[str, ArmSample]] = {}
    for sample in (sample for data in view.plan.datasets for sample in view.samples(data)):
        key = bool(sample.arm.settings.get("own_edits", True)), sample.arm.rows
        if sample.n:
            name = re.split(" (?:rows|own_edits)=", sample.arm.name)[0]
            parts.setdefault(key, {})[name] = sample
    levels, differences = [], []
    for (own, rows), arms in sorted(parts.items(), reverse=True):
        part = f"{rows} rows, {'own and named edits' if own else 'named edits alone'}"
        levels += [
            TableLine((part, name), _level(sample), sample.arm.id) for name, sample in arms.items()
        ]
        if THROUGHOUT in arms:
            # Pilots find their own edits again, so only the others are compared, in the order in
            # which they were finished, since the bootstrap draws them by position.
            pilots = {q for s in arms.values() for q, c in s.cells.items() if c.value("pilot")}
            ended = sorted(arms[THROUGHOUT].cells.items(), key=lambda pair: pair[1].at)
            base = {query: cell for query, cell in ended if query not in pilots}
            differences += [
                TableLine((part, name), _differences(base, sample), sample.arm.id)
                for name, sample in arms.items()
                if name != THROUGHOUT
            ]
    titles = [m.title for m in _SHARED]
    labels = ("searches", "arm")
    about = (
        f"Of {MANY:,}: calls per person in a batch of that size, pilots included. Named share: "
        "options made of edits that an LLM named alone, for this person or for similar ones.",
    )
    heads = ("n", "calls each", f"of {MANY:,}", "empty", *titles, "named options a call")
    less = (f"On the people who are pilots in no arm; less {THROUGHOUT!r}, with 95 % intervals.",)
    return [
        view.table("shared", "A library shared between similar people", labels, heads, levels,
                   about),
        view.table("shared-paired", f"Against {THROUGHOUT}", labels, ("n", "calls", *titles),
                   differences, less),
    ]  # fmt: skip


def _level(sample: ArmSample) -> tuple[Figure, ...]:
    cells = list(sample.cells.values())
    pilot_calls = max(_values(cells, "pilot_calls"), default=0.0)
    each = (sample.mean("calls") or 0.0) + pilot_calls / len(cells)
    # In a larger batch only a few are pilots.
    later = non_empty_mean(cell.value("calls") for cell in cells if not cell.value("pilot"))
    many = (later or 0.0) + pilot_calls / MANY
    named = statistics.fmean(
        (cell.value("unique_valid") or 0.0) * (cell.value("named") or 0.0) for cell in cells
    )
    return (
        sample.count(),
        _number(each, 2),
        _number(many, 2),
        sample.empty(),
        *(_number(sample.mean(m.name), m.digits) for m in _SHARED),
        _number(named / many if many else None, 1),
    )


def _differences(base: Mapping[int, Cell], sample: ArmSample) -> tuple[Figure, ...]:
    both = [(base[query], sample.cells[query]) for query in base if query in sample.cells]
    texts = []
    for name in ("calls", *(m.name for m in _SHARED)):
        found = paired([a.value(name) for a, _ in both], [b.value(name) for _, b in both])
        text = "" if found.delta is None else f"{found.delta:+.3f}"
        if found.t is not None:
            text += f" [{found.low:+.3f}, {found.high:+.3f}]"
        texts.append(text)
    return (_number(float(len(both)), 0), *map(Figure, texts))
