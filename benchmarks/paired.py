"""Comparing methods on the same queries: paired statistics, and the targets set for `recombine`.

`benchmarks/yields.py` writes the lines that are read here and prints what comes out.
"""

from __future__ import annotations

import gzip
import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from waysout.bench.stats import Paired, paired

Line = dict[str, Any]
DATASETS = ("loan", "adult", "credit", "heloc")
UNFINISHED = ("interrupted", "failed")


@dataclass
class Runs:
    """The finished searches of one LLM: data set → arm → query → line.

    Only queries that every arm has finished are in it: means over other people are no comparison.
    """

    lines: dict[str, dict[str, dict[int, Line]]] = field(default_factory=dict)
    llm: str = ""
    left_out: int = 0

    @classmethod
    def read(cls, files: Iterable[Path], arms: Sequence[str] = ()) -> Runs:
        """Read files of `yields.py run`; of two lines about one search the later counts."""
        runs, llms, limits = cls(), set(), set()
        found: dict[tuple[str, str, int], Line] = {}
        for line in (line for file in files for line in read_lines(file)):
            if not arms or line["arm"] in arms:
                found[line["data"], line["arm"], line["query"]] = line
                llms |= {line["llm"]} - {None}
                limits.add((line["k"], line["rows_limit"]))
        if len(llms) > 1 or len(limits) > 1:
            raise SystemExit(
                f"these files cannot be compared: LLMs {sorted(llms)}, k and rows {sorted(limits)}"
            )
        runs.llm = next(iter(llms), "no LLM")
        for (data, arm, query), line in found.items():
            if line["outcome"] not in UNFINISHED:
                runs.lines.setdefault(data, {}).setdefault(arm, {})[query] = line
        runs._keep_common(len(found))
        return runs

    def _keep_common(self, read: int) -> None:
        kept = {}
        for data in sorted(self.lines, key=DATASETS.index):
            arms = self.lines[data]
            common = sorted(set.intersection(*(set(lines) for lines in arms.values())))
            if common:
                kept[data] = {a: {query: arms[a][query] for query in common} for a in sorted(arms)}
        self.lines = kept
        self.left_out = read - sum(len(q) for arms in self.lines.values() for q in arms.values())

    def mean(self, data: str, arm: str, name: str) -> float:
        """Return a mean over all queries, empty ones as they are (a count of 0)."""
        return statistics.fmean(line[name] for line in self.lines[data][arm].values())

    def empty(self, data: str, arm: str) -> int:
        """Count the queries left without any option."""
        return sum(not line["unique_valid"] for line in self.lines[data][arm].values())

    def solved_by_both(self, data: str, one: str, other: str) -> list[tuple[Line, Line]]:
        """Return the lines of the queries for which both arms found something."""
        ours, theirs = self.lines[data][one], self.lines[data][other]
        pairs = ((ours[query], theirs[query]) for query in ours)
        return [(a, b) for a, b in pairs if a["unique_valid"] and b["unique_valid"]]


def read_lines(file: Path) -> list[Line]:
    """Return the lines of a file, packed or not; a last one that a kill cut short is none."""
    found = []
    data = file.read_bytes()
    whole = (gzip.decompress(data) if file.suffix == ".gz" else data).decode()
    for text in whole.splitlines():
        try:
            found.append(json.loads(text))
        except json.JSONDecodeError:
            print(f"{file}: a line that is no JSON was passed over")
    return found


@dataclass(frozen=True)
class Target:
    """One thing asked for, what was measured, and whether that is enough."""

    what: str
    data: str
    measured: str
    met: bool

    def cells(self) -> list[str]:
        """Return it as a row of a table."""
        return [self.what, self.data, self.measured, "PASS" if self.met else "FAIL"]


@dataclass(frozen=True)
class Roles:
    """Who is compared with whom."""

    subject: str = "recombine"
    few: str = "recombine-6"
    base: str = "comp-mcts"


