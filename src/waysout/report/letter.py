"""A result as a letter to the person concerned: plain language, from a template and nothing else.

What a language model wrote, reasons above all, is never printed, nor is the text of a failure,
which may quote a server. Names and values are untrusted: each is cleaned, cut and marked on its way
in, and in plain text only the template's own headings begin at the margin, so that a value cannot
pass for one.

The template (``letter.txt``) is made of parts: ``@`` and the conditions that must all hold, then
blocks with an empty line between them. A block is the subject (``##``), a heading (``#``), items
(``-``), a list that is filled in (its name alone) or a paragraph.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from html import escape
from itertools import count, groupby
from string import Template

from waysout.domain.pick import pickable
from waysout.domain.result import Option, OutcomeKind, ResultData
from waysout.domain.schema import Value
from waysout.report.advice import BY_HAND, advised, doubts_about, move_words, moved
from waysout.report.html import decision, esc, packaged, standing, whole_page
from waysout.report.rules import obstacle_words
from waysout.report.text import stand_in_note
from waysout.report.tipping import alone, first_of
from waysout.report.words import (
    PLAIN_GOAL,
    Wording,
    capital,
    clean,
    counted,
    cut,
    date_text,
    doubts_in_full,
    goal_text,
    listed,
    safer_levels,
)

WIDTH = 78
_LONGEST = 160  # characters of a name or a value
_MOST = 24  # values, or rules that stand in the way
_MOST_SAME = 12  # values that stay, where there are ways to read
_MOST_TIPS = 3
_ENDINGS = {
    OutcomeKind.ALREADY_APPROVED: "approved",
    OutcomeKind.INTERRUPTED: "interrupted",
    OutcomeKind.FAILED: "failed",
}
_OPTIONAL = ("title", "stand_in", "decision", "same")
_KINDS = {"##": "subject", "#": "heading", "-": "items"}
_TAGS = {"subject": "h1", "heading": "h2", "text": "p", "numbers": "ol", "items": "ul"}

Mark = Callable[[object], str]
Block = tuple[str, Sequence[str]]
"""A kind (a subject, a heading, a text, a list with numbers or without), and its texts."""


def letter_text(
    result: ResultData,
    *,
    when: date | None = None,
    n: int = 3,
    ways: Sequence[Option] | None = None,
) -> str:
    """Return the letter as plain text of 78 columns, with at most n options.

    ``when`` is the day of the search, which a result does not hold; ``ways`` are told instead of
    those that would be picked.
    """
    written, gap = "", ""
    for kind, texts in _blocks(_Facts(result, when, n, _short, tuple(ways or ())), str):
        first = texts[0] if texts else ""
        if kind in ("subject", "heading"):
            said, mark = (first.upper(), "=") if kind == "subject" else (first, "-")
            block = f"{said}\n{mark * len(said)}"
        elif kind == "text":
            block = _wrapped(first, "  ")
        else:
            marks = (f"{i}." if kind == "numbers" else "-" for i in count(1))
            items = zip(marks, texts, strict=False)
            block = "\n".join(_wrapped(text, f"  {mark} ") for mark, text in items)
        written += gap + block
        gap = "\n" if kind == "heading" else "\n\n"
    return f"{written}\n"


def letter_page(
    result: ResultData,
    *,
    when: date | None = None,
    n: int = 3,
    ways: Sequence[Option] | None = None,
) -> str:
    """Return the letter as a page of its own, made to be printed; see `letter_text`."""

    def mark(text: object) -> str:
        # Nothing stays nothing: the template leaves out what is empty.
        return esc(_short(text)) if _short(text) else ""

    body = []
    for kind, texts in _blocks(_Facts(result, when, n, mark, tuple(ways or ())), escape):
        tag, inner = _TAGS[kind], "".join(f"<li>{text}</li>" for text in texts)
        body.append(f"<{tag}>{inner if tag in ('ol', 'ul') else texts[0]}</{tag}>")
    return whole_page("A letter about a decision", "letter.css", "\n".join(body))


def _short(text: object) -> str:
    return cut(clean(text), _LONGEST)


def _wrapped(text: str, first: str) -> str:
    then = " " * len(first)
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=then)


def _blocks(facts: _Facts, prose: Callable[[str], str]) -> Iterator[Block]:
    """Fill the template; ``prose`` writes the template's own text."""
    blocks: list[str] = []
    for part in re.split(r"^@", packaged("letter.txt"), flags=re.MULTILINE)[1:]:
        conditions, _, text = part.partition("\n")
        if facts.conditions.issuperset(conditions.split()):
            blocks += text.strip().split("\n\n")
    filled = (_filled(block, facts, prose) for block in blocks)
    for kind, alike in groupby(filled, key=lambda block: block[0]):
        if kind == "items":  # items of two parts are one list
            yield kind, [text for _, texts in alike for text in texts]
        else:
            yield from alike


