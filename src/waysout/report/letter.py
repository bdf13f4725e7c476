"""A result as a letter to the person concerned: plain language, from a template and nothing else.

What a language model wrote, reasons above all, is never printed. Names and values are untrusted:
each is cleaned, cut and marked on its way in, and in plain text only the template's own headings
begin at the margin, so that a value cannot pass for one.

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
from itertools import groupby
from string import Template

from waysout.domain.pick import pick
from waysout.domain.result import Option, OutcomeKind, ResultData
from waysout.domain.schema import Value
from waysout.report.html import decision, esc, packaged, standing, whole_page
from waysout.report.text import simulated_note
from waysout.report.wording import Wording
from waysout.report.words import PLAIN_GOAL, clean, counted, cut, date_text, goal_text

WIDTH = 78
_LONGEST = 160  # characters of a name or a value
_MOST = 40  # values, or rules that stand in the way
_HOW_IT_ENDED = {
    OutcomeKind.ALREADY_APPROVED: "approved",
    OutcomeKind.INTERRUPTED: "interrupted",
    OutcomeKind.FAILED: "failed",
}
_OPTIONAL = ("title", "simulated", "decision", "chance", "best", "same")

Mark = Callable[[object], str]
Prose = Callable[[str], str]


@dataclass(frozen=True)
class _Block:
    """A piece of the letter: a subject, a heading, a text, or a list with numbers or without."""

    kind: str
    texts: tuple[str, ...]


def letter_text(result: ResultData, *, when: date | None = None, n: int = 3) -> str:
    """Return the letter as plain text of 78 columns, with at most n options.

    ``when`` is the day of the search, which a result does not hold.
    """
    blocks = _blocks(_Facts(result, when, n, _short), str)
    return "\n\n".join(_as_text(block) for block in blocks) + "\n"


def letter_page(result: ResultData, *, when: date | None = None, n: int = 3) -> str:
    """Return the letter as a page of its own, made to be printed, with at most n options."""
    blocks = _blocks(_Facts(result, when, n, _short_html), escape)
    body = "\n".join(_as_html(block) for block in blocks)
    return whole_page("A letter about a decision", "letter.css", body)


def _short(text: object) -> str:
    return cut(clean(text), _LONGEST)


def _short_html(text: object) -> str:
    # Nothing stays nothing: the template leaves out what there is nothing to say of.
    return esc(_short(text)) if _short(text) else ""


def _blocks(facts: _Facts, prose: Prose) -> Iterator[_Block]:
    """Fill the template; ``prose`` writes the template's own text."""
    for kind, alike in groupby(_parts(facts, prose), key=lambda block: block.kind):
        if kind == "items":  # one list, though of two parts
            yield _Block(kind, tuple(text for block in alike for text in block.texts))
        else:
            yield from alike


def _parts(facts: _Facts, prose: Prose) -> Iterator[_Block]:
    for part in re.split(r"^@", packaged("letter.txt"), flags=re.MULTILINE)[1:]:
        conditions, _, text = part.partition("\n")
        if facts.conditions.issuperset(conditions.split()):
            yield from (_filled(block, facts, prose) for block in text.strip().split("\n\n"))


def _filled(block: str, facts: _Facts, prose: Prose) -> _Block:
    if block[1:] in facts.lists:
        kind = "numbers" if block == "$options" else "items"
        return _Block(kind, tuple(facts.lists[block[1:]]))
    kinds = {"##": "subject", "#": "heading", "-": "items"}
    mark = block.partition(" ")[0]
    lines = (
        [line.removeprefix(mark + " ") for line in block.splitlines()] if mark in kinds else [block]
    )
    filled = (Template(prose(line)).substitute(facts.fields) for line in lines)
    return _Block(kinds.get(mark, "text"), tuple(filled))


