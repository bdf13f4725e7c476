"""Linear comparisons written as people write them: ``a + 2*`b c` <= d - 5``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from waysout.errors import RuleError

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|`(?P<quoted>[^`]+)`|(?P<name>[^\W\d][\w.]*)|(?P<op><=|>=|==|<|>|\+|-|\*))"
)
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """``Σ coefficient · feature + constant  (comparison)  0``."""

    terms: tuple[tuple[str, float], ...]
    constant: float
    comparison: str


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise RuleError(
                f"cannot read {text[at:].strip()[:30]!r} in {text!r}; names that are not plain "
                "words stand in `backticks`"
            )
        kind = str(match.lastgroup)
        tokens.append(("name" if kind == "quoted" else kind, match[kind]))
        at = match.end()
    return tokens


def _side(tokens: list[tuple[str, str]], text: str) -> tuple[dict[str, float], float]:
    """Read a sum of terms; each is a number, a name, or a product of numbers and one name."""
    terms: dict[str, float] = {}
    constant, at = 0.0, 0
    while at < len(tokens):
        sign = 1.0
        while at < len(tokens) and tokens[at] in (("op", "+"), ("op", "-")):
            sign = -sign if tokens[at][1] == "-" else sign
            at += 1
        coefficient, name, at = _product(tokens, at, text)
        if name is None:
            constant += sign * coefficient
        else:
            terms[name] = terms.get(name, 0.0) + sign * coefficient
    return terms, constant


def _product(tokens: list[tuple[str, str]], at: int, text: str) -> tuple[float, str | None, int]:
    coefficient, name = 1.0, None
    while True:
        if at >= len(tokens) or tokens[at][0] == "op":
            raise RuleError(f"{text!r}: a number or a feature is missing")
        kind, word = tokens[at]
        if kind == "number":
            coefficient *= float(word)
        elif name is None:
            name = word
        else:
            raise RuleError(f"{text!r} multiplies two features; a linear rule cannot")
        at += 1
        if at >= len(tokens) or tokens[at] in (("op", "+"), ("op", "-")):
            return coefficient, name, at
        if tokens[at] != ("op", "*"):
            raise RuleError(f"{text!r}: an operator is missing before {tokens[at][1]!r}")
        at += 1


def parse_comparison(text: object) -> Comparison:
    """Read a comparison, or raise `RuleError` saying what is wrong with it.

    >>> parse_comparison("a + 2*`b c` <= d - 5")
    Comparison(terms=(('a', 1.0), ('b c', 2.0), ('d', -1.0)), constant=5.0, comparison='<=')
    """
    if not isinstance(text, str):
        raise RuleError(f"a comparison is text such as 'a + b <= c', not {text!r}")
    tokens = _tokens(text)
    where = [i for i, token in enumerate(tokens) if token[0] == "op" and token[1] in COMPARISONS]
    if len(where) != 1:
        raise RuleError(f"{text!r} needs exactly one of {', '.join(COMPARISONS)}")
    left, right = tokens[: where[0]], tokens[where[0] + 1 :]
    if not left or not right:
        raise RuleError(f"{text!r}: one side is empty")
    terms, constant = _side(left, text)
    others, offset = _side(right, text)
    for name, coefficient in others.items():
        terms[name] = terms.get(name, 0.0) - coefficient
    kept = tuple((name, c) for name, c in terms.items() if c != 0.0)
    if not kept:
        raise RuleError(f"{text!r} names no feature that matters")
    return Comparison(kept, constant - offset, tokens[where[0]][1])
