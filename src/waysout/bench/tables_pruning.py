"""Pruning: all settings of the sweep, the best, those chosen on one half, and pairs of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

from waysout.bench import paper
from waysout.bench.arms import Arm
from waysout.bench.stats import Setting, best_setting, deviation, halves
from waysout.bench.table import NOT_RUN, Figure, ResultTable, TableLine
from waysout.bench.tables_base import (
    FINE,
    METRIC,
    NON_EMPTY,
    NOVELTY,
    PAIRED,
    PAIRED_COLUMNS,
    PROXIMITY,
    PRUNED,
    ROWS,
    SPARSITY,
    UNIQUE,
    VALIDITY,
    ArmSample,
    View,
    beside,
    mean_figures,
    other_settings,
    paired_line,
    title_of,
)

FAMILIES = ("compression", "embedding")
_FAMILY = {"gzip": "compression", "embedding": "embedding"}
_IN_PAPER = {"none": "No pruning", "compression": "Compression", "embedding": "Embedding"}
_MEASURES = (UNIQUE, PROXIMITY, SPARSITY, NOVELTY, PRUNED, ROWS)
# The paper reports no standard deviation of the share pruned.
_WITH_SPREAD = (UNIQUE, PROXIMITY, SPARSITY, NOVELTY, ROWS)
_LABELS = ("data set", "pruning")
_CHOICE = (
    "The setting with the highest mean of unique valid; ties go to the smaller threshold, then to "
    "path."
)


@dataclass
class Sweep:
    """The arms of a sweep on one data set: without pruning, and each way to prune by setting.

    ``papers`` are the ways that have all settings of the paper's sweep and no others, so that what
    is chosen of them can be held against the paper's choice.
    """

    data: str
    none: ArmSample | None = None
    ways: dict[str, dict[Setting, ArmSample]] = field(
        default_factory=lambda: {family: {} for family in FAMILIES}
    )
    others: list[str] = field(default_factory=list)
    papers: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, view: View, data: str) -> Sweep:
        """Sort a plan's arms by what they prune with; a second arm of a setting goes to others."""
        sweep = cls(data)
        for sample in view.samples(data):
            settings = sample.arm.spec["settings"]
            pruning = settings.get("pruning")
            family = sweep.ways.get(_FAMILY.get(pruning, ""), {})
            setting = (settings.get("scope", ""), float(settings.get("threshold") or 0))
            if pruning == "none" and sweep.none is None:
                sweep.none = sample
            elif pruning in _FAMILY and setting not in family:
                family[setting] = sample
            else:
                sweep.others.append(f"{title_of(data)}: {sample.arm.name}")
        own: dict[str, set[str]] = {}
        for arm in (view.own or view.plan).arms:
            if arm.data == data:
                pruning = arm.spec["settings"].get("pruning", "")
                own.setdefault(_FAMILY.get(pruning, pruning), set()).add(arm.id)
        ids = {way: {s.arm.id for s in samples.values()} for way, samples in sweep.ways.items()}
        ids["none"] = {sweep.none.arm.id} if sweep.none else set()
        sweep.papers = {way for way, arms in own.items() if arms == ids[way]}
        return sweep

    def best(self, family: str, positions: Sequence[int] | None = None) -> Setting | None:
        """Return the setting with the most unique valid options on those queries (all if None).

        Only settings with all of the searches take part: means over different queries are no
        comparison.
        """
        means: dict[Setting, float] = {}
        for setting, sample in self.ways[family].items():
            part = sample if positions is None else sample.at(positions)
            mean = part.mean("unique_valid")
            if part.complete and mean is not None:
                means[setting] = mean
        return best_setting(means) if means else None

    def incomplete(self, positions: Sequence[int] | None = None) -> list[str]:
        """Return notes on ways to prune whose setting was chosen among fewer than the plan has."""
        notes = []
        for family, samples in self.ways.items():
            parts = [s if positions is None else s.at(positions) for s in samples.values()]
            able = sum(part.complete for part in parts)
            if able < len(parts) and any(part.n for part in parts):
                notes.append(
                    f"{title_of(self.data)}, {family}: only {able} of {len(parts)} settings have "
                    "all the searches that the choice needs."
                )
        return notes


