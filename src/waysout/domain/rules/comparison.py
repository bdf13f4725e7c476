"""Linear comparisons, as people write them in a rule."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from waysout.domain.rules.base import SMALLEST
from waysout.domain.schema import LARGEST
from waysout.errors import RuleError, shown

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|`(?P<quoted>[^`]+)`|(?P<name>[^\W\d][\w.]*)|(?P<op><=|>=|==|<|>|\+|-|\*))"
)
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "==": operator.eq,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """``Σ coefficient · feature + constant  (comparison)  0``."""

    terms: tuple[tuple[str, float], ...]
    constant: float
    comparison: str


def parse_comparison(text: object) -> Comparison:
    """Read a linear comparison as people write it, or raise `RuleError` saying what is wrong.

    >>> parse_comparison("a + 2*`b c` <= d - 5")
    Comparison(terms=(('a', 1.0), ('b c', 2.0), ('d', -1.0)), constant=5.0, comparison='<=')
    """
    if not isinstance(text, str):
        raise RuleError(f"a comparison must be a string such as 'a + b <= c', not {text!r}")
    tokens: list[tuple[str, str]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise RuleError(
                f"cannot read {text[at:].strip()[:30]!r} in {text!r}; names that are not plain "
                "words stand in `backticks`"
            )
        kind = str(match.lastgroup)
        tokens.append(("name" if kind == "quoted" else kind, match[kind]))
        at = match.end()
    where = [i for i, token in enumerate(tokens) if token[0] == "op" and token[1] in COMPARISONS]
    if len(where) != 1:
        raise RuleError(f"{text!r} needs exactly one of {', '.join(COMPARISONS)}")
    left, right = tokens[: where[0]], tokens[where[0] + 1 :]
    if not left or not right:
        raise RuleError(f"{text!r}: one side is empty")
    terms: dict[str, float] = {}
    constant = 0.0
    for side, sign in ((left, 1.0), (right, -1.0)):
        for name, coefficient in _terms(side, text):
            if name is None:
                constant += sign * coefficient
            else:
                terms[name] = terms.get(name, 0.0) + sign * coefficient
    kept = tuple((name, c) for name, c in terms.items() if c != 0.0)
    for name, c in (*kept, (None, constant)):
        _check_size(name, c, text)
    if not kept:
        raise RuleError(f"{text!r} names no feature that matters")
    return Comparison(kept, constant, tokens[where[0]][1])


def _check_size(name: str | None, number: float, text: str) -> None:
    """Refuse what a sum of products, or a quotient, could overflow with.

    The features' ranges are not asked: many have none, and a person's own value may lie outside.
    Values reach ±`LARGEST` at most, so with coefficients of that size every sum is finite.
    """
    if abs(number) <= LARGEST and (name is None or abs(number) >= SMALLEST):
        return
    what = "a constant" if name is None else f"the coefficient of {name!r}"
    raise RuleError(
        f"{shown(text, 200)}: {what} is {number:g}, and must be between {SMALLEST:g} and 1e15 in "
        "size: divide or multiply both sides"
    )


def _terms(tokens: list[tuple[str, str]], text: str) -> list[tuple[str | None, float]]:
    """Read a sum; each of its terms is a number, a name, or a product of numbers and one name."""
    terms: list[tuple[str | None, float]] = []
    at = 0
    while at < len(tokens):
        coefficient, name = 1.0, None
        while at < len(tokens) and tokens[at] in (("op", "+"), ("op", "-")):
            coefficient = -coefficient if tokens[at][1] == "-" else coefficient
            at += 1
        more, is_zero = True, False
        while more:
            if at >= len(tokens) or tokens[at][0] == "op":
                raise RuleError(f"{text!r}: a number or a feature is missing")
            kind, word = tokens[at]
            if kind == "name" and name is not None:
                raise RuleError(f"{text!r} multiplies two features; a linear rule cannot")
            name = word if kind == "name" else name
            coefficient *= float(word) if kind == "number" else 1.0
            is_zero = is_zero or (
                kind == "number" and not word.lower().partition("e")[0].strip("0.")
            )
            at += 1
            more = at < len(tokens) and tokens[at] == ("op", "*")
            at += more
        if at < len(tokens) and tokens[at] not in (("op", "+"), ("op", "-")):
            raise RuleError(f"{text!r}: an operator is missing before {tokens[at][1]!r}")
        if not is_zero:  # as written: 1e-400 is none, though a float cannot tell
            _check_size(name, coefficient, text)
        terms.append((name, coefficient))
    return terms
