"""What each method yields for the same LLM, queries and oracle rows, and recombine's targets."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from waysout.bench.cell import Cell
from waysout.bench.stats import Paired, non_empty_mean, paired
from waysout.bench.table import Figure, ResultTable, TableLine
from waysout.bench.tables_base import ArmSample, Metric, View, title_of

SUBJECT, FEW, BASE = "recombine", "recombine-6", "comp-mcts"
"""The method that the targets are about, the same with few calls, and what it is compared with."""

COMMON = "Only queries that every arm has finished on a data set count."
_COLUMNS = (
    Metric("unique valid", "unique_valid", 1), Metric("proximity", "proximity", 3),
    Metric("sparsity", "sparsity", 2), Metric("novelty", "novelty", 3),
    Metric("lever sets", "lever_sets", 1), Metric("plausibility", "plausibility", 3),
    Metric("irreducible", "irreducible", 1), Metric("rows", "rows", 1),
    Metric("calls", "calls", 1), Metric("tokens in", "tokens_in", 0),
    Metric("tokens out", "tokens_out", 0), Metric("prune %", "prune_pct", 1),
)  # fmt: skip

Samples = dict[str, ArmSample]
"""The searches of each arm, by its name, all of the same queries."""


def common(view: View, data: str) -> Samples:
    """Return the arms that were run, with the queries that all of them have, by number."""
    ran = [sample for sample in view.samples(data) if sample.n]
    queries = sorted(set.intersection(*(set(sample.cells) for sample in ran))) if ran else []
    return {s.arm.name: replace(s, cells={q: s.cells[q] for q in queries}) for s in ran if queries}


def _all(view: View) -> dict[str, Samples]:
    found = {data: common(view, data) for data in view.plan.datasets}
    return {data: samples for data, samples in found.items() if samples}


def methods(view: View) -> list[ResultTable]:
    """Return each arm's yield on all data sets in a line, and the means on each of them."""
    runs = _all(view)
    every = [arm for arm in next(iter(runs.values())) if all(arm in s for s in runs.values())]
    short = []
    for arm in every:
        samples = [of_data[arm] for of_data in runs.values()]
        cells = [(_mean(s, "unique_valid"), _mean(s, "irreducible"), _empty(s)) for s in samples]
        valid, firm, empty = zip(*cells, strict=True)
        cells.append((statistics.fmean(valid), statistics.fmean(firm), sum(empty)))
        texts = [f"{v:.1f} / {f:.1f} / {e}" for v, f, e in cells]
        total = Figure(float(sum(s.n for s in samples)), digits=0)
        ids = " ".join(s.arm.id for s in samples)
        short.append(TableLine((arm,), (total, *map(Figure, texts)), ids))
    means = []
    for data, of_data in runs.items():
        for arm, sample in of_data.items():
            some = [value for value in sample.values("unique_valid") if value]
            figures = (
                sample.count(),
                sample.empty(),
                Figure(non_empty_mean(some), digits=1),
                *(Figure(sample.mean(m.name), digits=m.digits) for m in _COLUMNS),
            )
            means.append(TableLine((title_of(data), arm), figures, sample.arm.id))
    heads = ("n", *map(title_of, runs), "together")
    about = "Mean unique valid / mean irreducible / queries left empty; together: the mean of the "
    columns = ("n", "empty", "unique valid if any", *(m.title for m in _COLUMNS))
    over = "Means over all queries; of what an empty set does not have, over the others."
    return [
        view.table("methods-short", "Yields of all methods", ("arm",), heads, short,
                   (f"{about}data sets, and all that are empty.", COMMON)),
        view.table("methods", "Means of all methods", ("data set", "arm"), columns, means,
                   (over, COMMON)),
    ]  # fmt: skip


def _mean(sample: ArmSample, name: str) -> float:
    return statistics.fmean(cell.value(name) or 0.0 for cell in sample.cells.values())


def _empty(sample: ArmSample) -> int:
    return sum(not cell.value("unique_valid") for cell in sample.cells.values())


# Targets ---------------------------------------------------------------------------------------