def not_papers(sweeps: Iterable[Sweep]) -> list[str]:
    """Return a note on ways to prune that have other settings than the paper's sweep."""
    names = [f"{title_of(sweep.data)}, {way}" for sweep in sweeps
             for way, theirs in _IN_PAPER.items() if way not in sweep.papers
             and paper.selected_row("pruning_best_all30", sweep.data, theirs)]  # fmt: skip
    return [other_settings(names)] if names else []


def setting_words(setting: Setting | None) -> str | None:
    """Write a setting for a table.

    >>> setting_words(("path", 0.01))
    'path 0.01'
    """
    return None if setting is None else f"{setting[0]} {setting[1]:g}"


def pruning_sweep(view: View) -> list[ResultTable]:
    """Return every setting of the sweep, with standard deviations."""
    sweeps = [Sweep.of(view, data) for data in view.plan.datasets]
    lines = []
    for sweep in sweeps:
        name = title_of(sweep.data)
        if sweep.none is not None:
            lines.append(_sweep_line(view, (name, "none", "", ""), sweep.none))
        for family, samples in sweep.ways.items():
            for (scope, threshold), sample in samples.items():
                lines.append(_sweep_line(view, (name, family, scope, f"{threshold:g}"), sample))
    others = "; ".join(name for sweep in sweeps for name in sweep.others)
    notes = [f"Arms of the plan that have no place in this table: {others}"] if others else []
    notes += view.unlike(sweep_row)
    columns = ["n"]
    for measure in _MEASURES:
        columns += [measure.title, *([f"{measure.title} sd"] if measure in _WITH_SPREAD else [])]
    about = (NON_EMPTY, "sd: standard deviation over the queries (ddof 1).")
    labels = ("data set", "pruning", "scope", "threshold")
    title = "Pruning: every setting of the sweep"
    return [view.table("pruning-sweep", title, labels, columns, lines, about, notes)]


def sweep_row(arm: Arm) -> paper.PaperRow:
    """Return the paper's row of the sweep, by how an arm prunes."""
    settings = arm.spec["settings"]
    pruning = settings.get("pruning")
    if pruning == "none":
        return paper.selected_row("pruning_best_all30", arm.data, "No pruning")
    if pruning not in _FAMILY:
        return {}
    return paper.find(
        "pruning_sweep24", dataset=title_of(arm.data), method=_FAMILY[pruning].capitalize(),
        scope=settings["scope"].capitalize(), threshold=f"{settings['threshold']:g}",
    )  # fmt: skip


def _sweep_line(view: View, labels: tuple[str, ...], sample: ArmSample) -> TableLine:
    row, figures = view.row(sample.arm, sweep_row), [sample.count()]
    for measure in _MEASURES:
        figures += mean_figures(sample, [measure], row)
        if measure in _WITH_SPREAD:
            spread = deviation(sample.values(measure.name))
            figures.append(beside(spread, row, f"{measure.paper}_sd", measure.digits))
    return TableLine(labels, tuple(figures), sample.arm.id)


def pruning_best(view: View) -> list[ResultTable]:
    """Return the best setting of each way to prune, chosen and judged on all queries."""
    lines, notes = _chosen(view, "pruning_best_all30")
    about = (NON_EMPTY, f"{_CHOICE} Chosen and judged on the same queries: see pruning-heldout.")
    columns = ("n", "setting", *(measure.title for measure in _MEASURES))
    title = "Pruning: the best setting of each way on all queries"
    return [view.table("pruning-best", title, _LABELS, columns, lines, about, notes)]


