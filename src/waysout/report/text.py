"""A result as plain text: for a terminal, and the sentences that people read everywhere else."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from waysout.domain.budget import Spent
from waysout.domain.pick import pick, pickable
from waysout.domain.result import Option, Outcome, OutcomeKind, ResultData, TipStatus
from waysout.llm.connect import stand_in
from waysout.report.advice import advice
from waysout.report.rules import obstacle_words
from waysout.report.tipping import TITLE, Alone, alone
from waysout.report.words import (
    PLAIN_GOAL,
    AsStored,
    Wording,
    capital,
    chance,
    change_count,
    clean,
    counted,
    cut,
    doubts,
    goal_text,
    limits_of,
    listed,
    reason_text,
    safer_levels,
)

NOT_APPROVED = "Near misses: NOT approved, only the nearest the search came"
_STAND_IN = "these changes were proposed by a stand-in, not by a language model"
_PARTLY_STAND_IN = (
    "some of these changes were proposed by a stand-in, not by a language model; the others, "
    "without a reason, by the search itself"
)
_LONGEST, _LONGEST_REASON = 40, 200
_MOST_NAMED = 3  # ways in a headline, and changes of each
MOST_TIPS = 10  # of features alone, in a terminal
_NOTHING_FOUND = {
    OutcomeKind.FOUND: "The search ended without an option to show",
    OutcomeKind.ALREADY_APPROVED: "Nothing needs to change",
    OutcomeKind.INFEASIBLE: "There is no way out under the rules",
    OutcomeKind.BUDGET_SPENT: "No way out was found within the budget",
    OutcomeKind.EXHAUSTED: "No way out was found, and this search has nothing left to try",
    OutcomeKind.INTERRUPTED: "The search was interrupted before it found a way out",
    OutcomeKind.FAILED: "The search failed",
}
# Why searches end, in the words of methods and budgets, and as people say it.
_AT_A_LIMIT = (
    (r"all ([\d,]+) oracle rows are spent", "Stopped at the limit of {} model checks"),
    (r"oracle rows would pass the limit of (\d+)", "Stopped at the limit of {} model checks"),
    (r"all ([\d,]+) LLM calls are spent", "Stopped at the limit of {} questions to an LLM"),
    (r"the deadline of (\S+) seconds has passed", "Stopped at the limit of {} seconds"),
    (r"the limit of (\S+ (?:tokens|in money))", "Stopped at the limit of {}"),
)
_BY_REQUEST = ("", "stopped by request")
_NUMBERS = (
    "No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven",
    "Twelve",
)  # fmt: skip
_CUT_SHORT = {
    OutcomeKind.INTERRUPTED: "The search was interrupted",
    OutcomeKind.FAILED: "The search failed before its end",
}


def lines(result: ResultData, width: int = 100, n: int = 5) -> str:
    """Return a result as plain text: the outcome, the ways to read first, what was spent."""
    wording = AsStored.of(result)
    misses = () if result.options else result.near_misses[:n]
    more = len(pickable(result)) - n
    first = (sentence(result), stand_in_note(result), *note_lines(result))
    parts = [_wrapped(said, width) for said in first if said]
    if misses:
        parts.append(_wrapped(f"{NOT_APPROVED}.", width))
    for i, option in enumerate(pick(result, n) if result.options else misses, 1):
        likely = "" if wording.labels_only else f"chance {wording.chance(option.probability)}, "
        said = notes_on(option, result.settings)
        head = _wrapped(f"{i}. {likely}{change_count(option)}", width)
        parts.append("\n".join([head, *(_wrapped(line, width, "   ") for line in said)]))
    word = "more way" if result.ways else "more option"
    parts += [f"… and {counted(more, word)}."] if more > 0 else []
    if tips := alone(result, wording):
        told = [f"{tip.name} (now {tip.now}): {tip.said}" for tip in tips[:MOST_TIPS]]
        told += _left_out(tips)
        parts.append("\n".join([f"{TITLE}:", *(_wrapped(line, width, "   ") for line in told)]))
    parts += [_wrapped(said, width) for said in (ending(result), spent(result)) if said]
    return "\n\n".join(parts)


def tip_rows(result: ResultData) -> tuple[list[str], list[list[str]]]:
    """Return what each feature does alone as a table: its columns, and its rows of text."""
    tips = alone(result, AsStored.of(result))
    rows = [[tip.name, tip.now, tip.said] for tip in tips[:MOST_TIPS]]
    rows += [["", "", said] for said in _left_out(tips)]
    return ["feature", "now", "alone"], rows


def _left_out(tips: Sequence[Alone]) -> list[str]:
    rest = tips[MOST_TIPS:]
    turn = any(tip.status is TipStatus.TURNS for tip in rest)
    return [f"… and {len(rest):,} more{'' if turn else ', none of them enough'}"] if rest else []


def notes_on(
    option: Option, settings: Mapping[str, Any] | None = None, *, reasons: bool = True
) -> list[str]:
    """Return an option in lines: its changes, what is doubtful, safer variants, the reasons."""
    reason = cut(reason_text(option.reasons), _LONGEST_REASON) if reasons else ""
    wording = AsStored.from_settings(settings or {})
    return [
        *wording.lines(option.changes),
        *doubts(option),
        *safer_lines(option, settings or {}, wording),
        *([f"Reason given: {reason}"] if reason else []),
    ]


def safer_lines(option: Option, settings: Mapping[str, Any], wording: Wording) -> list[str]:
    """Return a line for each higher chance that was asked for: what reaches it."""
    found, none = [], []
    for level, safer in safer_levels(option, settings).items():
        if safer is None:
            none.append(wording.chance(level))
        elif safer.row == option.row:
            found.append(f"at least {wording.chance(level)}: has it already")
        else:
            told = []
            for name, pair in safer.changes.items():
                before, after = wording.pair(name, *pair)
                told.append(f"{wording.name(name)} {before} → {after}")
            reached = wording.chance(safer.probability)
            found.append(f"at least {wording.chance(level)}: {', '.join(told)} ({reached})")
    if none:
        found.append(f"no variant with at least {listed(none, 'or')} was found")
    return found


def option_rows(
    options: Sequence[Option],
    settings: Mapping[str, Any] | None = None,
    *,
    reasons: bool = True,
    chances: bool = True,
) -> tuple[list[str], list[list[str]]]:
    """Return options as a table: its columns, and its rows of text.

    All that is to be said of an option goes below its changes, where a column would be too narrow.
    The column of ``chances`` is for models that give probabilities.
    """
    columns = ["#", "what changes", *["chance"] * chances, "nearness"]
    rows = []
    for i, option in enumerate(options, 1):
        told = notes_on(option, settings, reasons=reasons)
        if len(option.changes) > option.sparsity:
            told.append(change_count(option))
        likely = [chance(option.probability, limits_of(settings or {}))] * chances
        rows.append([str(i), "\n".join(told), *likely, f"{option.proximity:.2f}"])
    if any("\n" in row[1] for row in rows):
        for row in rows[:-1]:
            row[1] += "\n"  # a blank line between options of several lines
    return columns, rows


def headline(result: ResultData) -> str:
    """Say how many ways were found, and among how many rows.

    >>> headline(ResultData({}, Outcome(OutcomeKind.FOUND), metrics={"valid": 4, "evaluated": 9}))
    '0 options (4 of 9 rows approved)'
    """
    found = counted(len(result.options), "option")
    if result.ways:
        found = counted(len(result.ways), "way out", "ways out")
    approved, asked = (int(result.metrics.get(name) or 0) for name in ("valid", "evaluated"))
    return f"{found} ({approved:,} of {counted(asked, 'row')} approved)" if asked else found


def sentence(result: ResultData, wording: Wording | None = None) -> str:
    """Say how the search ended, and what to do; without ``wording``, as it is in the table."""
    wording = wording or AsStored.of(result)
    if not result.options:
        return _nothing_found(result.outcome, wording)
    found = pickable(result)
    said = [headline(result), *_what_to_do(result, wording)]
    unstable = sum(o.stable is False for o in found)
    if unstable:
        was = "was" if unstable == 1 else "were"
        said.append(f"{unstable} of them {was} not approved each time the model was asked")
    if result.outcome.kind in _CUT_SHORT:
        said.append(_with_reason(_CUT_SHORT[result.outcome.kind], result.outcome.reason))
    return ". ".join(said) + "."


def _what_to_do(result: ResultData, wording: Wording) -> list[str]:
    """Say what turns the decision: ways without a doubt, or the first and what is doubtful."""
    first = pick(result, _MOST_NAMED)
    sure = [option for option in first if not doubts(option)]
    one, *others = sure or first[:1]
    goal = goal_text(result.settings.get("goal"))
    reached = f"{capital(goal)} is reached"
    said = "The model says yes" if goal == PLAIN_GOAL else reached
    said += f" if {_changes(one, wording, ' goes')}"
    told = [said + "".join(f"; or {_changes(option, wording)}" for option in others)]
    if not result.ways:
        told.append("Whether every change is needed was not asked")
    elif not sure:  # that one wavers is said of all that do
        told += map(capital, doubts(replace(one, stable=None)))
    return told


def _changes(option: Option, wording: Wording, verb: str = "") -> str:
    """Write changes as part of a sentence: "income goes from 40 to 52 and term from 36 to 60"."""
    texts = []
    for name, pair in option.changes.items():
        old, new = (cut(text, _LONGEST) for text in wording.pair(name, *pair))
        texts.append(f"{cut(wording.name(name), _LONGEST)}{verb} from {old} to {new}")
        verb = ""
    rest = len(texts) - _MOST_NAMED
    return listed([*texts[:_MOST_NAMED], *([counted(rest, "more change")] if rest > 0 else [])])


def _nothing_found(outcome: Outcome, wording: Wording) -> str:
    what, best = _NOTHING_FOUND[outcome.kind], outcome.best_probability
    if outcome.kind is OutcomeKind.INFEASIBLE and not outcome.binding:
        what = "There is no way out"
    reason = outcome.reason
    reasons = list(dict.fromkeys(v.reason for v in outcome.binding))
    if len(reasons) > 3:  # one for each of many features
        reason = f"{'; '.join(reasons[:3])}; and {len(reasons) - 3} more"
    said = _with_reason(what, reason)
    if best is None or wording.labels_only:
        return f"{said}."
    likely = wording.chance(best)
    if outcome.kind is OutcomeKind.ALREADY_APPROVED:
        return f"{said} (chance {likely})."
    if outcome.kind is OutcomeKind.INFEASIBLE:
        return f"{said}. The chance as things stand is {likely}."
    return f"{said}. The best chance reached is {likely}."


def lead(result: ResultData, wording: Wording, ways: Sequence[Option] = ()) -> str:
    """Say to people what would turn the decision, or that nothing was found."""
    outcome = result.outcome
    if result.options or ways:
        return advice(result, wording, ways)
    best = outcome.best_probability
    likely = "" if best is None else wording.chance(best)
    if outcome.kind is OutcomeKind.ALREADY_APPROVED:
        goal = goal_text(result.settings.get("goal"))
        said = "Already approved" if goal == PLAIN_GOAL else f"Already reached: {goal}"
        return f"{said} (chance {likely})." if likely else f"{said}."
    if outcome.kind is OutcomeKind.INFEASIBLE and outcome.binding:
        held = "; ".join(dict.fromkeys(obstacle_words(v, wording) for v in outcome.binding))
        return f"There is no way out under the rules. What holds it: {held}."
    if outcome.kind is OutcomeKind.INFEASIBLE:
        return _nothing_found(outcome, wording)
    reached = f" The best chance reached is {likely}." if likely else ""
    return f"No way out was found.{reached}"


def headline_words(count: int, one: str = "route", many: str = "different routes") -> str:
    """Write a number of things as a heading.

    >>> headline_words(5), headline_words(1), headline_words(13)
    ('Five different routes', 'One route', '13 different routes')
    """
    number = _NUMBERS[count] if count < len(_NUMBERS) else f"{count:,}"
    return f"{number} {one if count == 1 else many}"


def ending(result: ResultData, *, people: bool = False) -> str:
    """Say why a search that found options ended; empty where `sentence` already does.

    For ``people`` every end is told that another word of theirs does not tell already.
    """
    if people:
        return _ending_for_people(result.outcome)
    if not result.options or result.outcome.kind in _CUT_SHORT or not result.outcome.reason:
        return ""
    return f"{_with_reason('The search ended', result.outcome.reason)}."


def _ending_for_people(outcome: Outcome) -> str:
    reason = clean(outcome.reason).rstrip(".")
    if outcome.kind in (OutcomeKind.ALREADY_APPROVED, OutcomeKind.INFEASIBLE):
        return ""
    if outcome.kind is OutcomeKind.INTERRUPTED:
        if reason in _BY_REQUEST:
            return "Stopped by you."
        going_on = "still under way" in reason  # of a search that a service shows while it runs
        return f"{capital(reason) if going_on else f'Stopped before its end: {reason}'}."
    if outcome.kind is OutcomeKind.FAILED:
        return f"{_with_reason('The search failed', reason)}."
    for pattern, said in _AT_A_LIMIT:
        if found := re.search(pattern, reason):
            return f"{said.format(found[1])}."
    if outcome.kind is OutcomeKind.BUDGET_SPENT:
        return f"{_with_reason('Stopped at its limit', reason)}."
    # Methods name what they ran out of in terms of their own.
    return "Nothing was left to try." if reason else ""


def spent(result: ResultData) -> str:
    """Say what a search spent and saved."""
    return spent_line(result.ledger, int(result.metrics.get("calls_saved") or 0))


def spent_line(ledger: Spent, saved: int = 0) -> str:
    """Say what was spent, and the number of calls saved if there are any.

    >>> spent_line(Spent(llm_calls=3, attempts=4, tokens_in=1200, tokens_out=90, oracle_rows=15))
    'Spent: 3 LLM calls (4 attempts; 1,200 tokens in, 90 out), 15 oracle rows, 0.0 s.'
    >>> spent_line(Spent(llm_calls=6, attempts=6, oracle_rows=150), saved=24)
    'Spent: 6 LLM calls (24 saved), 150 oracle rows, 0.0 s.'
    >>> spent_line(Spent(oracle_rows=150, setup_rows=49, seconds=0.5))
    'Spent: 150 oracle rows and 49 for set-up, 0.5 s.'
    """
    calls = counted(ledger.llm_calls, "LLM call")
    notes = [f"{saved:,} saved"] if saved else []
    if ledger.attempts != ledger.llm_calls:
        notes.append(counted(ledger.attempts, "attempt"))
    if ledger.tokens_in or ledger.tokens_out:
        notes.append(f"{counted(ledger.tokens_in, 'token')} in, {ledger.tokens_out:,} out")
    asked = ledger.llm_calls or notes
    parts = [f"{calls} ({'; '.join(notes)})" if notes else calls] if asked else []
    set_up = f" and {ledger.setup_rows:,} for set-up" if ledger.setup_rows else ""
    parts.append(counted(ledger.oracle_rows, "oracle row") + set_up)
    parts += [f"{ledger.money:g} in money"] if ledger.money else []
    return f"Spent: {', '.join(parts)}, {ledger.seconds:,.1f} s."


def note_lines(result: ResultData) -> list[str]:
    """Return what a reader should know about how the result came about, a line for each note."""
    return [f"Note: {said}" for note in result.notes if (said := clean(note))]


def stand_in_note(result: ResultData) -> str:
    """Say that proposals came from no language model but a stand-in; empty if none did."""
    instead = stand_in(str(result.settings.get("llm", "")))
    if not instead or not result.ledger.llm_calls:
        return ""
    said = _PARTLY_STAND_IN if has_own_edits(result) else _STAND_IN
    return f"{instead.capitalize()}: {said}. The answers of the model that decides are real."


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
