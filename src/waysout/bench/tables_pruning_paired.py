"""Ways to prune compared query by query: selected, matched in strength, and by scope."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product

from waysout.bench import paper
from waysout.bench.table import ResultTable, TableLine
from waysout.bench.tables_base import (
    FINE,
    METRIC,
    PAIRED,
    PAIRED_COLUMNS,
    PRUNED,
    ROWS,
    UNIQUE,
    ArmSample,
    View,
    paired_line,
    title_of,
)
from waysout.bench.tables_pruning import Sweep, not_papers, setting_words, sweep_row

SCOPES = ("global", "path", "window")
SCOPE_THRESHOLDS = (0.01, 0.02)
# What hardly prunes is matched by anything that hardly prunes: no comparison of strengths.
LEAST_PRUNED = 1.0
_LABELS = ("data set", "comparison", METRIC)


def pruning_paired(view: View) -> list[ResultTable]:
    """Return the three comparisons."""
    sweeps = [Sweep.of(view, data) for data in view.plan.datasets]
    return [_selected(view, sweeps), _matched(view, sweeps), _scopes(view, sweeps)]


def _selected(view: View, sweeps: list[Sweep]) -> ResultTable:
    lines, notes = [], []
    for sweep in sweeps:
        lines += list(_selected_lines(sweep))
        notes += [*sweep.incomplete(), *not_papers([sweep])]
    title = "Pruning, paired: none, the best compression, the best embedding (A → B)"
    about = (PAIRED, "The settings are those of pruning-best: chosen on the same queries.")
    name = "pruning-paired-selected"
    return view.table(name, title, _LABELS, PAIRED_COLUMNS, lines, about, notes)


def _selected_lines(sweep: Sweep) -> Iterator[TableLine]:
    chosen = {family: sweep.best(family) for family in sweep.ways}
    compression, embedding = (
        None if (setting := chosen[family]) is None else sweep.ways[family][setting]
        for family in ("compression", "embedding")
    )
    named = {f: f"{f} {setting_words(chosen[f]) or ''}".strip() for f in chosen}
    for a, b, words, theirs in (
        (sweep.none, compression, ("none", named["compression"]), "No pruning vs Compression"),
        (compression, embedding, (named["compression"], named["embedding"]),
         "Compression vs Embedding"),
    ):  # fmt: skip
        papers = sweep.papers >= {word.partition(" ")[0] for word in words}
        for measure in (UNIQUE, ROWS, *FINE[1:]):
            row = _selected_row(sweep.data, theirs, measure.paper) if papers else {}
            labels = (title_of(sweep.data), " → ".join(words), measure.title)
            yield paired_line(labels, a, b, measure, row)


def _selected_row(data: str, comparison: str, metric: str) -> paper.PaperRow:
    where = (title_of(data), comparison, metric)
    rows = paper.read("pruning_paired_selected")
    return next(
        (r for r in rows if (r["dataset"], r["comparison"], paper.METRICS[r["metric"]]) == where),
        {},
    )


@dataclass(frozen=True)
class _Pair:
    """A compression and an embedding threshold of one scope."""

    scope: str
    theta: float
    tau: float


def _matched(view: View, sweeps: list[Sweep]) -> ResultTable:
    lines = []
    for sweep in sweeps:
        theirs = {_Pair(m.scope, m.theta, m.tau): m.rows for m in paper.matched(sweep.data)}
        ours = [pair for scope in SCOPES if (pair := _closest(sweep, scope))]
        for pair in dict.fromkeys((*theirs, *ours)):
            whose = " and ".join([*(["the paper's pair"] if pair in theirs else []),
                                  *(["our closest"] if pair in ours else [])])  # fmt: skip
            lines += list(_matched_lines(view, sweep, pair, whose, theirs.get(pair, {})))
    title = "Pruning of matched strength, paired: compression (A) → embedding (B)"
    about = (
        PAIRED,
        "Our closest: of each scope, the two settings whose mean prune % differ least in our runs "
        f"(both at least {LEAST_PRUNED:g} %). The paper's pairs are those it found to match.",
    )
    name, notes = "pruning-paired-matched", view.unlike(sweep_row)
    return view.table(name, title, _LABELS, PAIRED_COLUMNS, lines, about, notes)


def _closest(sweep: Sweep, scope: str) -> _Pair | None:
    """Return the settings of a scope that prune most nearly the same share."""
    shares = {
        family: {setting[1]: share for setting, sample in samples.items()
                 if setting[0] == scope and (share := _share(sample)) >= LEAST_PRUNED}
        for family, samples in sweep.ways.items()
    }  # fmt: skip
    pairs = product(shares["compression"].items(), shares["embedding"].items())
    found = min(((abs(a[1] - b[1]), a[0], b[0]) for a, b in pairs), default=None)
    return None if found is None else _Pair(scope, found[1], found[2])


def _share(sample: ArmSample) -> float:
    return (sample.mean("prune_pct") or 0.0) if sample.complete else 0.0


def _matched_lines(
    view: View, sweep: Sweep, pair: _Pair, whose: str, rows: Mapping[str, paper.PaperRow]
) -> Iterator[TableLine]:
    a = sweep.ways["compression"].get((pair.scope, pair.theta))
    b = sweep.ways["embedding"].get((pair.scope, pair.tau))
    if a is None or b is None:
        return
    papers = _are_papers(view, a, b)
    words = f"{pair.scope}: compression {pair.theta:g} → embedding {pair.tau:g} ({whose})"
    for measure in (PRUNED, *FINE):
        labels = (title_of(sweep.data), words, measure.title)
        yield paired_line(labels, a, b, measure, rows.get(measure.paper) if papers else {})


def _are_papers(view: View, *sides: ArmSample) -> bool:
    return all(view.papers(side.arm) is not None for side in sides)


def _scopes(view: View, sweeps: list[Sweep]) -> ResultTable:
    lines = []
    for sweep in sweeps:
        samples = sweep.ways["compression"]
        for theta in SCOPE_THRESHOLDS:
            for a, b in combinations(SCOPES, 2):
                labels = (title_of(sweep.data), f"compression {theta:g}: {a} → {b}")
                one, other = samples.get((a, theta)), samples.get((b, theta))
                if one is None or other is None:
                    continue
                papers = _are_papers(view, one, other)
                row = paper.scope_row(sweep.data, theta, a, b) if papers else {}
                lines.append(paired_line(labels, one, other, UNIQUE, row))
    title = "Scopes of compression pruning, paired: unique valid (A → B)"
    name, notes = "pruning-paired-scope", view.unlike(sweep_row)
    return view.table(name, title, _LABELS[:2], PAIRED_COLUMNS, lines, (PAIRED,), notes)
