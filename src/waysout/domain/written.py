"""Numbers as tables write them: ``12,5``, ``1.234,5``, ``12.5 %``, ``$1,234.50``.

One example tells the whole form. Reading and writing are exact: what is read in a form and written
back in it is the same number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

_SPACES = " \u00a0\u202f"
_EXAMPLE = re.compile(
    rf"[+-]?(?P<before>[^\d+-]*)[+-]?(?P<number>\d(?:[\d.,'’{_SPACES}]*\d)?)(?P<after>\D*)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class WrittenForm:
    """How a table writes its numbers.

    ``before`` and ``after`` stand around them, ``mark`` before the decimals and ``group`` between
    thousands; at least ``decimals`` of them are written.
    """

    before: str = ""
    after: str = ""
    mark: str = "."
    group: str = ""
    decimals: int = 0

    @classmethod
    def like(cls, example: str) -> WrittenForm:
        """Return the form of an example, or raise `ValueError`.

        A lone comma before three digits parts thousands, any other the decimals. An example that
        ends in a zero after the mark says that so many decimals are always written.

        >>> WrittenForm.like("$1,234.50")
        WrittenForm(before='$', after='', mark='.', group=',', decimals=2)
        >>> WrittenForm.like("12,5 %")
        WrittenForm(before='', after=' %', mark=',', group='', decimals=0)
        """
        found = _EXAMPLE.fullmatch(example.strip())
        if found is None:
            raise ValueError(f"{example!r} is not an example of a number")
        number = found["number"]
        mark, group = _separators(number)
        decimals = number.rpartition(mark)[2] if mark in number else ""
        form = cls(
            found["before"], found["after"], mark, group,
            len(decimals) if decimals.endswith("0") else 0,
        )  # fmt: skip
        if form.read(example) is None:
            raise ValueError(f"{example!r} is not an example of a number")
        return form

    @property
    def is_plain(self) -> bool:
        """Whether numbers are written as Python writes them."""
        return not (self.before.strip() or self.after.strip() or self.group) and self.mark == "."

    def read(self, text: str) -> float | None:
        """Return the number that a text writes in this form, if it does.

        >>> WrittenForm.like("1.234,5").read("-1.000"), WrittenForm.like("12 %").read("7%")
        (-1000.0, 7.0)
        >>> WrittenForm.like("12,5").read("12.5")
        """
        sign, body = _signed(text.strip())
        body = body.removeprefix(self.before.strip()).removesuffix(self.after.strip()).strip()
        if sign > 0:
            sign, body = _signed(body)
        mark, group = re.escape(self.mark), re.escape(self.group)
        whole = rf"[1-9]\d{{0,2}}(?:{group}\d{{3}})+|\d+" if group else r"\d+"
        if not re.fullmatch(rf"(?:{whole})(?:{mark}\d+)?", body, re.ASCII):
            return None
        plain = body.replace(self.group, "") if self.group else body
        return sign * float(plain.replace(self.mark, "."))

    def write(self, value: float) -> str:
        """Write a number in this form.

        >>> WrittenForm.like("$1,234.50").write(-1000), WrittenForm.like("12,5").write(3)
        ('-$1,000.00', '3')
        """
        exact = Decimal(repr(float(value))).normalize()
        decimals = max(self.decimals, -int(exact.as_tuple().exponent))
        text = f"{abs(exact):,.{decimals}f}"
        text = "".join({",": self.group, ".": self.mark}.get(c, c) for c in text)
        return f"{'-' if exact < 0 else ''}{self.before}{text}{self.after}"


def _signed(text: str) -> tuple[int, str]:
    return (-1, text[1:].lstrip()) if text.startswith("-") else (1, text.removeprefix("+").lstrip())


def _separators(number: str) -> tuple[str, str]:
    """Return the decimal mark of a number, and what parts its thousands."""
    found = [c for c in number if not c.isdigit()]
    kinds = list(dict.fromkeys(found))
    if len(kinds) > 1:
        return found[-1], found[0]
    if not kinds:
        return ".", ""
    thousands = re.fullmatch(r"[1-9]\d{0,2}(\D\d{3})+", number, re.ASCII)
    if kinds[0] in ".," and (len(found) == 1 and (kinds[0] == "." or not thousands)):
        return kinds[0], ""
    return ("," if kinds[0] == "." else "."), kinds[0]
