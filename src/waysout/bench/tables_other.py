"""Compressors, and what searches cost in seconds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import replace

from waysout.bench import paper
from waysout.bench.arms import Arm
from waysout.bench.table import NOT_RUN, Figure, Number, ResultTable, TableLine
from waysout.bench.tables_base import PRUNED, UNIQUE, ArmSample, Metric, View, beside, title_of

VALID = Metric("valid", "valid", 1, "valid")
_COMPRESSORS = (VALID, UNIQUE, PRUNED)


def compressors(view: View) -> list[ResultTable]:
    """Return what each compressor leaves: of the first query, as in the paper, and on average."""
    lines = []
    for data in view.plan.datasets:
        for sample in view.samples(data):
            row = view.row(sample.arm, _compressor_row)
            first = sample.at([0])
            figures = [sample.count()]
            figures += [beside(first.mean(m.name), row, m.paper, 0) for m in _COMPRESSORS]
            figures += [Figure(sample.mean(m.name), None, m.digits) for m in _COMPRESSORS]
            lines.append(
                TableLine((title_of(data), sample.arm.name), tuple(figures), sample.arm.id)
            )
    about = (
        "The paper has one query and does not say which; ours is the first of the stored ones.",
        "Valid counts approved rows, duplicates included. Means are over all queries.",
    )
    columns = ("n", *(f"{m.title}, first query" for m in _COMPRESSORS),
               *(f"{m.title}, mean" for m in _COMPRESSORS))  # fmt: skip
    title, labels = "Compressors at the same threshold", ("data set", "compressor")
    notes = view.unlike(_compressor_row)
    return [view.table("compressors", title, labels, columns, lines, about, notes)]


def _compressor_row(arm: Arm) -> paper.PaperRow:
    return paper.find("compressors", compressor=arm.paper) if arm.data == "loan" else {}


# Seconds ---------------------------------------------------------------------------------------

_PAPER_SECONDS = {
    "compression": "Comp-MCTS wall-clock per query", "LATS K=1": "LATS K=1 wall-clock per query"
}  # fmt: skip
_PAPER_PER_CALL = {
    "compression": "Comp-MCTS wall-clock per LLM call",
    "LATS K=1": "LATS K=1 wall-clock per LLM call",
}
_PAPER_LOAN = {"compression": "Loan with compression pruning", "none": "Loan without pruning"}


def cost(view: View) -> list[ResultTable]:
    """Return the seconds of a search and of a call, and what pruning adds."""
    timed = {}
    for data in view.plan.datasets:  # only searches whose LLM was asked while the clock ran
        live = [
            replace(s, cells={q: c for q, c in s.cells.items() if not c.value("from_file")})
            for s in view.samples(data)
        ]
        timed[data] = live
    lines = [_cost_line(view, sample) for samples in timed.values() for sample in samples]
    about = (
        "Medians over the queries, on the machine that the searches ran on: times of other "
        "machines and LLMs are no comparison.",
        "The paper's: Gemma-3-12B on a GPU cluster (LATS in another local environment); ranges are "
        "of its four data sets.",
        "Searches with calls answered from a file tell no times and are left out.",
        *_at_once(sample for samples in timed.values() for sample in samples),
    )
    columns = ("n", "seconds per query", "seconds per call", "LLM share %", "calls")
    labels = ("data set", "arm")
    seconds = {**_PAPER_LOAN, **_PAPER_SECONDS}
    notes = view.unlike(lambda arm: _paper_row(seconds.get(arm.name, "")))
    means = view.table("cost", "Seconds of a search", labels, columns, lines, about, notes)
    ratios = [_ratio_line(view, data, samples) for data, samples in timed.items()]
    title = "What compression pruning costs: median seconds per query against none"
    heads = ("n", "compression", "none", "ratio")
    return [means, view.table("cost-ratio", title, ("data set",), heads, ratios, about[:2])]


def _at_once(samples: Iterable[ArmSample]) -> Iterator[str]:
    """Say how many searches ran at once, if any did."""
    cells = (cell for sample in samples for cell in sample.cells.values())
    most = max((int(cell.value("at_once") or 1) for cell in cells), default=1)
    if most > 1:
        yield f"Up to {most} searches ran at once on the same LLM, each of another arm."


def _cost_line(view: View, sample: ArmSample) -> TableLine:
    arm, cells = sample.arm, sample.cells.values()
    theirs = _papers_name(view, arm)
    per_call = [seconds / calls for cell in cells
                if (seconds := cell.value("seconds")) is not None
                and (calls := cell.value("calls"))]  # fmt: skip
    whole, llm = (sum(v or 0.0 for v in sample.values(n)) for n in ("seconds", "llm_seconds"))
    figures = (
        sample.count(),
        Figure(_median(sample.values("seconds")), _paper_seconds(arm.data, theirs), 2),
        Figure(_median(per_call), _paper_value(_PAPER_PER_CALL.get(theirs, "")), 3),
        Figure(100 * llm / whole if whole else None, None, 1),
        Figure(sample.mean("calls"), None, 1),
    )
    return TableLine((title_of(arm.data), arm.name), figures, arm.id)


def _median(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return statistics.median(there) if there else None


def _papers_name(view: View, arm: Arm) -> str:
    same = view.papers(arm)
    return "" if same is None else same.name


def _paper_row(what: str) -> paper.PaperRow:
    rows = (row for row in paper.read("cost") if what and row["what"].startswith(what))
    return next(rows, {})


def _paper_value(what: str) -> Number:
    """Return the paper's figure, a range as it is written."""
    return paper.number(_paper_row(what), "value")


def _paper_seconds(data: str, arm: str) -> Number:
    one = _paper_value(_PAPER_LOAN.get(arm, "")) if data == "loan" else None
    return one if one is not None else _paper_value(_PAPER_SECONDS.get(arm, ""))


def _ratio_line(view: View, data: str, samples: list[ArmSample]) -> TableLine:
    """Compare two arms on the queries both have timed: medians of others compare nothing."""
    named = {sample.arm.name: sample for sample in samples}
    both = [named[name] for name in _PAPER_LOAN if name in named]
    shared = set.intersection(*(set(side.cells) for side in both)) if both else set()
    both = [replace(s, cells={q: c for q, c in s.cells.items() if q in shared}) for s in both]
    medians = {side.arm.name: _median(side.values("seconds")) for side in both}
    papers = data == "loan" and all(_papers_name(view, s.arm) == s.arm.name for s in both)
    found = [medians.get(name) for name in _PAPER_LOAN]
    theirs = [_paper_seconds(data, name) if papers else None for name in _PAPER_LOAN]
    fewest = min(both, key=lambda side: side.n).count() if len(both) == 2 else Figure(NOT_RUN)
    figures = [Figure(ours, paper_, 2) for ours, paper_ in zip(found, theirs, strict=True)]
    figures.append(Figure(_ratio(*found), _ratio(*theirs), 3))
    runs = " ".join(side.arm.id for side in both if side.n)
    return TableLine((title_of(data),), (fewest, *figures), runs)


def _ratio(a: Number, b: Number) -> float | None:
    return a / b if isinstance(a, float) and isinstance(b, float) and b else None