Measure = Callable[[Cell, Cell], tuple[float, float]]
"""Returns a figure of ours and of theirs, for one query."""


def equal_sets(name: str, *, by: str, highest: bool) -> Measure:
    """Compare two sets' best options, as many as the smaller set has.

    ``by`` says which are the best: those with the highest, or the lowest, of that.
    """

    def mean(cell: Cell, n: int) -> float:
        rank, values = cell.columns[by], cell.columns[name]
        order = sorted(range(len(rank)), key=lambda i: rank[i] or 0.0, reverse=highest)
        return statistics.fmean(values[i] or 0.0 for i in order[:n])

    def measure(ours: Cell, theirs: Cell) -> tuple[float, float]:
        n = min(len(ours.columns[by]), len(theirs.columns[by]))
        return mean(ours, n), mean(theirs, n)

    return measure


def whole_sets(name: str) -> Measure:
    """Compare a figure of the two sets."""
    return lambda ours, theirs: (ours.value(name) or 0.0, theirs.value(name) or 0.0)


def shortlists(name: str, *, equal: bool) -> Measure:
    """Compare two shortlists, or their beginnings of equal length."""

    def measure(ours: Cell, theirs: Cell) -> tuple[float, float]:
        one, other = (cell.columns[f"shortlist_{name}"] for cell in (ours, theirs))
        n = min(len(one), len(other)) if equal else 0
        return one[n - 1] or 0.0, other[n - 1] or 0.0

    return measure


# What is compared on the queries both solve, how, and which sign is good.
_COMPARISONS: tuple[tuple[str, Measure, int], ...] = (
    ("proximity no lower, equal sets", equal_sets("proximity", by="proximity", highest=True), 1),
    ("sparsity no higher, equal sets", equal_sets("sparsity", by="sparsity", highest=False), -1),
    ("plausibility (a distance) no higher", whole_sets("plausibility"), -1),
    ("plausibility no higher, nearest of equal sets",
     equal_sets("plausibility", by="proximity", highest=True), -1),
    ("shortlist's novelty no lower", shortlists("novelty", equal=False), 1),
    ("shortlist's novelty no lower, equal length", shortlists("novelty", equal=True), 1),
    ("shortlist's lever sets no fewer", shortlists("lever_sets", equal=False), 1),
    ("shortlist's lever sets no fewer, equal length", shortlists("lever_sets", equal=True), 1),
)  # fmt: skip

Target = tuple[str, str, bool]
"""What is asked for, what was measured, and whether that is enough."""


def targets(view: View) -> list[ResultTable]:
    """Return every target of recombine that the arms on file can answer, with PASS or FAIL."""
    runs, lines = _all(view), []

    def add(data: str, samples: Samples, found: Iterator[Target]) -> None:
        count = Figure(float(next(iter(samples.values())).n), digits=0)
        for what, measured, met in found:
            figures = (count, Figure(measured), Figure("PASS" if met else "FAIL"))
            lines.append(TableLine((what, data), figures))

    for data, samples in runs.items():
        if SUBJECT in samples:
            add(title_of(data), samples, _targets(data, samples))
    able = [samples for samples in runs.values() if {FEW, BASE} <= samples.keys()]
    if able:
        few, base = (
            statistics.fmean(_mean(samples[arm], "unique_valid") for samples in able)
            for arm in (FEW, BASE)
        )
        what = f"{FEW}: unique valid at least 2 × {BASE}, mean of the data sets"
        one = (what, f"{few:.1f} to {base:.1f}", few >= 2 * base)
        add(f"all {len(able)}", able[0], iter([one]))
    about = ("Differences are paired, on the queries both solve, with 95 % intervals.", COMMON)
    labels, columns = ("target", "data set"), ("n", "measured", "verdict")
    return [view.table("targets", "Targets of recombine", labels, columns, lines, about)]