Measure = Callable[[Line, Line], tuple[float, float]]
"""Returns a figure of ours and of theirs, for one query."""


def equal_sets(name: str, *, by: str, highest: bool) -> Measure:
    """Compare two sets' best options, as many as the smaller set has.

    ``by`` says which are the best: those with the highest, or the lowest, of that.
    """

    def mean(line: Line, n: int) -> float:
        best = sorted(line["options"], key=lambda o: o[by], reverse=highest)[:n]
        return statistics.fmean(option[name] for option in best)

    def measure(ours: Line, theirs: Line) -> tuple[float, float]:
        n = min(len(ours["options"]), len(theirs["options"]))
        return mean(ours, n), mean(theirs, n)

    return measure


def whole_sets(name: str) -> Measure:
    """Compare a figure of the two sets."""
    return lambda ours, theirs: (ours[name], theirs[name])


def shortlists(name: str, *, equal: bool) -> Measure:
    """Compare two shortlists, or their beginnings of equal length."""

    def measure(ours: Line, theirs: Line) -> tuple[float, float]:
        one, other = ours["shortlist"][name], theirs["shortlist"][name]
        n = min(len(one), len(other)) if equal else 0
        return one[n - 1], other[n - 1]

    return measure


# What is asked, how it is measured on the queries both solve, and which sign is good.
_NEAREST = equal_sets("plausibility", by="proximity", highest=True)
COMPARISONS: tuple[tuple[str, Measure, int], ...] = (
    ("proximity no lower, equal sets", equal_sets("proximity", by="proximity", highest=True), 1),
    ("sparsity no higher, equal sets", equal_sets("sparsity", by="sparsity", highest=False), -1),
    ("plausibility (a distance) no higher", whole_sets("plausibility"), -1),
    ("plausibility no higher, nearest of equal sets", _NEAREST, -1),
    ("shortlist's novelty no lower", shortlists("novelty", equal=False), 1),
    ("shortlist's novelty no lower, equal length", shortlists("novelty", equal=True), 1),
    ("shortlist's lever sets no fewer", shortlists("lever_sets", equal=False), 1),
    ("shortlist's lever sets no fewer, equal length", shortlists("lever_sets", equal=True), 1),
)


def targets(runs: Runs, roles: Roles) -> Iterator[Target]:
    """Yield every target that the arms on file can answer, data set by data set."""
    for data, arms in runs.lines.items():
        if roles.subject not in arms:
            continue
        others = [a for a, lines in arms.items() if _method(lines) != _method(arms[roles.subject])]
        yield from _yields(runs, data, roles, others)
        if roles.base in arms:
            yield from _comparisons(runs, data, roles)
            yield from _few_calls(runs, data, roles)
        asking = [a for a in others if any(line["llm"] for line in arms[a].values())]
        for rivals, whom in ((asking, "other that asks an LLM"), (others, "other")):
            if rivals:
                yield _fewest_empty(runs, data, roles.subject, rivals, whom)
                yield _leads(runs, data, roles.subject, rivals, whom)
    yield from _few_calls_on_the_mean(runs, roles)


def _method(lines: Mapping[int, Line]) -> str | None:
    return next((line["method"] for line in lines.values()), None)


def _yields(runs: Runs, data: str, roles: Roles, others: Sequence[str]) -> Iterator[Target]:
    ours = runs.mean(data, roles.subject, "unique_valid")
    lats = [arm for arm in others if arm.startswith("lats")]
    rivals = [(roles.base, 4)] if roles.base in others else []
    if lats:
        best = max(lats, key=lambda arm: runs.mean(data, arm, "unique_valid"))
        rivals.append((best, 3))
    for rival, times in rivals:
        theirs = runs.mean(data, rival, "unique_valid")
        ratio = ours / theirs if theirs else float("inf")
        what = f"unique valid at least {times} × {'the best LATS' if times == 3 else rival}"
        measured = f"{ours:.1f} to {theirs:.1f} ({rival}): {ratio:.1f} ×"
        yield Target(what, data, measured, ours >= times * theirs)
    if data in ("loan", "credit", "heloc"):
        yield Target("unique valid at least 100 (an aim)", data, f"{ours:.1f}", ours >= 100)


