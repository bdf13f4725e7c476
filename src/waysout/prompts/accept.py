"""From a reply to typed edits: each candidate becomes an edit or a rejection that has a name.

A reply may only name a feature and a value. Whatever it says, an edit that comes out of here is
typed by the schema and adds no broken rule.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TypeVar

from waysout.domain.edit import Edit
from waysout.domain.rules import Lever, RuleSet, Violation
from waysout.domain.rules.ruleset import DOMAIN
from waysout.domain.schema import Feature, Row, Value, text_of
from waysout.errors import RowError
from waysout.prompts.numerals import read_number
from waysout.prompts.parse import Raw, candidates, unwrap
from waysout.prompts.spelling import LONGEST_SENTENCE, Spelling, folded, neutral

T = TypeVar("T")


class Cause(StrEnum):
    """Why a candidate was not accepted."""

    UNPARSABLE = "unparsable"
    TRUNCATED = "truncated"
    UNKNOWN_FEATURE = "unknown feature"
    NOT_ACTIONABLE = "not actionable"
    BAD_TYPE = "bad type"
    OUTSIDE_DOMAIN = "outside domain"
    BREAKS_RULE = "breaks rule"
    NO_CHANGE = "no change"
    BEYOND_K = "beyond k"


@dataclass(frozen=True, slots=True)
class Rejection:
    """A candidate that was not accepted: the cause, a short printable detail, the rule if any."""

    cause: Cause
    detail: str
    rule: str = ""

    def __str__(self) -> str:
        return f"{self.cause}: {self.rule}" if self.rule else str(self.cause)


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a reply comes to. Edits and rejections together are all its candidates."""

    edits: tuple[Edit, ...]
    rejections: tuple[Rejection, ...]

    def counts(self) -> dict[str, int]:
        """Return how many candidates were rejected, by cause and rule.

        >>> Proposal((), (Rejection(Cause.BREAKS_RULE, "", "age only up"),)).counts()
        {'breaks rule: age only up': 1}
        """
        return dict(Counter(map(str, self.rejections)))


def read_reply(
    text: str,
    *,
    rules: RuleSet,
    spelling: Spelling,
    query: Row,
    row: Row,
    k: int,
    cut: bool = False,
    strict: bool = False,
) -> Proposal:
    """Return the edits of ``row`` that a reply proposes, and what became of the rest.

    ``query`` is the row the search started from, which rules compare with. ``cut`` says that the
    reply was stopped at a limit; ``strict`` takes the paper's format, names and categories to the
    letter. No text makes this raise; a custom rule that breaks does (`RuleError`), for it is the
    user's own code and would break on every reply.
    """
    judge = _Judge(rules, spelling, query, row, strict)
    edits: list[Edit] = []
    rejections: list[Rejection] = []
    for position, raw in enumerate(candidates(text, cut=cut, strict=strict)):
        if position >= k:
            detail = f"candidate {position + 1}, but {k} were asked for"
            rejections.append(Rejection(Cause.BEYOND_K, detail))
            continue
        try:
            edits.append(judge.edit(raw))
        except _Refused as refused:
            rejections.append(refused.rejection)
    return Proposal(tuple(edits), tuple(rejections))


class _Refused(Exception):
    def __init__(self, cause: Cause, detail: str, rule: str = "") -> None:
        self.rejection = Rejection(cause, neutral(detail, LONGEST_SENTENCE), rule)


