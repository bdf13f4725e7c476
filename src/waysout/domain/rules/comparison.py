"""Linear comparisons, as people write them in a rule."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from waysout.domain.rules.base import ROUNDING, SMALLEST
from waysout.domain.schema import LARGEST
from waysout.errors import RuleError, shown

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|`(?P<quoted>[^`]+)`|(?P<name>[^\W\d][\w.]*)|(?P<op><=|>=|==|<|>|\+|-|\*))"
)
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "==": operator.eq,
}  # fmt: skip


# Numbers in a rule are summed up as the decimals they are: 1000.8 - 1000.7 is 0.1.
_DECIMALS = Context(prec=50, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
# A number of more digits was computed, and its last bits say nothing. (With 15, one in ten of those
# would pass for written.)
_MOST_WRITTEN = 12


@dataclass(frozen=True, slots=True)
class Comparison:
    """``Σ coefficient · feature + constant  (comparison)  0``."""

    terms: tuple[tuple[str, float], ...]
    constant: float
    comparison: str

    def left_side(self, values: Sequence[float]) -> float:
        """Return the left side for the values of its features, in the order of the terms.

        The sum is exact, of the decimals that the numbers are written as: with 0.1 and 0.2 it is
        0.3, and large terms that cancel leave what the small ones say. A number that was computed
        is known up to rounding, and so is its term: a sum that is 0 up to that is 0.

        >>> parse_comparison("0.1*a + 0.2*b <= 0.3").left_side([1, 1])
        0.0
        >>> parse_comparison("1e15*a - 1e15*b + c <= 5").left_side([50, 50, 6])
        1.0
        """
        products = [c * v for (_, c), v in zip(self.terms, values, strict=True)]
        products.append(self.constant)
        total = math.fsum(products)
        if abs(total) > ROUNDING * sum(map(abs, products)):
            return total  # floats are near enough
        factors = [*zip((c for _, c in self.terms), values, strict=True), (self.constant, 1)]
        pairs = zip(products, factors, strict=True)
        unsure = sum(abs(p) for p, (c, v) in pairs if not (_is_written(c) and _is_written(v)))
        exact = sum(_as_written(c) * _as_written(v) for c, v in factors)
        return 0.0 if -ROUNDING * unsure <= exact <= ROUNDING * unsure else float(exact)


def _is_written(number: float) -> bool:
    """Whether a number is as somebody wrote it: what was computed has more digits."""
    return number == int(number) or float(f"{number:.{_MOST_WRITTEN}g}") == number


@lru_cache(4096)
def _as_written(number: float) -> int | Fraction:
    """Return the decimal that a number is written as."""
    return whole if number == (whole := int(number)) else Fraction(repr(float(number)))


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
    terms: dict[str, Decimal] = {}
    constant = Decimal(0)
    with localcontext(_DECIMALS):
        for side, sign in ((left, 1), (right, -1)):
            for name, coefficient in _terms(side, text):
                if name is None:
                    constant += sign * coefficient
                else:
                    terms[name] = terms.get(name, 0) + sign * coefficient
        kept = {name: c for name, c in terms.items() if c != 0}
        for named, c in (*kept.items(), (None, constant)):
            _check_size(named, c, text)
    if not kept:
        raise RuleError(f"{text!r} names no feature that matters")
    floats = tuple((name, float(c)) for name, c in kept.items())
    return Comparison(floats, float(constant), tokens[where[0]][1])


def _check_size(name: str | None, number: Decimal, text: str) -> None:
    """Refuse what a sum of products, or a quotient, could overflow with.

    The features' ranges are not asked: many have none, and a person's own value may lie outside.
    Values reach ±`LARGEST` at most, so with coefficients of that size every sum is finite.
    """
    if abs(number) <= LARGEST and (name is None or abs(number) >= SMALLEST):
        return
    what = "a constant" if name is None else f"the coefficient of {name!r}"
    raise RuleError(
        f"{shown(text, 200)}: {what} is {float(number):g}, and must be between {SMALLEST:g} and "
        "1e15 in size: divide or multiply both sides"
    )


def _terms(tokens: list[tuple[str, str]], text: str) -> list[tuple[str | None, Decimal]]:
    """Read a sum; each of its terms is a number, a name, or a product of numbers and one name."""
    terms: list[tuple[str | None, Decimal]] = []
    at = 0
    while at < len(tokens):
        coefficient, name = Decimal(1), None
        while at < len(tokens) and tokens[at] in (("op", "+"), ("op", "-")):
            coefficient = -coefficient if tokens[at][1] == "-" else coefficient
            at += 1
        more = True
        while more:
            if at >= len(tokens) or tokens[at][0] == "op":
                raise RuleError(f"{text!r}: a number or a feature is missing")
            kind, word = tokens[at]
            if kind == "name" and name is not None:
                raise RuleError(f"{text!r} multiplies two features; a linear rule cannot")
            name = word if kind == "name" else name
            coefficient *= Decimal(word) if kind == "number" else 1
            at += 1
            more = at < len(tokens) and tokens[at] == ("op", "*")
            at += more
        if at < len(tokens) and tokens[at] not in (("op", "+"), ("op", "-")):
            raise RuleError(f"{text!r}: an operator is missing before {tokens[at][1]!r}")
        if coefficient != 0:
            _check_size(name, coefficient, text)
        terms.append((name, coefficient))
    return terms