def pruning_heldout(view: View) -> list[ResultTable]:
    """Return each way to prune with the setting one half chose, judged on the other half."""
    validation, test = halves(view.plan.queries)
    lines, notes = _chosen(view, "pruning_heldout", validation, test)
    places = ", ".join(str(place) for place in validation)
    about = (
        NON_EMPTY,
        f"{_CHOICE} Chosen on {len(validation)} queries, judged on the {len(test)} others.",
        f"The half that chooses, by place in the stored order from 0: {places} (the first half of "
        "numpy.random.default_rng(42).permutation(n); the paper names no generator, so its halves "
        "are others).",
        "Validity %: approved rows of those the oracle saw, duplicates included.",
    )
    measures = (measure.title for measure in (*_MEASURES, VALIDITY))
    columns = ("n", "setting", *measures, "unique valid on validation")
    title = "Pruning, held out: chosen on one half, judged on the other"
    return [view.table("pruning-heldout", title, _LABELS, columns, lines, about, notes)]


def _chosen(
    view: View, table: str, choosing: Sequence[int] | None = None, judging: Sequence[int] = ()
) -> tuple[list[TableLine], list[str]]:
    """Return a line for each way to prune, with the setting that some queries choose, and notes.

    Without any named, all queries choose and judge. Else the line also has the validity on those
    that judge, and the yield on those that choose.
    """
    lines, notes, held_out = [], [], choosing is not None
    measures = (*_MEASURES, VALIDITY) if held_out else _MEASURES
    for data in view.plan.datasets:
        sweep = Sweep.of(view, data)
        for family in ("none", *FAMILIES):
            setting = None if family == "none" else sweep.best(family, choosing)
            sample = sweep.ways[family][setting] if setting else None
            sample = sweep.none if family == "none" else sample
            papers = family in sweep.papers
            row = paper.selected_row(table, data, _IN_PAPER[family]) if papers else {}
            named = Figure(setting_words(setting), setting_words(paper.setting(row)))
            labels = (title_of(data), family)
            if sample is None:
                theirs = [beside(None, row, m.paper, m.digits) for m in measures]
                figures = [Figure(NOT_RUN), named, *theirs, *[Figure(None)] * held_out]
                lines.append(TableLine(labels, tuple(figures)))
                continue
            judged = sample.at(judging) if held_out else sample
            figures = [judged.count(), named, *mean_figures(judged, measures, row)]
            if choosing is not None:
                before = sample.at(choosing).mean("unique_valid")
                figures.append(Figure(before, None, UNIQUE.digits))
            lines.append(TableLine(labels, tuple(figures), sample.arm.id))
        notes += [*sweep.incomplete(choosing), *not_papers([sweep])]
    return lines, notes


# Query by query ----------------------------------------------------------------------------------

SCOPES = ("global", "path", "window")
SCOPE_THRESHOLDS = (0.01, 0.02)
# Settings that hardly prune all match each other, which compares nothing.
LEAST_PRUNED = 1.0
_PAIR_LABELS = ("data set", "comparison", METRIC)


def pruning_paired(view: View) -> list[ResultTable]:
    """Return the three comparisons."""
    sweeps = [Sweep.of(view, data) for data in view.plan.datasets]
    return [_selected(view, sweeps), _matched(view, sweeps), _scopes(view, sweeps)]


def _selected(view: View, sweeps: list[Sweep]) -> ResultTable:
    """Compare no pruning with the best compression, and that with the best embedding."""
    published = {(row["dataset"], row["comparison"], paper.METRICS[row["metric"]]): row
                 for row in paper.read("pruning_paired_selected")}  # fmt: skip
    lines, notes = [], []
    for sweep in sweeps:
        sides: dict[str, tuple[str, ArmSample | None]] = {"none": ("none", sweep.none)}
        for family, samples in sweep.ways.items():
            setting = sweep.best(family)
            name = f"{family} {setting_words(setting) or ''}".strip()
            sides[family] = (name, samples[setting] if setting else None)
        for one, other, theirs in (
            ("none", "compression", "No pruning vs Compression"),
            ("compression", "embedding", "Compression vs Embedding"),
        ):
            (a_name, a), (b_name, b) = sides[one], sides[other]
            for measure in (UNIQUE, ROWS, *FINE[1:]):
                key = (title_of(sweep.data), theirs, measure.paper)
                row = published.get(key, {}) if sweep.papers >= {one, other} else {}
                labels = (title_of(sweep.data), f"{a_name} → {b_name}", measure.title)
                lines.append(paired_line(labels, a, b, measure, row))
        notes += [*sweep.incomplete(), *not_papers([sweep])]
    title = "Pruning, paired: none, the best compression, the best embedding (A → B)"
    about = (PAIRED, "The settings are those of pruning-best: chosen on the same queries.")
    name = "pruning-paired-selected"
    return view.table(name, title, _PAIR_LABELS, PAIRED_COLUMNS, lines, about, notes)