def _comparisons(runs: Runs, data: str, roles: Roles) -> Iterator[Target]:
    both = runs.solved_by_both(data, roles.subject, roles.base)
    for what, measure, good in COMPARISONS:
        found = compared(both, measure)
        # Not worse up to the rounding of means of the same numbers in another order.
        met = found.delta is not None and good * found.delta >= -1e-12
        yield Target(what, data, said(found), met)
    found = compared(both, whole_sets("lever_sets"))
    yield Target("more lever sets", data, said(found), (found.delta or 0.0) > 0)


def compared(both: Iterable[tuple[Line, Line]], measure: Measure) -> Paired:
    """Compare the two arms, query by query: what ours has more."""
    figures = [measure(ours, theirs) for ours, theirs in both]
    return paired([theirs for _, theirs in figures], [ours for ours, _ in figures])


def said(found: Paired) -> str:
    """Say by how much ours differs; where there is no spread, there is nothing to test."""
    if found.delta is None:
        return "no query is solved by both"
    if found.t is None:
        return f"{found.delta:+.3f} on every query, n = {found.n}"
    return (
        f"{found.delta:+.3f} [{found.low:+.3f}, {found.high:+.3f}], p = {found.p:.2g}, "
        f"d_z = {found.dz:+.2f}, n = {found.n}"
    )


def _few_calls(runs: Runs, data: str, roles: Roles) -> Iterator[Target]:
    if roles.few not in runs.lines[data]:
        return
    few, base = (runs.mean(data, arm, "unique_valid") for arm in (roles.few, roles.base))
    what = f"{roles.few}: unique valid no fewer than {roles.base}"
    tokens = [
        sum(runs.mean(data, arm, name) for name in ("tokens_in", "tokens_out"))
        for arm in (roles.few, roles.base)
    ]
    spent = f"{tokens[0]:,.0f} and {tokens[1]:,.0f} tokens"
    yield Target(what, data, f"{few:.1f} to {base:.1f}; {spent}", few >= base)
    blank, base_blank = runs.empty(data, roles.few), runs.empty(data, roles.base)
    what = f"{roles.few}: no more queries empty than {roles.base}"
    yield Target(what, data, f"{blank} to {base_blank}", blank <= base_blank)


def _few_calls_on_the_mean(runs: Runs, roles: Roles) -> Iterator[Target]:
    able = [d for d, arms in runs.lines.items() if {roles.few, roles.base} <= arms.keys()]
    if not able:
        return
    few, base = (
        statistics.fmean(runs.mean(data, arm, "unique_valid") for data in able)
        for arm in (roles.few, roles.base)
    )
    what = f"{roles.few}: unique valid at least 2 × {roles.base}, mean of the data sets"
    yield Target(what, f"all {len(able)}", f"{few:.1f} to {base:.1f}", few >= 2 * base)


def _fewest_empty(runs: Runs, data: str, subject: str, rivals: Sequence[str], whom: str) -> Target:
    ours = runs.empty(data, subject)
    best = min(rivals, key=lambda arm: runs.empty(data, arm))
    theirs = runs.empty(data, best)
    # Nobody can leave fewer than none.
    met = ours < theirs or ours == 0
    return Target(f"fewer queries empty than any {whom}", data, f"{ours} to {theirs} ({best})", met)


def _leads(runs: Runs, data: str, subject: str, rivals: Sequence[str], whom: str) -> Target:
    measured, met = [], True
    for name in ("unique_valid", "irreducible", "lever_sets"):
        means = {arm: runs.mean(data, arm, name) for arm in (subject, *rivals)}
        ours, best = means.pop(subject), max(rivals, key=means.__getitem__)
        measured.append(f"{name.replace('_', ' ')} {ours:.1f} to {means[best]:.1f} ({best})")
        met &= ours > means[best]
    return Target(f"leads any {whom} in all three", data, "; ".join(measured), met)


