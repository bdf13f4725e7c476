"""Pruning: all settings of the sweep, the best ones, and those chosen on one half."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from waysout.bench import paper
from waysout.bench.arms import Arm
from waysout.bench.stats import Setting, best_setting, deviation, halves
from waysout.bench.table import NOT_RUN, Figure, ResultTable, TableLine
from waysout.bench.tables_base import (
    NON_EMPTY,
    NOVELTY,
    PROXIMITY,
    PRUNED,
    ROWS,
    SPARSITY,
    UNIQUE,
    VALIDITY,
    ArmSample,
    Metric,
    View,
    beside,
    mean_figures,
    other_settings,
    title_of,
)

FAMILIES = ("compression", "embedding")
_FAMILY = {"gzip": "compression", "embedding": "embedding"}
_IN_PAPER = {"none": "No pruning", "compression": "Compression", "embedding": "Embedding"}
_MEASURES = (UNIQUE, PROXIMITY, SPARSITY, NOVELTY, PRUNED, ROWS)
# The paper gives no deviation of the share that was pruned.
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
        """Sort a plan's arms by what they prune with; a second one of the same is another."""
        sweep = cls(data)
        for sample in view.samples(data):
            settings = sample.arm.spec["settings"]
            pruning = settings.get("pruning")
            if pruning == "none" and sweep.none is None:
                sweep.none = sample
                continue
            way = sweep.ways.get(_FAMILY.get(pruning, ""), {})
            setting = (settings.get("scope", ""), float(settings.get("threshold") or 0))
            if pruning in _FAMILY and setting not in way:
                way[setting] = sample
            else:
                sweep.others.append(f"{title_of(data)}: {sample.arm.name}")
        own = _by_way(arm for arm in (view.own or view.plan).arms if arm.data == data)
        sweep.papers = {way for way, arms in own.items() if arms == sweep._ids(way)}
        return sweep

    def _ids(self, way: str) -> set[str]:
        if way == "none":
            return set() if self.none is None else {self.none.arm.id}
        return {sample.arm.id for sample in self.ways[way].values()}

    def best(self, family: str, positions: Sequence[int] | None = None) -> Setting | None:
        """Return the setting with the most unique valid options on those queries (all if None).

        Only settings with every one of the searches take part: means over other queries compare
        nothing.
        """
        means: dict[Setting, float] = {}
        for setting, sample in self.ways[family].items():
            part = sample if positions is None else sample.at(positions)
            mean = part.mean("unique_valid")
            if part.complete and mean is not None:
                means[setting] = mean
        return best_setting(means) if means else None

    def incomplete(self, positions: Sequence[int] | None = None) -> list[str]:
        """Say which ways to prune were chosen among fewer settings than the plan has."""
        told = []
        for family, samples in self.ways.items():
            parts = [s if positions is None else s.at(positions) for s in samples.values()]
            able = sum(part.complete for part in parts)
            if able < len(parts) and any(part.n for part in parts):
                told.append(
                    f"{title_of(self.data)}, {family}: only {able} of {len(parts)} settings have "
                    "all the searches that the choice needs."
                )
        return told


def _by_way(arms: Iterable[Arm]) -> dict[str, set[str]]:
    ids: dict[str, set[str]] = {}
    for arm in arms:
        pruning = arm.spec["settings"].get("pruning", "")
        ids.setdefault(_FAMILY.get(pruning, pruning), set()).add(arm.id)
    return ids


def not_papers(sweeps: Iterable[Sweep]) -> list[str]:
    """Say which ways to prune have other settings than the paper's sweep."""
    names = [f"{title_of(sweep.data)}, {way}" for sweep in sweeps
             for way, theirs in _IN_PAPER.items() if way not in sweep.papers
             and paper.best("pruning_best_all30", sweep.data, theirs)]  # fmt: skip
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
    lines = [line for sweep in sweeps for line in _sweep_lines(view, sweep)]
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


def _sweep_lines(view: View, sweep: Sweep) -> list[TableLine]:
    name, lines = title_of(sweep.data), []
    if sweep.none is not None:
        row = view.row(sweep.none.arm, sweep_row)
        lines.append(_sweep_line((name, "none", "", ""), sweep.none, row))
    for family, samples in sweep.ways.items():
        for (scope, threshold), sample in samples.items():
            row = view.row(sample.arm, sweep_row)
            lines.append(_sweep_line((name, family, scope, f"{threshold:g}"), sample, row))
    return lines