@dataclass(frozen=True)
class _Facts:
    """What a letter can say of a result; ``mark`` makes a name or a value harmless."""

    result: ResultData
    when: date | None
    n: int
    mark: Mark

    @cached_property
    def wording(self) -> Wording:
        return Wording.of(self.result)

    @cached_property
    def shown(self) -> Sequence[Option]:
        return pick(self.result, self.n)

    @cached_property
    def conditions(self) -> frozenset[str]:
        """The conditions of the template that hold."""
        fields, found = self.fields, len(self.result.options)
        how = "found" if found else self._without_options()
        holds = {
            how: True,
            "undecided": not fields["decision"],
            "dated": self.when is not None,
            "alone": found == 1,
            "all": 1 < found == len(self.shown),
            "some": found > len(self.shown),
            "stopped": self.result.outcome.kind in (OutcomeKind.INTERRUPTED, OutcomeKind.FAILED),
            "lost": how in ("obstacles", "infeasible", "nothing"),
            "help": how in ("found", "obstacles", "infeasible", "nothing"),
            "explained": bool(self.lists["meanings"]),
            "values": not found and bool(self.result.query),
            **{name: bool(fields[name]) for name in _OPTIONAL},
        }
        return frozenset(name for name, it_is_so in holds.items() if it_is_so)

    def _without_options(self) -> str:
        outcome = self.result.outcome
        if outcome.kind is OutcomeKind.INFEASIBLE:
            return "obstacles" if outcome.binding else "infeasible"
        return _HOW_IT_ENDED.get(outcome.kind, "nothing")

    @cached_property
    def fields(self) -> Mapping[str, str]:
        """What stands in the template's sentences, marked where it is not our own."""
        result, told, mark = self.result, self.result.settings, self.mark
        best = result.outcome.best_probability
        same = self._values(name for name in result.query if name not in self._changed)
        return {
            "when": date_text(self.when) if self.when else "",
            "asked": f"on {date_text(self.when)}" if self.when else "when the search was made",
            "title": mark(told.get("title") or ""),
            "simulated": simulated_note(result),
            "model": f" ({mark(told['oracle'])})" if told.get("oracle") else "",
            "decision": mark(decision(result)),
            "chance": mark(standing(result)),
            "goal": self._goal(),
            "total": str(len(result.options)),
            "count": str(len(self.shown)),
            "same": ", ".join(same),
            "reason": mark(result.outcome.reason.rstrip(".") or "no reason is on file"),
            "tries": counted(result.ledger.oracle_rows, "combination"),
            "best": "" if best is None else mark(self.wording.chance(best)),
        }

    @cached_property
    def lists(self) -> Mapping[str, Sequence[str]]:
        """What stands in the template's lists."""
        about = {name: self.wording.about(name) for name in self._changed}
        binding = self.result.outcome.binding
        return {
            "options": [self._option(option) for option in self.shown],
            "meanings": [
                f"{self._name(n)}: {self.mark(said)}." for n, said in about.items() if said
            ],
            "obstacles": _few([f"{self.mark(v.rule)}: {self.mark(v.reason)}" for v in binding]),
            "values": self._values(self.result.query),
        }

    @cached_property
    def _changed(self) -> Mapping[str, None]:
        return dict.fromkeys(name for option in self.shown for name in option.changes)

    def _name(self, feature: str) -> str:
        return self.mark(self.wording.name(feature))

    def _values(self, features: Iterable[str]) -> list[str]:
        query = self.result.query
        return _few(
            [f"{self._name(f)} ({self.mark(self.wording.value(f, query[f]))})" for f in features]
        )

    @cached_property
    def _yes(self) -> str:
        """The answer that was looked for; empty where a chance was."""
        told = self.result.settings
        is_plain = goal_text(told.get("goal")) == PLAIN_GOAL
        return self.mark(told.get("yes") or "approved") if is_plain else ""

    def _goal(self) -> str:
        goal = goal_text(self.result.settings.get("goal"))
        return f"the answer “{self._yes}”" if self._yes else self.mark(goal)

    def _option(self, option: Option) -> str:
        """Return an option in full sentences."""
        changes = [self._change(name, *pair) for name, pair in option.changes.items()]
        said = [f"Change {_joined(changes)}."]
        if len(option.changes) > option.sparsity:
            said.append("Some of these move together by themselves.")
        said.append(f"The model then {self._answer(option)}.")
        if option.stable is False:
            said.append("Asked again, it did not say so each time: do not rely on this one.")
        return " ".join(said)

    def _answer(self, option: Option) -> str:
        has_chance = not self.wording.labels_only
        chance = self.mark(self.wording.chance(option.probability))
        if self._yes:
            return f"says: {self._yes}" + (f" (chance {chance})" if has_chance else "")
        return f"puts the chance of a yes at {chance}"

    def _change(self, name: str, old: Value, new: Value) -> str:
        before, after = self.wording.pair(name, old, new)
        return f"{self._name(name)} from {self.mark(before)} to {self.mark(after)}"


def _joined(texts: Sequence[str]) -> str:
    """Join what a sentence lists.

    >>> _joined(["a", "b", "c"])
    'a, b, and c'
    """
    *others, last = texts
    comma = "," if len(others) > 1 else ""
    return f"{', '.join(others)}{comma} and {last}" if others else last


def _few(texts: Sequence[str]) -> list[str]:
    rest = len(texts) - _MOST
    return [*texts[:_MOST], *([f"and {rest:,} more"] if rest > 0 else [])]


def _as_text(block: _Block) -> str:
    first = block.texts[0] if block.texts else ""
    if block.kind == "subject":
        return f"{first.upper()}\n{'=' * len(first)}"
    if block.kind == "heading":
        return f"{first}\n{'-' * len(first)}"
    if block.kind == "text":
        return _wrapped(first, "  ", "  ")
    marks = [f"{i}." if block.kind == "numbers" else "-" for i in range(1, len(block.texts) + 1)]
    return "\n".join(
        _wrapped(text, f"  {mark} ", " " * (len(mark) + 3))
        for mark, text in zip(marks, block.texts, strict=True)
    )


def _wrapped(text: str, first: str, then: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=then)


def _as_html(block: _Block) -> str:
    tags = {"subject": "h1", "heading": "h2", "text": "p", "numbers": "ol", "items": "ul"}
    tag = tags[block.kind]
    if tag in ("ol", "ul"):
        return f"<{tag}>{''.join(f'<li>{text}</li>' for text in block.texts)}</{tag}>"
    return f"<{tag}>{block.texts[0]}</{tag}>"
