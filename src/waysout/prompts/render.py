"""Making prompts: a template and what it is about go in, text comes out. Nothing else is read.

Both templates are text files beside this one. ``paper`` is the paper's, in its order. ``waysout``
puts first what never changes (the task, the format, the features), then the person, then what was
tried, in the order of time, and the node itself last: each call begins like the one before it, as
far as the two remember the same, and a backend that keeps prompts computes only what is new.

``{name}`` in a template is filled in; a paragraph that begins with ``{?name}`` is left out where
there is nothing to fill in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Literal

from waysout.domain.card import Card
from waysout.domain.edit import Edit
from waysout.domain.problem import Problem
from waysout.domain.rules import Lever, RuleSet
from waysout.domain.schema import Feature, Row, Value, format_number
from waysout.llm.base import Editable
from waysout.prompts.spelling import LONGEST_SENTENCE, Spelling, neutral

Template = Literal["waysout", "paper"]
Output = Literal["block", "json"]

MOST_CHOICES = 40
MOST_NAMED = 60
# Every word of a reason is time: writing is what takes a model long, not reading.
_REASON: Mapping[Template, str] = {"paper": "brief explanation", "waysout": "up to eight words"}


class Tag(StrEnum):
    """What became of something that was tried."""

    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    PRUNED = "PRUNED"


@dataclass(frozen=True, slots=True)
class Record:
    """Something that was tried: the features it set, and what became of it."""

    changes: tuple[tuple[str, Value], ...]
    tag: Tag
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Topic:
    """What the questions about one table have in common: the task, its outcomes, the rules."""

    task: str
    no: str
    yes: str
    rules: RuleSet

    @classmethod
    def of_card(cls, card: Card, rule_set: str | None = None) -> Topic:
        """Take the topic from a card."""
        rules = card.rules(rule_set)
        return cls(card.title or card.name, card.outcome.no, card.outcome.yes, rules)

    @classmethod
    def of_problem(cls, problem: Problem) -> Topic:
        """Take the topic from a problem."""
        return cls(problem.title or problem.name, problem.no, problem.yes, problem.rules)


@dataclass(frozen=True, slots=True)
class Question:
    """All that a prompt is made of: the table, the person, the node, and what was tried before."""

    topic: Topic
    spelling: Spelling
    query: Row
    row: Row
    menu: tuple[Editable, ...]
    k: int
    history: tuple[Record, ...] = ()
    avoid: tuple[str, ...] = ()
    named: tuple[Edit, ...] = ()

    @property
    def rules(self) -> RuleSet:
        """The rules of the topic."""
        return self.topic.rules


def render(question: Question, template: Template = "waysout", output: Output = "block") -> str:
    """Return the prompt."""
    parts = _paper_parts(question) if template == "paper" else _waysout_parts(question)
    shared = {
        "task": neutral(question.topic.task, LONGEST_SENTENCE),
        "no": neutral(question.topic.no, LONGEST_SENTENCE),
        "yes": neutral(question.topic.yes, LONGEST_SENTENCE),
        "k": str(question.k),
        "avoid": ", ".join(map(question.spelling.name, question.avoid)),
        "named": "; ".join(_named(question)),
    }
    form = _fill(_text(f"format_{output}"), {"reason": _REASON[template]})
    return _fill(_text(template), shared | parts | {"format": form})


@cache
def _text(name: str) -> str:
    return (resources.files(__package__) / "templates" / f"{name}.txt").read_text("utf-8").strip()


def _fill(template: str, parts: Mapping[str, str]) -> str:
    """Put the parts in, all at once: a value that looks like a placeholder stays a value."""
    paragraphs = [_paragraph(text, parts) for text in template.split("\n\n")]
    return "\n\n".join(text for text in paragraphs if text)


def _paragraph(text: str, parts: Mapping[str, str]) -> str:
    condition = re.match(r"\{\?(\w+)\}", text)
    if condition and not parts[condition[1]]:
        return ""
    kept = text[condition.end() :] if condition else text
    return re.sub(r"\{(\w+)\}", lambda found: parts[found[1]], kept).rstrip()


def _paper_parts(question: Question) -> dict[str, str]:
    spelling, schema = question.spelling, question.rules.schema
    fixed = _fixed(question)
    shown = {
        spelling.name(f.name): _json_value(spelling, f, value)
        for f, value in zip(schema, question.row, strict=True)
        if f.name not in fixed
    }
    return {
        "row_json": json.dumps(shown, ensure_ascii=False),
        "tried": "\n".join(f"[{r.tag}] {_changes(question, r)}" for r in question.history),
        "allowed": ", ".join(item.name for item in question.menu),
        "forbidden": ", ".join(map(spelling.name, fixed)) or "(none)",
        "categories": "\n".join(
            f"- {item.name} must be one of: {_some(item.choices)}"
            for item in question.menu
            if item.choices
        ),
    }


def _json_value(spelling: Spelling, feature: Feature, value: Value) -> object:
    return value if value is None or feature.is_numeric else spelling.value(feature, value)


def _waysout_parts(question: Question) -> dict[str, str]:
    schema = question.rules.schema
    changed = schema.changed(question.query, question.row)
    made = (_change(question, name, question.row[schema.index(name)]) for name in changed)
    return {
        "glossary": "\n".join(_glossary(question)),
        "rules": "\n".join(_rules(question.rules)),
        "person": "\n".join(_person(question)),
        "tried": "\n".join(_tried(question)),
        "made": ", ".join(made),
    }


def _fixed(question: Question) -> list[str]:
    """Return the features that a rule holds fast for everybody; an LLM need not know them."""
    levers = question.rules.levers(question.query)
    return [name for name, lever in levers.items() if lever.blocked_by]


def _open(question: Question) -> Iterator[Feature]:
    fixed = set(_fixed(question))
    return (f for f in question.rules.schema if f.name not in fixed)


def _glossary(question: Question) -> Iterator[str]:
    for feature in _open(question):
        meaning = [neutral(feature.about, LONGEST_SENTENCE)] if feature.about else []
        meaning += [f"in {neutral(feature.unit)}"] if feature.unit else []
        spelled = question.spelling.levels(feature) if feature.words else {}
        words = [
            f"{shown} = {neutral(feature.words[level])}"
            for level, shown in spelled.items()
            if level in feature.words
        ]
        meaning += ["; ".join(words[:MOST_CHOICES])] if words else []
        yield f"- {question.spelling.name(feature.name)}: {'; '.join(meaning) or feature.kind}"


def _rules(rules: RuleSet) -> Iterator[str]:
    for rule in rules.joint:
        why = f" ({neutral(rule.why, LONGEST_SENTENCE)})" if rule.why else ""
        yield f"- {neutral(rule.says, LONGEST_SENTENCE)}{why}"


def _person(question: Question) -> Iterator[str]:
    levers = question.rules.levers(question.query)
    for feature in _open(question):
        name, lever = question.spelling.name(feature.name), levers[feature.name]
        now = question.spelling.value(feature, lever.now)
        yield f"- {name} = {now}, {_may_be(question.spelling, lever)}"


def _may_be(spelling: Spelling, lever: Lever) -> str:
    if not lever.is_open:
        return "stays"
    choices = lever.choices()
    if choices is None:
        return f"may {_span(lever)}"
    return f"may be {_some([spelling.value(lever.feature, v) for v in choices])}"


def _span(lever: Lever) -> str:
    """Say where a number may go; a model that reads where it stands tends to leave it there.

    A one-way street is said as one.
    """
    words = lever.describe()
    if lever.step:
        # "In steps" would be counted from where the number stands.
        grid = format_number(lever.step)
        base = "" if lever.start % lever.step == 0 else f"{format_number(lever.start)} plus "
        words = words.replace(f" in steps of {grid}", f" ({base}multiples of {grid})")
    low, high = format_number(lever.low), format_number(lever.high)
    if lever.now == lever.low and words.startswith(f"{low} to "):
        return f"rise to {words.removeprefix(f'{low} to ')}"
    if lever.now == lever.high and words.startswith(f"{low} to {high}"):
        return f"fall to {low}{words.removeprefix(f'{low} to {high}')}"
    return f"be {words}"


def _some(choices: Sequence[str]) -> str:
    more = f" or {len(choices) - MOST_CHOICES} others" if len(choices) > MOST_CHOICES else ""
    return ", ".join(choices[:MOST_CHOICES]) + more


def _tried(question: Question) -> Iterator[str]:
    for record in question.history:
        chance = "" if record.probability is None else f", chance {record.probability:.0%}"
        yield f"- {_changes(question, record)}: {record.tag.lower()}{chance}"


def _named(question: Question) -> Iterator[str]:
    """Say what was named, the latest of it, by feature."""
    values: dict[str, list[str]] = {}
    for edit in question.named[-MOST_NAMED:]:
        spelled = question.spelling.value(question.rules.schema[edit.feature], edit.value)
        values.setdefault(question.spelling.name(edit.feature), []).append(spelled)
    return (f"{name}={', '.join(found)}" for name, found in values.items())


def _changes(question: Question, record: Record) -> str:
    return ", ".join(_change(question, name, value) for name, value in record.changes)


def _change(question: Question, name: str, value: Value) -> str:
    feature = question.rules.schema[name]
    return f"{question.spelling.name(name)}={question.spelling.value(feature, value)}"