def _matched(view: View, sweeps: list[Sweep]) -> ResultTable:
    lines = []
    for sweep in sweeps:
        theirs = paper.matched(sweep.data)
        ours = [pair for scope in SCOPES if (pair := _closest(sweep, scope))]
        for pair in dict.fromkeys((*theirs, *ours)):
            scope, theta, tau = pair
            a = sweep.ways["compression"].get((scope, theta))
            b = sweep.ways["embedding"].get((scope, tau))
            if a is None or b is None:
                continue
            whose = " and ".join([*(["the paper's pair"] if pair in theirs else []),
                                  *(["our closest"] if pair in ours else [])])  # fmt: skip
            rows = theirs.get(pair, {}) if _are_papers(view, a, b) else {}
            words = f"{scope}: compression {theta:g} → embedding {tau:g} ({whose})"
            for measure in (PRUNED, *FINE):
                labels = (title_of(sweep.data), words, measure.title)
                lines.append(paired_line(labels, a, b, measure, rows.get(measure.paper)))
    title = "Pruning of matched strength, paired: compression (A) → embedding (B)"
    about = (
        PAIRED,
        "Our closest: of each scope, the two settings whose mean prune % differ least in our runs "
        f"(both at least {LEAST_PRUNED:g} %). The paper's pairs are those it found to match.",
    )
    name, notes = "pruning-paired-matched", view.unlike(sweep_row)
    return view.table(name, title, _PAIR_LABELS, PAIRED_COLUMNS, lines, about, notes)


def _closest(sweep: Sweep, scope: str) -> tuple[str, float, float] | None:
    """Return the settings of a scope that prune most nearly the same share."""
    shares: dict[str, dict[float, float]] = {family: {} for family in sweep.ways}
    for family, samples in sweep.ways.items():
        for (of_scope, threshold), sample in samples.items():
            share = (sample.mean("prune_pct") or 0.0) if sample.complete else 0.0
            if of_scope == scope and share >= LEAST_PRUNED:
                shares[family][threshold] = share
    pairs = product(shares["compression"].items(), shares["embedding"].items())
    found = min(((abs(a[1] - b[1]), a[0], b[0]) for a, b in pairs), default=None)
    return None if found is None else (scope, found[1], found[2])


def _are_papers(view: View, *sides: ArmSample) -> bool:
    return all(view.papers(side.arm) is not None for side in sides)


def _scopes(view: View, sweeps: list[Sweep]) -> ResultTable:
    lines = []
    for sweep in sweeps:
        samples = sweep.ways["compression"]
        for theta, (a, b) in product(SCOPE_THRESHOLDS, combinations(SCOPES, 2)):
            one, other = samples.get((a, theta)), samples.get((b, theta))
            if one is None or other is None:
                continue
            labels = (title_of(sweep.data), f"compression {theta:g}: {a} → {b}")
            papers = _are_papers(view, one, other)
            row = paper.scope_row(sweep.data, theta, a, b) if papers else {}
            lines.append(paired_line(labels, one, other, UNIQUE, row))
    title = "Scopes of compression pruning, paired: unique valid (A → B)"
    name, notes = "pruning-paired-scope", view.unlike(sweep_row)
    return view.table(name, title, _PAIR_LABELS[:2], PAIRED_COLUMNS, lines, (PAIRED,), notes)
