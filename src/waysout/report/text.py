"""A result in plain words, for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence

from waysout.domain.budget import Spent
from waysout.domain.pick import pick
from waysout.domain.result import Option, Outcome, OutcomeKind, ResultData
from waysout.domain.schema import Value
from waysout.report.words import (
    chance,
    change_count,
    change_lines,
    clean,
    counted,
    cut,
    reason_text,
    value_text,
)

WriteChanges = Callable[[Mapping[str, tuple[Value, Value]]], list[str]]

NOT_APPROVED = "Near misses: NOT approved, only the nearest the search came"
_SIMULATED = "these changes were proposed by a stand-in, not by a language model"
_PARTLY_SIMULATED = (
    "some of these changes were proposed by a stand-in, not by a language model; the others, "
    "without a reason, by the search itself"
)
_LONGEST_REASON = 200
_NOTHING_FOUND = {
    OutcomeKind.FOUND: "The search ended without an option to show",
    OutcomeKind.ALREADY_APPROVED: "Nothing needs to change",
    OutcomeKind.INFEASIBLE: "There is no way out under the rules",
    OutcomeKind.BUDGET_SPENT: "No way out was found within the budget",
    OutcomeKind.EXHAUSTED: "No way out was found, and nothing is left to try",
    OutcomeKind.INTERRUPTED: "The search was interrupted before it found a way out",
    OutcomeKind.FAILED: "The search failed",
}
_CUT_SHORT = {
    OutcomeKind.INTERRUPTED: "The search was interrupted",
    OutcomeKind.FAILED: "The search failed before its end",
}


def lines(result: ResultData, width: int = 100, n: int = 5) -> str:
    """Return a result as plain text: what came out, the options to read first, what was spent."""
    parts, labels_only = [_wrapped(sentence(result), width)], _has_labels_only(result)
    if note := simulated_note(result):
        parts.append(_wrapped(note, width))
    if result.options:
        parts += _entries(pick(result, n), labels_only, width)
        more = len(result.options) - n
        parts += [f"… and {counted(more, 'more option')}."] if more > 0 else []
    elif result.near_misses:
        parts.append(_wrapped(f"{NOT_APPROVED}.", width))
        parts += _entries(result.near_misses[:n], labels_only, width)
    parts += [_wrapped(said, width) for said in (ending(result), spent(result)) if said]
    return "\n\n".join(parts)


def option_rows(
    options: Sequence[Option], *, reasons: bool = True, chances: bool = True
) -> tuple[list[str], list[list[str]]]:
    """Return options as a table: its columns, and its rows of text.

    Reasons stand below the changes, where a column would be too narrow. The column on stability is
    left out where there is nothing to say; that of ``chances`` is for models that give some.
    """
    unstable = any(o.stable is False for o in options)
    columns = ["#", "what changes", *["chance"] * chances, "changes", "nearness"]
    columns += ["stable"] * unstable
    rows = []
    for i, option in enumerate(options, 1):
        reason = cut(reason_text(option.reasons), _LONGEST_REASON) if reasons else ""
        told = [*change_lines(option.changes), *([f"Reason given: {reason}"] if reason else [])]
        row = [str(i), "\n".join(told), *[chance(option.probability)] * chances,
               str(option.sparsity), f"{option.proximity:.2f}"]  # fmt: skip
        rows.append(row + [value_text(option.stable)] * unstable)
    if any("\n" in row[1] for row in rows):
        for row in rows[:-1]:
            row[1] += "\n"  # a blank line between options of several lines
    return columns, rows


def sentence(result: ResultData, write: WriteChanges = change_lines) -> str:
    """Say in plain words how the search ended; ``write`` puts changes into words."""
    if not result.options:
        return _nothing_found(result.outcome, _has_labels_only(result))
    options = result.options
    nearest = max(options, key=lambda o: o.proximity)
    best = nearest.probability
    which = "It" if len(options) == 1 else "The nearest"
    sets = int(result.metrics.get("lever_sets") or len({frozenset(o.changes) for o in options}))
    said = [
        f"{counted(len(options), 'way out', 'ways out')} found"
        + (f", over {counted(sets, 'different set')} of features" if sets > 1 else ""),
        f"{which} changes {counted(nearest.sparsity, 'thing')} "
        f"({_in_short(write(nearest.changes))})"
        + ("" if _has_labels_only(result) else f" for a chance of {chance(best)}"),
    ]
    unstable = sum(o.stable is False for o in options)
    if unstable:
        was = "was" if unstable == 1 else "were"
        said.append(f"{unstable} of them {was} not approved each time the model was asked")
    if result.outcome.kind in _CUT_SHORT:
        said.append(_with_reason(_CUT_SHORT[result.outcome.kind], result.outcome.reason))
    return ". ".join(said) + "."


def ending(result: ResultData) -> str:
    """Say why a search that found something came to its end; empty where `sentence` does."""
    if not result.options or result.outcome.kind in _CUT_SHORT or not result.outcome.reason:
        return ""
    return f"{_with_reason('The search ended', result.outcome.reason)}."


def spent(result: ResultData) -> str:
    """Say what a search has spent and saved."""
    return spent_line(result.ledger, int(result.metrics.get("calls_saved") or 0))


def spent_line(ledger: Spent, saved: int = 0) -> str:
    """Say what was spent, and how many calls were saved if some were.

    >>> spent_line(Spent(llm_calls=3, attempts=4, tokens_in=1200, tokens_out=90, oracle_rows=15))
    'Spent: 3 LLM calls (4 attempts; 1,200 tokens in, 90 out), 15 oracle rows, 0.0 s.'
    >>> spent_line(Spent(llm_calls=6, attempts=6, oracle_rows=150), saved=24)
    'Spent: 6 LLM calls (24 saved), 150 oracle rows, 0.0 s.'
    """
    calls = counted(ledger.llm_calls, "LLM call")
    notes = [f"{saved:,} saved"] if saved else []
    if ledger.attempts != ledger.llm_calls:
        notes.append(counted(ledger.attempts, "attempt"))
    if ledger.tokens_in or ledger.tokens_out:
        notes.append(f"{counted(ledger.tokens_in, 'token')} in, {ledger.tokens_out:,} out")
    parts = [f"{calls} ({'; '.join(notes)})" if notes else calls]
    parts.append(counted(ledger.oracle_rows, "oracle row"))
    parts += [f"{ledger.money:g} in money"] if ledger.money else []
    return f"Spent: {', '.join(parts)}, {ledger.seconds:,.1f} s."


def simulated_note(result: ResultData) -> str:
    """Say that proposals came from the simulated LLM; nothing where none did."""
    named = str(result.settings.get("llm", "")).startswith("simulated")
    if not named or not result.ledger.llm_calls:
        return ""
    said = _PARTLY_SIMULATED if has_own_edits(result) else _SIMULATED
    return f"Simulated: {said}. The answers of the model that decides are real."


def has_own_edits(result: ResultData) -> bool:
    """Whether the search added changes of its own to those that an LLM proposed."""
    told = result.settings.get("method_settings")
    return isinstance(told, Mapping) and bool(told.get("own_edits"))


def _has_labels_only(result: ResultData) -> bool:
    """Whether the model says yes or no, and nothing between."""
    return bool(result.settings.get("labels_only"))


def _nothing_found(outcome: Outcome, labels_only: bool) -> str:
    what = _NOTHING_FOUND[outcome.kind]
    if outcome.kind is OutcomeKind.INFEASIBLE and not outcome.binding:
        what = "There is no way out"
    said = _with_reason(what, _few_reasons(outcome))
    best = outcome.best_probability
    if best is None or labels_only:
        return f"{said}."
    if outcome.kind is OutcomeKind.ALREADY_APPROVED:
        return f"{said} (chance {chance(best)})."
    if outcome.kind is OutcomeKind.INFEASIBLE:
        return f"{said}. The chance as things stand is {chance(best)}."
    return f"{said}. The best chance reached is {chance(best)}."


def _few_reasons(outcome: Outcome) -> str:
    """Return why, cut short where one reason for each of many features would follow."""
    reasons = list(dict.fromkeys(v.reason for v in outcome.binding))
    if len(reasons) <= 3:
        return outcome.reason
    return f"{'; '.join(reasons[:3])}; and {len(reasons) - 3} more"


def _with_reason(said: str, reason: str) -> str:
    reason = clean(reason).rstrip(".")
    return f"{said}: {reason}" if reason else said


def _in_short(lines: Sequence[str], most: int = 3) -> str:
    written = [cut(line, 80) for line in lines]
    rest = len(written) - most
    return ", ".join(written[:most]) + (f" and {rest} more" if rest > 0 else "")


def _entries(options: Sequence[Option], labels_only: bool, width: int) -> list[str]:
    return [_entry(i, option, labels_only, width) for i, option in enumerate(options, 1)]


def _entry(number: int, option: Option, labels_only: bool, width: int) -> str:
    likely = "" if labels_only else f"chance {chance(option.probability)}, "
    unstable = ", not approved each time" if option.stable is False else ""
    head = f"{number}. {likely}{change_count(option)}{unstable}"
    said = [_wrapped(head, width)]
    said += [_wrapped(line, width, "   ") for line in change_lines(option.changes)]
    reason = reason_text(option.reasons)
    said += [_wrapped(f"Reason given: {reason}", width, "   ")] if reason else []
    return "\n".join(said)


def _wrapped(text: str, width: int, indent: str = "") -> str:
    inner = indent + "  " if indent else ""
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=inner)