def _targets(data: str, samples: Samples) -> Iterator[Target]:
    subject = samples[SUBJECT]
    others = [a for a, s in samples.items() if s.arm.method != subject.arm.method]
    ours = _mean(subject, "unique_valid")
    rivals = [(BASE, BASE, 4)] if BASE in others else []
    if lats := [arm for arm in others if arm.startswith("lats")]:
        best = max(lats, key=lambda arm: _mean(samples[arm], "unique_valid"))
        rivals.append(("the best LATS", best, 3))
    for words, rival, times in rivals:
        theirs = _mean(samples[rival], "unique_valid")
        ratio = ours / theirs if theirs else float("inf")
        measured = f"{ours:.1f} to {theirs:.1f} ({rival}): {ratio:.1f} ×"
        yield f"unique valid at least {times} × {words}", measured, ours >= times * theirs
    if data in ("loan", "credit", "heloc"):
        yield "unique valid at least 100 (an aim)", f"{ours:.1f}", ours >= 100
    if BASE in samples:
        yield from _comparisons(subject, samples[BASE])
    if {BASE, FEW} <= samples.keys():
        sides = samples[FEW], samples[BASE]
        few, base = (_mean(side, "unique_valid") for side in sides)
        tokens = [sum(_mean(side, name) for name in ("tokens_in", "tokens_out")) for side in sides]
        measured = f"{few:.1f} to {base:.1f}; {tokens[0]:,.0f} and {tokens[1]:,.0f} tokens"
        yield f"{FEW}: unique valid no fewer than {BASE}", measured, few >= base
        blank, base_blank = map(_empty, sides)
        what = f"{FEW}: no more queries empty than {BASE}"
        yield what, f"{blank} to {base_blank}", blank <= base_blank
    asking = [arm for arm in others if samples[arm].arm.asks_llm]
    for some, whom in ((asking, "other that asks an LLM"), (others, "other")):
        if some:
            yield from _leads(samples, some, whom)


def _comparisons(ours: ArmSample, base: ArmSample) -> Iterator[Target]:
    both = [
        (ours.cells[query], base.cells[query])
        for query in ours.cells
        if ours.cells[query].value("unique_valid") and base.cells[query].value("unique_valid")
    ]
    for what, measure, good in _COMPARISONS:
        found = compared(both, measure)
        # Not worse, within the rounding of means of the same numbers in another order.
        yield what, described(found), found.delta is not None and good * found.delta >= -1e-12
    found = compared(both, whole_sets("lever_sets"))
    yield "more lever sets", described(found), (found.delta or 0.0) > 0


def compared(both: Sequence[tuple[Cell, Cell]], measure: Measure) -> Paired:
    """Compare two arms query by query: the difference is ours less theirs."""
    figures = [measure(ours, theirs) for ours, theirs in both]
    return paired([theirs for _, theirs in figures], [ours for ours, _ in figures])


def described(found: Paired) -> str:
    """Describe a difference; without any spread there is nothing to test."""
    if found.delta is None:
        return "no query is solved by both"
    if found.t is None:
        return f"{found.delta:+.3f} on every query, n = {found.n}"
    return (
        f"{found.delta:+.3f} [{found.low:+.3f}, {found.high:+.3f}], p = {found.p:.2g}, "
        f"d_z = {found.dz:+.2f}, n = {found.n}"
    )


def _leads(samples: Samples, rivals: Sequence[str], whom: str) -> Iterator[Target]:
    empty, best = _empty(samples[SUBJECT]), min(rivals, key=lambda arm: _empty(samples[arm]))
    least = _empty(samples[best])
    # Fewer than 0 is not possible.
    met = empty < least or empty == 0
    yield f"fewer queries empty than any {whom}", f"{empty} to {least} ({best})", met
    measured, leads = [], True
    for name in ("unique_valid", "irreducible", "lever_sets"):
        ours = _mean(samples[SUBJECT], name)
        means = {arm: _mean(samples[arm], name) for arm in rivals}
        best = max(rivals, key=means.__getitem__)
        measured.append(f"{name.replace('_', ' ')} {ours:.1f} to {means[best]:.1f} ({best})")
        leads &= ours > means[best]
    yield f"leads any {whom} in all three", "; ".join(measured), leads