# Tables ----------------------------------------------------------------------------------------

COLUMNS: Mapping[str, tuple[str, int]] = {
    "unique valid": ("unique_valid", 1),
    "proximity": ("proximity", 3),
    "sparsity": ("sparsity", 2),
    "novelty": ("novelty", 3),
    "lever sets": ("lever_sets", 1),
    "plausibility": ("plausibility", 3),
    "irreducible": ("irreducible", 1),
    "rows": ("rows", 1),
    "calls": ("calls", 1),
    "tokens in": ("tokens_in", 0),
    "tokens out": ("tokens_out", 0),
    "prune %": ("prune_pct", 1),
}


def tables(runs: Runs, roles: Roles, markdown: bool) -> None:
    """Print what each arm yields, and which targets are met."""
    notes = f"; {runs.left_out} searches left out (unfinished, or another arm has not come so far)"
    print(f"LLM: {llm_words(runs.llm)}{notes if runs.left_out else ''}")
    print("Means over all queries; of what an empty set does not have, over the others.")
    for data, arms in runs.lines.items():
        count = len(next(iter(arms.values())))
        print(f"\n{data}, {count} queries\n")
        header = ["arm", "empty", "unique valid if any", *COLUMNS]
        show([header, *([arm, *_cells(runs, data, arm)] for arm in arms)], markdown)
    print("\nTargets; differences are paired, on the queries both solve, with 95 % intervals\n")
    header = ["target", "data", "measured", "verdict"]
    show([header, *(target.cells() for target in targets(runs, roles))], markdown)


def short_table(runs: Runs, markdown: bool) -> None:
    """Print one line an arm: mean unique valid, mean irreducible, queries left empty.

    The last column has the mean of the data sets, and how many queries are empty in all of them.
    """
    counts = ", ".join(f"{len(next(iter(a.values())))} of {d}" for d, a in runs.lines.items())
    print(f"unique valid / irreducible / empty; queries: {counts}; LLM: {llm_words(runs.llm)}\n")
    every = sorted(set.intersection(*(set(arms) for arms in runs.lines.values())))
    rows = []
    for arm in every:
        cells = [_short(runs, data, arm) for data in runs.lines]
        valid, firm, empty = zip(*cells, strict=True)
        cells.append((statistics.fmean(valid), statistics.fmean(firm), sum(empty)))
        rows.append([arm, *(f"{v:.1f} / {f:.1f} / {e}" for v, f, e in cells)])
    show([["arm", *runs.lines, "together"], *rows], markdown)


def _short(runs: Runs, data: str, arm: str) -> tuple[float, float, int]:
    unique, firm = (runs.mean(data, arm, name) for name in ("unique_valid", "irreducible"))
    return unique, firm, runs.empty(data, arm)


def _cells(runs: Runs, data: str, arm: str) -> list[str]:
    lines = list(runs.lines[data][arm].values())
    some = [line["unique_valid"] for line in lines if line["unique_valid"]]
    return [
        str(runs.empty(data, arm)),
        _mean(some, 1),
        *(_mean([line[name] for line in lines], digits) for name, digits in COLUMNS.values()),
    ]


def _mean(values: Sequence[float | None], digits: int) -> str:
    there = [value for value in values if value is not None]
    return f"{statistics.fmean(there):.{digits}f}" if there else "–"


def show(rows: Sequence[Sequence[str]], markdown: bool) -> None:
    """Print a table, the first row of which is its head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print(f"| {' | '.join(cells)} |" if markdown else "  ".join(cells).rstrip())
        if markdown and number == 0:
            print(f"|{'---|' * len(row)}")


def llm_words(llm: str) -> str:
    """Name an LLM as readers should read it; a server's address is nothing to them."""
    if llm.startswith("simulated"):
        return f"simulated ({llm})"
    return llm.partition(":")[2].partition("@")[0] or llm