def sweep_row(arm: Arm) -> paper.PaperRow:
    """Return the paper's row of the sweep, by how an arm prunes."""
    settings = arm.spec["settings"]
    pruning = settings.get("pruning")
    if pruning == "none":
        return paper.best("pruning_best_all30", arm.data, "No pruning")
    if pruning not in _FAMILY:
        return {}
    return paper.find(
        "pruning_sweep24", dataset=title_of(arm.data), method=_FAMILY[pruning].capitalize(),
        scope=settings["scope"].capitalize(), threshold=f"{settings['threshold']:g}",
    )  # fmt: skip


def _sweep_line(labels: tuple[str, ...], sample: ArmSample, row: paper.PaperRow) -> TableLine:
    figures = [sample.count()]
    for measure in _MEASURES:
        figures += mean_figures(sample, [measure], row)
        if measure in _WITH_SPREAD:
            spread = deviation(sample.values(measure.name))
            figures.append(beside(spread, row, f"{measure.paper}_sd", measure.digits))
    return TableLine(labels, tuple(figures), sample.arm.id)


def pruning_best(view: View) -> list[ResultTable]:
    """Return the best setting of each way to prune, chosen and judged on all queries."""
    lines, notes = [], []
    for data in view.plan.datasets:
        sweep = Sweep.of(view, data)
        for family in ("none", *FAMILIES):
            sample, setting = _choice(sweep, family)
            row = _chosen_row(sweep, family, "pruning_best_all30")
            lines.append(_chosen_line(data, family, row, sample, setting))
        notes += [*sweep.incomplete(), *not_papers([sweep])]
    about = (NON_EMPTY, f"{_CHOICE} Chosen and judged on the same queries: see pruning-heldout.")
    title = "Pruning: the best setting of each way on all queries"
    return [view.table("pruning-best", title, _LABELS, _columns(_MEASURES), lines, about, notes)]


def _columns(measures: Sequence[Metric]) -> tuple[str, ...]:
    return ("n", "setting", *(measure.title for measure in measures))


def _choice(
    sweep: Sweep, family: str, positions: Sequence[int] | None = None
) -> tuple[ArmSample | None, Setting | None]:
    """Return the arm of a way to prune with the setting that the queries given choose."""
    if family == "none":
        return sweep.none, None
    setting = sweep.best(family, positions)
    return (None if setting is None else sweep.ways[family][setting]), setting


def _chosen_row(sweep: Sweep, family: str, table: str) -> paper.PaperRow:
    papers = family in sweep.papers
    return paper.best(table, sweep.data, _IN_PAPER[family]) if papers else {}


def _chosen_line(
    data: str,
    family: str,
    row: paper.PaperRow,
    sample: ArmSample | None,
    setting: Setting | None,
    measures: Sequence[Metric] = _MEASURES,
    more: Sequence[Figure] = (),
) -> TableLine:
    named = Figure(setting_words(setting), setting_words(paper.setting(row)))
    labels = (title_of(data), family)
    if sample is None:
        theirs = [beside(None, row, m.paper, m.digits) for m in measures]
        blanks = [Figure(None) for _ in more]
        return TableLine(labels, (Figure(NOT_RUN), named, *theirs, *blanks))
    figures = (sample.count(), named, *mean_figures(sample, measures, row), *more)
    return TableLine(labels, figures, sample.arm.id)


def pruning_heldout(view: View) -> list[ResultTable]:
    """Return each way to prune with the setting one half chose, judged on the other half."""
    validation, test = halves(view.plan.queries)
    measures = (*_MEASURES, VALIDITY)
    lines, notes = [], []
    for data in view.plan.datasets:
        sweep = Sweep.of(view, data)
        for family in ("none", *FAMILIES):
            sample, setting = _choice(sweep, family, validation)
            before = sample.at(validation).mean("unique_valid") if sample else None
            judged = sample.at(test) if sample else None
            more = (Figure(before, None, UNIQUE.digits),)
            row = _chosen_row(sweep, family, "pruning_heldout")
            lines.append(_chosen_line(data, family, row, judged, setting, measures, more))
        notes += [*sweep.incomplete(validation), *not_papers([sweep])]
    places = ", ".join(str(place) for place in validation)
    about = (
        NON_EMPTY,
        f"{_CHOICE} Chosen on {len(validation)} queries, judged on the {len(test)} others.",
        f"The half that chooses, by place in the stored order from 0: {places} (the first half of "
        "numpy.random.default_rng(42).permutation(n); the paper names no generator, so its halves "
        "are others).",
        "Validity %: approved rows of those the oracle saw, duplicates included.",
    )
    columns = (*_columns(measures), "unique valid on validation")
    title = "Pruning, held out: chosen on one half, judged on the other"
    return [view.table("pruning-heldout", title, _LABELS, columns, lines, about, notes)]
