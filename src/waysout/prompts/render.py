"""Making prompts: a template and a question in, text out.

Both templates are text files beside this one. ``paper`` is the paper's, in its order. ``waysout``
puts the constant parts first (the task, the format, the features), then the person, then earlier
attempts, in order of time, and the node itself last: each call begins like the one before it, as
far as the two remember the same, and a backend with a prefix cache computes only what is new.

``{name}`` in a template is filled in; a paragraph that begins with ``{?name}`` is left out where
there is nothing to fill in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Literal

from waysout.domain.card import Card
from waysout.domain.problem import Problem
from waysout.domain.rules import Lever, RuleSet
from waysout.domain.schema import Edit, Feature, Row, Value, format_number
from waysout.llm.base import Editable
from waysout.prompts.spelling import LONGEST_SENTENCE, Spelling, neutral

Template = Literal["waysout", "paper"]
Output = Literal["block", "json"]

MOST_CHOICES = 40
MOST_NAMED = 60
# Every word of a reason is time: writing is what takes a model long, not reading.
_REASON: Mapping[Template, str] = {"paper": "brief explanation", "waysout": "up to eight words"}


class Tag(StrEnum):
    """The outcome of an attempt."""

    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    PRUNED = "PRUNED"


@dataclass(frozen=True, slots=True)
class Record:
    """An attempt: the features it set, and its outcome."""

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
    """The contents of a prompt: the table, the person, the node, and earlier attempts."""

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
    spelling, topic = question.spelling, question.topic
    named: dict[str, list[str]] = {}  # the latest of them, by feature
    for edit in question.named[-MOST_NAMED:]:
        value = spelling.value(question.rules.schema[edit.feature], edit.value)
        named.setdefault(spelling.name(edit.feature), []).append(value)
    several = question.k > 1
    counted = {
        "k": str(question.k),
        "s": "s" if several else "",
        "several": "several" if several else "",
        "more": ", ..." if several else "",
        "variety": f"{question.k} different features and " if several else "",
        "reason": _REASON[template],
    }
    parts |= counted | {
        "task": neutral(topic.task, LONGEST_SENTENCE),
        "no": neutral(topic.no, LONGEST_SENTENCE),
        "yes": neutral(topic.yes, LONGEST_SENTENCE),
        "avoid": ", ".join(map(spelling.name, question.avoid)),
        "named": "; ".join(f"{name}={', '.join(values)}" for name, values in named.items()),
        "format": _fill(_text(f"format_{output}"), counted),
    }
    return _fill(_text(template), parts)


@cache
def _text(name: str) -> str:
    return (resources.files(__package__) / "templates" / f"{name}.txt").read_text("utf-8").strip()


def _fill(template: str, parts: Mapping[str, str]) -> str:
    """Fill in the parts, all at once: a value that looks like a placeholder stays a value."""
    paragraphs = []
    for text in template.split("\n\n"):
        condition = re.match(r"\{\?(\w+)\}", text)
        if condition is None or parts[condition[1]]:
            kept = text[condition.end() :] if condition else text
            filled = re.sub(r"\{(\w+)\}", lambda found: parts[found[1]], kept).rstrip()
            paragraphs += [filled] if filled else []
    return "\n\n".join(paragraphs)


def _paper_parts(question: Question) -> dict[str, str]:
    spelling, schema = question.spelling, question.rules.schema
    fixed = _fixed(question)
    shown = {
        spelling.name(f.name): value if value is None or f.is_numeric else spelling.value(f, value)
        for f, value in zip(schema, question.row, strict=True)
        if f.name not in fixed
    }
    return {
        "row_json": json.dumps(shown, ensure_ascii=False),
        "tried": "\n".join(f"[{r.tag}] {_changes(question, r.changes)}" for r in question.history),
        "allowed": ", ".join(item.name for item in question.menu),
        "forbidden": ", ".join(map(spelling.name, fixed)) or "(none)",
        "categories": "\n".join(
            f"- {item.name} must be one of: {_some(item.choices)}"
            for item in question.menu
            if item.choices
        ),
    }


def _waysout_parts(question: Question) -> dict[str, str]:
    schema, spelling = question.rules.schema, question.spelling
    changed = schema.changed(question.query, question.row)
    fixed, levers = set(_fixed(question)), question.rules.levers(question.query)
    free = [feature for feature in schema if feature.name not in fixed]
    rules, person, tried = [], [], []
    for rule in question.rules.joint:
        why = f" ({neutral(rule.why, LONGEST_SENTENCE)})" if rule.why else ""
        rules.append(f"- {neutral(rule.says, LONGEST_SENTENCE)}{why}")
    for feature in free:
        name, lever = spelling.name(feature.name), levers[feature.name]
        now = spelling.value(feature, lever.now)
        person.append(f"- {name} = {now}, {_may_be(spelling, lever)}")
    for record in question.history:
        chance = "" if record.probability is None else f", chance {record.probability:.0%}"
        tried.append(f"- {_changes(question, record.changes)}: {record.tag.lower()}{chance}")
    return {
        "glossary": "\n".join(_explained(spelling, feature) for feature in free),
        "rules": "\n".join(rules),
        "person": "\n".join(person),
        "tried": "\n".join(tried),
        "made": _changes(question, ((name, question.row[schema.index(name)]) for name in changed)),
    }


def _fixed(question: Question) -> list[str]:
    """Return the features that a rule fixes for everyone, and those that are carried along.

    Their values stay out of prompts, as in the paper: a person's sex or origin should not steer
    what is proposed. What is opaque may be a name, or what somebody wrote about a person.
    """
    levers = question.rules.levers(question.query)
    return [n for n, lever in levers.items() if lever.blocked_by or lever.feature.is_opaque]


def _explained(spelling: Spelling, feature: Feature) -> str:
    meaning = [neutral(feature.about, LONGEST_SENTENCE)] if feature.about else []
    meaning += [f"in {neutral(feature.unit)}"] if feature.unit else []
    words = [
        f"{shown} = {neutral(feature.words[level])}"
        for level, shown in (spelling.levels(feature) if feature.words else {}).items()
        if level in feature.words
    ]
    meaning += ["; ".join(words[:MOST_CHOICES])] if words else []
    return f"- {spelling.name(feature.name)}: {'; '.join(meaning) or feature.kind}"


def _may_be(spelling: Spelling, lever: Lever) -> str:
    """Say what a lever may be set to.

    A model that reads where a number stands tends to leave it there, so a one-way street is said as
    one, and a grid is not "in steps", which would be counted from where the number stands.
    """
    if not lever.is_open:
        return "stays"
    choices = lever.choices()
    if choices is not None:
        return f"may be {_some([spelling.value(lever.feature, v) for v in choices])}"
    words = lever.describe()
    if lever.step:
        grid = format_number(lever.step)
        base = "" if lever.start % lever.step == 0 else f"{format_number(lever.start)} plus "
        words = words.replace(f" in steps of {grid}", f" ({base}multiples of {grid})")
    low, high = format_number(lever.low), format_number(lever.high)
    if lever.now == lever.low and words.startswith(f"{low} to "):
        return f"may rise to {words.removeprefix(f'{low} to ')}"
    if lever.now == lever.high and words.startswith(f"{low} to {high}"):
        return f"may fall to {low}{words.removeprefix(f'{low} to {high}')}"
    return f"may be {words}"


def _some(choices: Sequence[str]) -> str:
    more = f" or {len(choices) - MOST_CHOICES} others" if len(choices) > MOST_CHOICES else ""
    return ", ".join(choices[:MOST_CHOICES]) + more


def _changes(question: Question, changes: Iterable[tuple[str, Value]]) -> str:
    schema, spelling = question.rules.schema, question.spelling
    return ", ".join(f"{spelling.name(n)}={spelling.value(schema[n], v)}" for n, v in changes)