def _filled(block: str, facts: _Facts, prose: Callable[[str], str]) -> Block:
    if block[1:] in facts.lists:
        return "numbers" if block == "$options" else "items", facts.lists[block[1:]]
    mark = block.partition(" ")[0]
    lines = block.splitlines() if mark in _KINDS else [block]
    texts = (line.removeprefix(f"{mark} ") if mark in _KINDS else line for line in lines)
    filled = [Template(prose(text)).substitute(facts.fields) for text in texts]
    return _KINDS.get(mark, "text"), filled


@dataclass(frozen=True)
class _Facts:
    """What a letter can say about a result; ``mark`` makes a name or a value harmless."""

    result: ResultData
    when: date | None
    n: int
    mark: Mark
    chosen: tuple[Option, ...] = ()

    @cached_property
    def wording(self) -> Wording:
        return Wording.of(self.result)

    @cached_property
    def shown(self) -> Sequence[Option]:
        return self.chosen or advised(self.result, self.n)

    @cached_property
    def conditions(self) -> frozenset[str]:
        """The conditions of the template that hold."""
        fields, found, outcome = self.fields, len(pickable(self.result)), self.result.outcome
        if self.shown:
            ending = "found"
        elif outcome.kind is OutcomeKind.INFEASIBLE:
            ending = "obstacles" if outcome.binding else "infeasible"
        else:
            ending = _ENDINGS.get(outcome.kind, "nothing")
        lost = ending in ("obstacles", "infeasible", "nothing")
        holds = {
            ending: True,
            "undecided": not fields["decision"],
            "dated": self.when is not None,
            "chosen": bool(self.chosen),
            "alone": not self.chosen and found == 1,
            "all": not self.chosen and 1 < found == len(self.shown),
            "some": not self.chosen and found > len(self.shown),
            "stopped": outcome.kind in (OutcomeKind.INTERRUPTED, OutcomeKind.FAILED),
            "lost": lost,
            "help": lost or ending == "found",
            "nothing_same": not fields["same"],
            "options": bool(self.result.options) and not self.result.ways,
            "tips": bool(self.lists["tips"]),
            "values": not self.shown and bool(self.result.query),
            **{name: bool(fields[name]) for name in _OPTIONAL},
        }
        return frozenset(name for name, it_holds in holds.items() if it_holds)

    @cached_property
    def fields(self) -> Mapping[str, str]:
        """What goes into the template's sentences, marked where it is not our own."""
        result, told, mark = self.result, self.result.settings, self.mark
        name = str(told.get("oracle") or "")
        likely = mark(standing(result))
        kept = [name for name in result.query if name not in self._changed]
        goal = f"the answer “{self._yes}”" if self._yes else mark(goal_text(told.get("goal")))
        return {
            "when": date_text(self.when) if self.when else "",
            "asked": f"on {date_text(self.when)}" if self.when else "when the search was made",
            "title": mark(told.get("title") or ""),
            "stand_in": stand_in_note(result),
            # An address says nothing to the person, and is nothing to hand out.
            "model": "" if not name or name.startswith("http") else f" ({mark(name)})",
            "decision": mark(decision(result)),
            "likely": f" It puts the chance of a yes at {likely}." if likely else "",
            "goal": goal,
            "total": str(len(pickable(result))),
            "count": str(len(self.shown)),
            "same": ", ".join(self._values(kept, _MOST_SAME)),
            "reason": mark(result.outcome.reason.rstrip(".") or "no reason is on file"),
            "tries": counted(result.ledger.oracle_rows, "combination"),
            "best": self._best(result.outcome.best_probability),
        }

    def _best(self, best: float | None) -> str:
        if best is None or self.wording.labels_only:
            return ""
        likely = self.mark(self.wording.chance(best))
        return f" The best chance it reached is {likely}, which was not enough."

    @cached_property
    def lists(self) -> Mapping[str, Sequence[str]]:
        """What goes into the template's lists."""
        binding = self.result.outcome.binding
        return {
            "options": [self._option(option) for option in self.shown],
            "tips": self._tips(),
            "obstacles": _few([self.mark(obstacle_words(v, self.wording)) for v in binding]),
            "values": self._values(self.result.query),
        }

    @cached_property
    def _changed(self) -> Mapping[str, None]:
        return dict.fromkeys(name for option in self.shown for name in option.changes)

    def _name(self, feature: str) -> str:
        return self.mark(self.wording.name(feature))

    def _values(self, features: Iterable[str], most: int = _MOST) -> list[str]:
        query, value = self.result.query, self.wording.value
        return _few([f"{self._name(f)} ({self.mark(value(f, query[f]))})" for f in features], most)

    @cached_property
    def _yes(self) -> str:
        """The answer that was looked for; empty if the goal is a chance."""
        told = self.result.settings
        is_plain = goal_text(told.get("goal")) == PLAIN_GOAL
        return self.mark(told.get("yes") or "approved") if is_plain else ""

    def _tips(self) -> list[str]:
        found = alone(self.result, self.wording, self.mark)
        few = first_of(found, self._changed, _MOST_TIPS)
        return [f"{_capital(tip.name)} alone: {tip.said}." for tip in few]

    def _change(self, name: str, old: Value, new: Value) -> str:
        before, after = map(self.mark, self.wording.pair(name, old, new))
        return f"{self._name(name)} from {before} to {after}"

    def _option(self, option: Option) -> str:
        """Return what to do, each change from its present value, and the model's answer to it."""
        levers = moved(option, self.wording)
        moves = [move_words(name, *option.changes[name], self.wording) for name in levers]
        changes = [self._change(name, *pair) for name, pair in option.changes.items()]
        likely = self.mark(self.wording.chance(option.probability))
        answer = f" (chance {likely})" if likely else ""
        said = [f"{_capital(listed([*map(self.mark, moves)]))}: {listed(changes)}{answer}."]
        if len(option.changes) > option.sparsity:
            said.append("Some of these move together by themselves.")
        if BY_HAND in doubts_about(option, self.result):
            said.append(f"{capital(BY_HAND)}.")
        return " ".join([*said, *doubts_in_full(option), *self._safer(option)])

    def _safer(self, option: Option) -> list[str]:
        """Say what reaches each higher chance that was asked for."""
        said, none = [], []
        for level, safer in safer_levels(option, self.result.settings).items():
            asked = self.mark(self.wording.chance(level))
            if safer is None:
                none.append(asked)
            elif safer.row != option.row:  # else its chance is told already
                news = ((n, self.wording.pair(n, *pair)[1]) for n, pair in safer.changes.items())
                changes = listed([f"{self._name(n)} to {self.mark(new)}" for n, new in news])
                reached = self.mark(self.wording.chance(safer.probability))
                said.append(f"For a chance of at least {asked}: {changes} (chance {reached}).")
        if none:
            levels = listed(none, "or")
            said.append(f"Going on this way, nothing with a chance of at least {levels} was found.")
        return said


def _capital(text: str) -> str:
    """Return markup with its first letter large."""
    return re.sub(r"^((?:<bdi>)?)(\w)", lambda found: found[1] + found[2].upper(), text)


def _few(texts: Sequence[str], most: int = _MOST) -> list[str]:
    rest = len(texts) - most
    return [*texts[:most], *([f"and {rest:,} more"] if rest > 0 else [])]
