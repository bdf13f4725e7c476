"""A result as plain text, for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence

from waysout.domain.budget import Spent
from waysout.domain.pick import pick, pickable
from waysout.domain.result import Option, Outcome, OutcomeKind, ResultData, Way
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
    """Return a result as plain text: the outcome, the ways to read first, what was spent."""
    labels_only = bool(result.settings.get("labels_only"))
    misses = () if result.options else result.near_misses[:n]
    more = len(pickable(result)) - n
    parts = [_wrapped(said, width) for said in (sentence(result), simulated_note(result)) if said]
    if misses:
        parts.append(_wrapped(f"{NOT_APPROVED}.", width))
    for i, option in enumerate(pick(result, n) if result.options else misses, 1):
        likely = "" if labels_only else f"chance {chance(option.probability)}, "
        remarks = ", not approved each time" if option.stable is False else ""
        remarks += ", does not hold" if is_pocket(option) else ""
        said = change_lines(option.changes)
        if reason := reason_text(option.reasons):
            said.append(f"Reason given: {reason}")
        head = _wrapped(f"{i}. {likely}{change_count(option)}{remarks}", width)
        parts.append("\n".join([head, *(_wrapped(line, width, "   ") for line in said)]))
    word = "more way" if result.ways else "more option"
    parts += [f"… and {counted(more, word)}."] if more > 0 else []
    parts += [_wrapped(said, width) for said in (ending(result), spent(result)) if said]
    return "\n\n".join(parts)


def is_pocket(option: Option) -> bool:
    """Whether a way is known not to hold: with more of the same changes, it is a no again."""
    return isinstance(option, Way) and option.holds is False


def option_rows(
    options: Sequence[Option], *, reasons: bool = True, chances: bool = True
) -> tuple[list[str], list[list[str]]]:
    """Return options as a table: its columns, and its rows of text.

    Reasons go below the changes, where a column would be too narrow. The columns on stability and
    on holding are left out if nothing is amiss; that of ``chances`` is for models that give
    probabilities.
    """
    unstable, pockets = any(o.stable is False for o in options), any(map(is_pocket, options))
    columns = ["#", "what changes", *["chance"] * chances, "changes", "nearness"]
    columns += ["stable"] * unstable + ["holds"] * pockets
    rows = []
    for i, option in enumerate(options, 1):
        reason = cut(reason_text(option.reasons), _LONGEST_REASON) if reasons else ""
        told = [*change_lines(option.changes), *([f"Reason given: {reason}"] if reason else [])]
        row = [str(i), "\n".join(told), *[chance(option.probability)] * chances,
               str(option.sparsity), f"{option.proximity:.2f}"]  # fmt: skip
        row += [value_text(option.stable)] * unstable
        rows.append(row + [value_text(False) if is_pocket(option) else ""] * pockets)
    if any("\n" in row[1] for row in rows):
        for row in rows[:-1]:
            row[1] += "\n"  # a blank line between options of several lines
    return columns, rows


def sentence(result: ResultData, write: WriteChanges = change_lines) -> str:
    """Describe how the search ended; ``write`` turns changes into text."""
    options, labels_only = result.options, bool(result.settings.get("labels_only"))
    if not options:
        return _nothing_found(result.outcome, labels_only)
    found = pickable(result)
    first = pick(result, 1)[0] if result.ways else max(options, key=lambda o: o.proximity)
    which = "It" if len(found) == 1 else "The first to read" if result.ways else "The nearest"
    changes = [cut(line, 80) for line in write(first.changes)]
    rest = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
    said = [
        f"{counted(len(found), 'way out', 'ways out')} found{_among(result)}",
        f"{which} changes {counted(first.sparsity, 'thing')} ({', '.join(changes[:3])}{rest})"
        + ("" if labels_only else f" for a chance of {chance(first.probability)}"),
    ]
    if all(map(is_pocket, found)):
        said.append("Nothing that holds was found: with more of the same changes it is a no again")
    unstable = sum(o.stable is False for o in found)
    if unstable:
        was = "was" if unstable == 1 else "were"
        said.append(f"{unstable} of them {was} not approved each time the model was asked")
    if result.outcome.kind in _CUT_SHORT:
        said.append(_with_reason(_CUT_SHORT[result.outcome.kind], result.outcome.reason))
    return ". ".join(said) + "."


def _among(result: ResultData) -> str:
    options = result.options
    if result.ways:
        many = len(options) > len(result.ways)
        return f", out of {counted(len(options), 'option')}" if many else ""
    sets = int(result.metrics.get("lever_sets") or len({frozenset(o.changes) for o in options}))
    return f", over {counted(sets, 'different set')} of features" if sets > 1 else ""


def _nothing_found(outcome: Outcome, labels_only: bool) -> str:
    what, best = _NOTHING_FOUND[outcome.kind], outcome.best_probability
    if outcome.kind is OutcomeKind.INFEASIBLE and not outcome.binding:
        what = "There is no way out"
    reason = outcome.reason
    reasons = list(dict.fromkeys(v.reason for v in outcome.binding))
    if len(reasons) > 3:  # one for each of many features
        reason = f"{'; '.join(reasons[:3])}; and {len(reasons) - 3} more"
    said = _with_reason(what, reason)
    if best is None or labels_only:
        return f"{said}."
    if outcome.kind is OutcomeKind.ALREADY_APPROVED:
        return f"{said} (chance {chance(best)})."
    if outcome.kind is OutcomeKind.INFEASIBLE:
        return f"{said}. The chance as things stand is {chance(best)}."
    return f"{said}. The best chance reached is {chance(best)}."


def ending(result: ResultData) -> str:
    """Say why a search that found options ended; empty where `sentence` already does."""
    if not result.options or result.outcome.kind in _CUT_SHORT or not result.outcome.reason:
        return ""
    return f"{_with_reason('The search ended', result.outcome.reason)}."


def spent(result: ResultData) -> str:
    """Say what a search spent and saved."""
    return spent_line(result.ledger, int(result.metrics.get("calls_saved") or 0))


def spent_line(ledger: Spent, saved: int = 0) -> str:
    """Say what was spent, and the number of calls saved if there are any.

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
    """Say that proposals came from the simulated LLM; empty if none did."""
    named = str(result.settings.get("llm", "")).startswith("simulated")
    if not named or not result.ledger.llm_calls:
        return ""
    said = _PARTLY_SIMULATED if has_own_edits(result) else _SIMULATED
    return f"Simulated: {said}. The answers of the model that decides are real."


def has_own_edits(result: ResultData) -> bool:
    """Whether the search added changes of its own to those that an LLM proposed."""
    told = result.settings.get("method_settings")
    return isinstance(told, Mapping) and bool(told.get("own_edits"))


def _with_reason(said: str, reason: str) -> str:
    reason = clean(reason).rstrip(".")
    return f"{said}: {reason}" if reason else said


def _wrapped(text: str, width: int, indent: str = "") -> str:
    inner = indent + "  " if indent else ""
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=inner)
