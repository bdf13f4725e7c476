"""Every claim with its verdicts, and the comparisons that decide them."""

from __future__ import annotations

from collections.abc import Iterator

from waysout.bench.claims import CLAIMS, judge_all
from waysout.bench.judge import RULES, ClaimOutcome, ClaimVerdict
from waysout.bench.readings import READINGS
from waysout.bench.table import NOT_RUN, Figure, ResultTable, TableLine
from waysout.bench.tables_base import (
    NOVELTY,
    PAIRED,
    PROXIMITY,
    PRUNED,
    ROWS,
    SPARSITY,
    UNIQUE,
    VALIDITY,
    View,
    llm_words,
    title_of,
)
from waysout.errors import InputError

_DIGITS = {m.name: m.digits
           for m in (UNIQUE, PROXIMITY, SPARSITY, NOVELTY, PRUNED, ROWS, VALIDITY)}  # fmt: skip
_COLUMNS = ("n", "A", "B", "Δ", "low", "high", "p", "must be", "is it?", "n to decide")


def claims(view: View) -> list[ResultTable]:
    """Return the verdicts on all claims under each reading, and every comparison behind them.

    A claim that is about no LLM has the same verdict for all of them.
    """
    if view.own is not None:
        raise InputError("claims have plans of their own: leave --plan out")
    tables = []
    for llm in (view.llm,) if view.llm else view.llms:
        found = {name: judge_all(view.cells, llm, name) for name in READINGS}
        tables += [_verdicts(view, llm, found), _comparisons(view, llm, found)]
    return tables


def _verdicts(view: View, llm: str, found: dict[str, list[ClaimVerdict]]) -> ResultTable:
    lines = []
    for same in zip(*found.values(), strict=True):
        for verdict in same:
            judged = [o.found.n for o in verdict.outcomes if o.is_judged]
            labels = (verdict.claim.title, verdict.reading, verdict.words)
            lines.append(TableLine(labels, (Figure(float(min(judged, default=0)), digits=0),)))
    notes = [f"{claim.title}. {f'The paper: {claim.says} ' if claim.says else ''}{claim.remark} "
             f"{f'But {claim.caveat}.' if claim.caveat else ''}".strip()
             for claim in CLAIMS]  # fmt: skip
    return ResultTable(
        "claims", "What is claimed, and the verdicts", _about(llm), ("claim", "reading", "verdict"),
        ("n",), tuple(lines), tuple(notes), view.command,
    )  # fmt: skip


def _comparisons(view: View, llm: str, found: dict[str, list[ClaimVerdict]]) -> ResultTable:
    lines = [
        line for name, verdicts in found.items() for verdict in verdicts
        for line in _lines(name, verdict)
    ]  # fmt: skip
    labels = ("reading", "claim", "data set", "metric", "A → B")
    rules = tuple(f"{how}: {words}." for how, words in RULES.items())
    about = (*_about(llm), PAIRED, *rules)
    return ResultTable("claims-comparisons", "The comparisons behind the verdicts", about, labels,
                       _COLUMNS, tuple(lines), command=view.command)  # fmt: skip


def _about(llm: str) -> tuple[str, ...]:
    return (f"LLM: {llm_words(llm) if llm else 'none is asked'}",)


def _lines(reading: str, verdict: ClaimVerdict) -> Iterator[TableLine]:
    for outcome in verdict.outcomes:
        if outcome.was_run:
            expected = outcome.expected
            metric = (f"{expected.metric} against {expected.other}" if expected.other
                      else expected.metric)  # fmt: skip
            labels = (reading, verdict.claim.name, title_of(outcome.data), metric,
                      f"{outcome.a} → {outcome.b}")  # fmt: skip
            yield TableLine(labels, _figures(outcome))


def _figures(outcome: ClaimOutcome) -> tuple[Figure, ...]:
    found, how = outcome.found, outcome.expected.how
    digits = _DIGITS.get(outcome.expected.metric, 2)
    theirs_a, theirs_b = outcome.theirs
    needed = outcome.queries_to_decide if outcome.is_judged else None
    return (
        Figure(float(found.n) if found.n else NOT_RUN, digits=0),
        Figure(found.mean_a, theirs_a, digits),
        Figure(found.mean_b, theirs_b, digits),
        Figure(found.delta, None, digits, signed=True),
        Figure(found.low, None, digits, signed=True),
        Figure(found.high, None, digits, signed=True),
        Figure(found.p, None, 2, general=True),
        Figure(how),
        Figure(outcome.answer if outcome.is_judged else None),
        Figure(None if needed is None else float(needed), digits=0),
    )
