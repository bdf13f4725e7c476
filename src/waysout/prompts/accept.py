"""From a reply to typed edits: each candidate becomes an edit or a rejection that has a name.

A reply may only name a feature and a value. Whatever it says, an edit that comes out of here is
typed by the schema and breaks no rule that was kept before. Repeated edits are kept: LATS counts
them, and other searches recognise them by the key.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial
from typing import TypeVar

from waysout.domain.rules import DOMAIN, RuleSet, Violation
from waysout.domain.schema import Edit, Feature, Row, Value, text_of
from waysout.errors import RowError
from waysout.prompts.numerals import NumeralMeasure, before_comment, last_of_a_move, read_number
from waysout.prompts.parse import Raw, candidates, unwrap
from waysout.prompts.reasons import is_reason
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
    """The outcome of a reply. Edits and rejections together are all its candidates."""

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
    unchanged: bool = False,
    reasons: bool = True,
) -> Proposal:
    """Return the edits of ``row`` that a reply proposes, and why the rest were rejected.

    ``query`` is the row the search started from, which rules compare with. ``cut`` says that the
    reply was stopped at a limit; ``strict`` takes the paper's format, names and categories to the
    letter; ``unchanged`` accepts edits that change nothing. What is no reason is left out, as all
    of them are without ``reasons``. The first ``k`` candidates count, flawed ones included. No text
    makes this raise; a custom rule that fails does (`RuleError`), for it is the user's own code and
    would fail on every reply.
    """
    judge = _Judge(rules, spelling, query, row, strict, unchanged, reasons)
    edits: list[Edit] = []
    rejections: list[Rejection] = []
    found = candidates(text, cut=cut, strict=strict, knows=partial(knows, spelling))
    for position, raw in enumerate(found):
        if position >= k:
            detail = f"candidate {position + 1}, but {k} were asked for"
            rejections.append(Rejection(Cause.BEYOND_K, detail))
            continue
        try:
            edits.append(judge.edit(raw))
        except _Refused as refused:
            rejections.append(refused.rejection)
    return Proposal(tuple(edits), tuple(rejections))


def knows(spelling: Spelling, feature: str, value: str) -> bool:
    """Whether a text spells a feature or (with a value) one of its levels as the prompt does."""
    found = spelling.find(feature, strict=True) if not value else _look(feature, spelling.find)
    if found is None or not value:
        return found is not None
    return any(spelling.find_level(found, said) is not None for said in _readings(value))


class _Refused(Exception):
    def __init__(self, cause: Cause, detail: str, rule: str = "") -> None:
        detail, rule = neutral(detail, LONGEST_SENTENCE), neutral(rule, LONGEST_SENTENCE)
        self.rejection = Rejection(cause, detail, rule)


class _Judge:
    """Judges the candidates of one reply."""

    def __init__(
        self,
        rules: RuleSet,
        spelling: Spelling,
        query: Row,
        row: Row,
        strict: bool,
        unchanged: bool,
        reasons: bool,
    ) -> None:
        self.rules = rules
        self.spelling = spelling
        self.query = query
        self.row = row
        self.strict = strict
        self.unchanged = unchanged
        self.reasons = reasons
        self._levers = rules.levers(query)
        self._levels: dict[str, dict[str, str | None]] = {}

    @cached_property
    def _standing(self) -> frozenset[tuple[int, tuple[str, ...]]]:
        """What the row breaks already: leaving that behind may take several edits."""
        return frozenset(map(_identity, self.rules.violations(self.query, self.row)))

    def edit(self, raw: Raw) -> Edit:
        """Return a candidate as an edit, or raise `_Refused`."""
        if raw.flaw:
            raise _Refused(Cause.TRUNCATED if raw.truncated else Cause.UNPARSABLE, raw.flaw)
        find = self.spelling.find
        feature = find(raw.feature, strict=True) if self.strict else _look(raw.feature, find)
        if feature is None:
            raise _Refused(Cause.UNKNOWN_FEATURE, f"no feature is called {neutral(raw.feature)!r}")
        lever = self._levers[feature.name]
        if lever.blocked:
            raise _Refused(Cause.NOT_ACTIONABLE, f"{feature.name}: {lever.blocked}")
        value = self._value(feature, raw)
        same = value == self.row[self.rules.schema.index(feature.name)]
        if same and not self.unchanged:
            raise _Refused(Cause.NO_CHANGE, f"{feature.name} is {feature.format(value)} already")
        candidate = self.rules.apply(self.row, {feature.name: value})
        if candidate == self.query and not self.unchanged:
            raise _Refused(Cause.NO_CHANGE, f"{feature.name} leads back to the start")
        for violation in self.rules.violations(self.query, candidate):
            # A rule about this feature alone is this edit's to keep, broken before or not.
            own = violation.features == (feature.name,)
            if own or _identity(violation) not in self._standing:
                domain = violation.rule == DOMAIN
                cause = Cause.OUTSIDE_DOMAIN if domain else Cause.BREAKS_RULE
                raise _Refused(cause, violation.reason, "" if domain else violation.rule)
        return Edit(feature.name, value, self._reason(feature, raw))

    def _reason(self, feature: Feature, raw: Raw) -> str:
        reason = neutral(unwrap(raw.reason), LONGEST_SENTENCE)
        says_why = is_reason(reason, feature.name, raw.value, self.rules.schema.names)
        return reason if self.reasons and says_why else ""

    def _value(self, feature: Feature, raw: Raw) -> Value:
        value = self._understood(feature, raw.value)
        if value is None:
            cause = Cause.OUTSIDE_DOMAIN if feature.kind == "category" else Cause.BAD_TYPE
            raise _Refused(cause, f"{feature.name} cannot be {neutral(raw.value)!r}")
        if raw.change:
            change = self._understood(feature, raw.change)
            # The two must say the same: a number beside "increase" is how far to go.
            if change != value and (feature.is_numeric or change is not None):
                detail = f"{feature.name}: {neutral(raw.value)!r} and {neutral(raw.change)!r}"
                raise _Refused(Cause.BAD_TYPE, detail)
        return value

    def _understood(self, feature: Feature, text: str) -> Value:
        read = self._number if feature.is_numeric else self._level
        value = read(feature, text)
        equals = re.search(r"[=:]", text) if value is None and not self.strict else None
        if equals and self.spelling.find(unwrap(text[: equals.start()])) is feature:
            return read(feature, text[equals.end() :])  # "income = 500"
        return value

    def _number(self, feature: Feature, text: str) -> Value:
        if self.strict and _coerced(feature, text) is None:
            return None
        number = read_number(text, NumeralMeasure.of(feature))
        if number is None:
            return None
        value = _coerced(feature, number)
        if not isinstance(value, (int, float)):
            raise _Refused(Cause.OUTSIDE_DOMAIN, f"{feature.name} cannot be {number:g}")
        return value if abs(value - number) <= _MOST_ROUNDED * abs(number) else None

    def _level(self, feature: Feature, text: str) -> Value:
        def find(said: str) -> str | None:
            exact = self.spelling.find_level(feature, said)
            return exact if exact is not None else self._sayings(feature).get(folded(said))

        if self.strict:
            level = self.spelling.find_level(feature, text)
        else:
            level = _look(text, find)
            if not level:
                # A level that is a whole number, however that is written: "2.0" is "2".
                code = unwrap(text)
                number = folded(text_of(float(code))) if _WHOLE.fullmatch(code) else None
                level = None if number is None else self._sayings(feature).get(number)
        if level is None or feature.kind == "category":
            return level
        return bool(feature.level_texts.index(level))

    def _sayings(self, feature: Feature) -> dict[str, str | None]:
        """Return which level each folded saying means; ``None`` where it could be several."""
        if feature.name in self._levels:
            return self._levels[feature.name]
        shown = self.spelling.levels(feature)
        tiers: tuple[Iterable[tuple[str, str]], ...] = (
            [(said, level) for level, said in shown.items()] + [(level, level) for level in shown],
            feature.synonyms.items(),
            [(said, level) for level, said in feature.words.items()],
            [(f"{level[:-1]} or more", level) for level in shown if _AND_MORE.fullmatch(level)],
            _yes_and_no(feature),
        )
        known: dict[str, str | None] = {}
        for tier in tiers:
            agreed: dict[str, str | None] = {}
            for said, level in tier:
                key = folded(said)
                agreed[key] = level if agreed.get(key, level) == level else None
            known = agreed | known  # an earlier tier is never overruled
        self._levels[feature.name] = known
        return known


def _identity(violation: Violation) -> tuple[int, tuple[str, ...]]:
    """Return which rule is broken; the name would not do, for two rules may have the same."""
    return violation.part, violation.features


def _coerced(feature: Feature, raw: str | float) -> Value:
    try:
        return feature.coerce(raw)
    except RowError:
        return None


# 11.6 years are 12; 0.4 are not none at all, and 0.15 may have been meant as a share.
_MOST_ROUNDED = 0.1
_WHOLE = re.compile(r"-?\d{1,15}(?:\.0*)?", re.ASCII)
_RANGE = re.compile(r"\d+\W+\d.*")
_QUOTES = " \"'`“”‘’«».!"
_SEVERAL = re.compile(r"[,;/|()]| (?:or|and|vs\.?) ")


def _look(text: str, find: Callable[[str], T | None]) -> T | None:
    """Find the thing a text names: to the letter, else without the words models put around it."""
    for attempt in _readings(text):
        found = find(attempt)
        if found is not None:
            return found
    line = _one_line(text)
    said, comment = before_comment(line)
    head = find(unwrap(said))
    if _RANGE.fullmatch(line) and find(unwrap(comment).rstrip(")")) != head:
        return None  # "1 - 4 years" is not the code 1
    others = (find(unwrap(part)) for part in _SEVERAL.split(line))
    # "Private, State-gov" names two: neither is meant more than the other.
    return head if all(other is None or other == head for other in others) else None


def _one_line(text: str) -> str:
    return unicodedata.normalize("NFC", " ".join(text.split()))[:LONGEST_SENTENCE]


def _readings(text: str) -> Iterator[str]:
    """Yield possible readings of a text as a name, from the letter to the end of a move."""
    line = _one_line(text)
    bare = unwrap(line)
    yield text
    yield line.strip(_QUOTES)
    yield bare
    yield unwrap(bare.rstrip(".! "))
    yield unwrap(last_of_a_move(bare)).rstrip(".! ")


_AND_MORE = re.compile(r"\d+\+")
_TRUE, _FALSE = ("true", "yes", "y"), ("false", "no", "n")


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