@dataclass
class _Judge:
    """Judges the candidates of one reply."""

    rules: RuleSet
    spelling: Spelling
    query: Row
    row: Row
    strict: bool

    def __post_init__(self) -> None:
        self._levels: dict[str, dict[str, str | None]] = {}

    @cached_property
    def _levers(self) -> dict[str, Lever]:
        return self.rules.levers(self.query)

    @cached_property
    def _standing(self) -> frozenset[tuple[str, tuple[str, ...]]]:
        """What the row breaks already: leaving that behind may take several edits."""
        return frozenset(map(_identity, self.rules.violations(self.query, self.row)))

    def edit(self, raw: Raw) -> Edit:
        if raw.flaw:
            raise _Refused(Cause.TRUNCATED if raw.truncated else Cause.UNPARSABLE, raw.flaw)
        feature = self._feature(raw.feature)
        lever = self._levers[feature.name]
        if lever.blocked:
            raise _Refused(Cause.NOT_ACTIONABLE, f"{feature.name}: {lever.blocked}")
        value = self._value(feature, raw.value)
        self._check(feature, value)
        return Edit(feature.name, value, neutral(unwrap(raw.reason), LONGEST_SENTENCE))

    def _feature(self, text: str) -> Feature:
        find = self.spelling.find
        found = find(text, strict=True) if self.strict else _look(text, find)
        if found is None:
            raise _Refused(Cause.UNKNOWN_FEATURE, f"no feature is called {neutral(text)!r}")
        return found

    def _value(self, feature: Feature, text: str) -> Value:
        value = self._number(feature, text) if feature.is_numeric else self._level(feature, text)
        if value is None:
            cause = Cause.OUTSIDE_DOMAIN if feature.kind == "category" else Cause.BAD_TYPE
            raise _Refused(cause, f"{feature.name} cannot be {neutral(text)!r}")
        return value

    def _number(self, feature: Feature, text: str) -> Value:
        if self.strict:
            return _coerced(feature, text)
        number = read_number(text)
        value = None if number is None else _coerced(feature, number)
        if number is not None and value is None:
            raise _Refused(Cause.OUTSIDE_DOMAIN, f"{feature.name} cannot be {number:g}")
        return value

    def _level(self, feature: Feature, text: str) -> Value:
        if self.strict:
            level = self.spelling.find_level(feature, text)
        else:
            level = _look(text, lambda said: self._find_level(feature, said))
        if level is None or feature.kind == "category":
            return level
        return bool(feature.level_texts.index(level))

    def _find_level(self, feature: Feature, text: str) -> str | None:
        exact = self.spelling.find_level(feature, text)
        if exact is not None:
            return exact
        if feature.name not in self._levels:
            self._levels[feature.name] = _sayings(feature, self.spelling)
        known = self._levels[feature.name]
        found = known.get(folded(text))
        number = read_number(text) if found is None else None
        return found if number is None else known.get(folded(text_of(number)))

    def _check(self, feature: Feature, value: Value) -> None:
        if value == self.row[self.rules.schema.index(feature.name)]:
            raise _Refused(Cause.NO_CHANGE, f"{feature.name} is {feature.format(value)} already")
        candidate = self.rules.apply(self.row, {feature.name: value})
        if candidate == self.query:
            raise _Refused(Cause.NO_CHANGE, f"{feature.name} leads back to the start")
        for violation in self.rules.violations(self.query, candidate):
            # A rule about this feature alone is this edit's to keep, broken before or not.
            own = violation.features == (feature.name,)
            if own or _identity(violation) not in self._standing:
                domain = violation.rule == DOMAIN
                cause = Cause.OUTSIDE_DOMAIN if domain else Cause.BREAKS_RULE
                raise _Refused(cause, violation.reason, "" if domain else violation.rule)


def _identity(violation: Violation) -> tuple[str, tuple[str, ...]]:
    return violation.rule, violation.features


def _coerced(feature: Feature, raw: str | float) -> Value:
    try:
        return feature.coerce(raw)
    except RowError:
        return None


_MOVE = re.compile(
    r"(?:(?:[a-z_]{1,40} ){0,3}?from \S.*?|(?:set|change|switch|move|upgrade|increase|raise|improve"
    r"|go|become)(?:e?d)?(?: [a-z_]{1,40}){0,3}?) to (?P<to>.+)",
    re.IGNORECASE,
)
_ARROW = re.compile(r"[-=]+>|[→⇒➔➜⟶]")
_CLAUSE = re.compile(r"[(,;:—]|\.(?= )| [-–]+ | (?:because|since|as|which|so)\b")
_SEVERAL = re.compile(r"[,;/|()]| or | and ")


def _look(text: str, find: Callable[[str], T | None]) -> T | None:
    """Find what a text names: to the letter, else without what models write around a name."""
    line = unicodedata.normalize("NFC", " ".join(text.split()))[:LONGEST_SENTENCE]
    for attempt in (text, *_readings(line)):
        found = find(attempt)
        if found is not None:
            return found
    head = find(unwrap(_CLAUSE.split(line, maxsplit=1)[0]))
    others = (find(unwrap(part)) for part in _SEVERAL.split(line))
    # "Private, State-gov" names two: neither is meant more than the other.
    return head if all(other is None or other == head for other in others) else None


def _readings(line: str) -> Iterator[str]:
    bare = unwrap(line)
    yield bare
    yield bare.rstrip(".! ")
    last = unwrap(_ARROW.split(bare)[-1])
    move = _MOVE.fullmatch(last)
    yield unwrap(last if move is None else move["to"]).rstrip(".! ")


_TRUE, _FALSE = ("true", "yes", "y"), ("false", "no", "n")


def _sayings(feature: Feature, spelling: Spelling) -> dict[str, str | None]:
    """Return which level each folded saying means; ``None`` where it could be several."""
    shown = spelling.levels(feature)
    tiers: tuple[Iterable[tuple[str, str]], ...] = (
        [*((said, level) for level, said in shown.items()), *((level, level) for level in shown)],
        feature.synonyms.items(),
        [(said, level) for level, said in feature.words.items()],
        _yes_and_no(feature),
    )
    known: dict[str, str | None] = {}
    for tier in tiers:
        known = _agreed(tier) | known  # an earlier tier is never overruled
    return known


def _agreed(sayings: Iterable[tuple[str, str]]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for said, level in sayings:
        key = folded(said)
        found[key] = level if found.get(key, level) == level else None
    return found


def _yes_and_no(feature: Feature) -> Iterator[tuple[str, str]]:
    texts = feature.level_texts
    if feature.kind == "boolean":
        yes, no = texts[1:], texts[:1]
        if feature.levels == (False, True):
            yield from (("1", texts[1]), ("0", texts[0]))
    else:
        yes = tuple(t for t in texts if t.casefold() in _TRUE)
        no = tuple(t for t in texts if t.casefold() in _FALSE)
    for levels, words in ((yes, _TRUE), (no, _FALSE)):
        if len(levels) == 1:
            yield from ((word, levels[0]) for word in words)
