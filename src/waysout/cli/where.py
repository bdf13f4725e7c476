"""The condition of ``--where``, such as ``race == 'Asian' and (age > 50 or job in [none, cook])``.

A small grammar of its own, loosest first::

    either     = both {("or" | "|") both}
    both       = one {("and" | "&") one}
    one        = ("not" | "~") one | "(" either ")" | comparison
    comparison = term {("==" | "!=" | "<" | "<=" | ">" | ">=") term}
               | term ["not"] "in" "[" term {"," term} "]"

so that what pandas calls a query reads the same here. A term is a column or a value: a name in
`backticks` is a column, what stands in quotes after a comparison is a value, and a bare word is the
column of that name, or else a value. Nothing is evaluated as code, and what cannot be read, or
compared, is refused: a condition that is quietly never true would choose the wrong person.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from waysout.domain.schema import MISSING_TOKENS
from waysout.errors import InputError, shown, unknown

if TYPE_CHECKING:
    from waysout.datasets.table import Table

Record = Mapping[str, object]
Test = Callable[[Record], bool]

_EXAMPLE = "race == 'Asian' and (age > 50 or `home state` in ['NY', 'NJ'])"
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_TOKEN = re.compile(
    r"""\s*(?:(?P<column>`[^`]+`)|(?P<quoted>'[^']*'|"[^"]*")"""
    r"""|(?P<sign>==|!=|<=|>=|<|>|&&?|\|\|?|~|[()\[\],])"""
    # An apostrophe within a word begins no quotation.
    r"""|(?P<word>[^\s()\[\],&|~!=<>`'"][^\s()\[\],&|~!=<>`"]*))"""
)
_SPELT = {"&": "and", "&&": "and", "|": "or", "||": "or", "~": "not"}
_KEYWORDS = ("and", "or", "not", "in")
_DEEPEST = 50
_ORDERED = ("<", "<=", ">", ">=")
# No number, but no text to refuse either.
_ABSENT = frozenset(("?", "-", *MISSING_TOKENS))


def rows_where(table: Table, text: str) -> list[int]:
    """Return the numbers of the rows that meet a condition, or say what is wrong with it."""
    parser = _Parser(table.columns, _tokens(text), text)
    test = parser.parsed()
    found = [i for i, record in enumerate(table.records) if test(record)]
    if not found:
        _check_known(table, parser.equal)
    return found


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # column, quoted, sign, word or keyword
    text: str


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            rest = text[at:].strip()
            hint = "; equality is written ==" if rest.startswith("=") else ""
            raise _unreadable(text, f"{shown(rest)} cannot be read{hint}")
        kind, at = str(match.lastgroup), match.end()
        part = match[kind]
        if kind in ("column", "quoted"):
            part = part[1:-1]
        word = _SPELT.get(part, part.lower() if part in ("AND", "OR", "NOT", "IN") else part)
        if kind in ("sign", "word") and word in _KEYWORDS:
            kind, part = "keyword", word
        found.append(_Token(kind, part))
    return found


def _unreadable(text: str, why: str) -> InputError:
    return InputError(
        f"cannot read the condition {shown(text, 200)}: {why}. Write it as {_EXAMPLE}"
    )


@dataclass(frozen=True, slots=True)
class _Term:
    """A column, or a value as it was written."""

    text: str
    is_column: bool

    def of(self, record: Record) -> object:
        return record[self.text] if self.is_column else self.text


@dataclass
class _Parser:
    """Reads tokens from left to right; ``equal`` collects the values that columns must have."""

    columns: Sequence[str]
    tokens: list[_Token]
    text: str
    equal: list[tuple[str, str]] = field(default_factory=list)
    _at: int = 0
    _deep: int = 0

    def parsed(self) -> Test:
        test = self._either()
        if self._at < len(self.tokens):
            raise self._wrong("'and' or 'or'")
        return test

    # Tokens ------------------------------------------------------------------------------------

    @property
    def _next(self) -> _Token:
        return self.tokens[self._at] if self._at < len(self.tokens) else _Token("end", "")

    def _took(self, *texts: str) -> str:
        """Return the next keyword or sign if it is one of these, and go past it; else nothing."""
        now = self._next
        if now.kind not in ("keyword", "sign") or now.text not in texts:
            return ""
        self._at += 1
        return now.text

    def _expect(self, text: str) -> None:
        if not self._took(text):
            raise self._wrong(repr(text))

    def _wrong(self, wanted: str) -> InputError:
        now, before = self._next, self.tokens[self._at - 1].text if self._at else ""
        where = f" after {shown(before)}" if before else ""
        got = "it ends" if now.kind == "end" else f"there is {shown(now.text)}"
        both = now.kind == "word" and self._at and self.tokens[self._at - 1].kind == "word"
        hint = " (what has spaces stands in quotes, a column in `backticks`)" if both else ""
        return _unreadable(self.text, f"{got}{where} instead of {wanted}{hint}")

    # Conditions --------------------------------------------------------------------------------

    def _either(self) -> Test:
        tests = [self._both()]
        while self._took("or"):
            tests.append(self._both())
        return tests[0] if len(tests) == 1 else lambda record: any(t(record) for t in tests)

    def _both(self) -> Test:
        tests = [self._one()]
        while self._took("and"):
            tests.append(self._one())
        return tests[0] if len(tests) == 1 else lambda record: all(t(record) for t in tests)

    def _one(self) -> Test:
        self._deep += 1
        if self._deep > _DEEPEST:
            raise _unreadable(self.text, f"it is nested more than {_DEEPEST} deep")
        if self._took("not"):
            before, denied = len(self.equal), self._one()
            del self.equal[before:]  # what must not be need not be there
            test = _negated(denied)
        elif self._took("("):
            test = self._either()
            self._expect(")")
        else:
            test = self._comparison()
        self._deep -= 1
        return test

    def _comparison(self) -> Test:
        left = self._term("a column")
        denied = self._next == _Token("keyword", "not")
        self._at += denied
        if self._took("in"):
            return self._among(self._column(left), denied)
        if denied:
            raise self._wrong("'in'")
        tests: list[Test] = []
        while how := self._took(*_COMPARE):
            right = self._term("a value")
            tests.append(self._compared(left, how, right))
            left = right
        if not tests:
            raise self._wrong("a comparison (== != < <= > >= or in)")
        return tests[0] if len(tests) == 1 else lambda record: all(t(record) for t in tests)

    def _among(self, column: _Term, denied: bool) -> Test:
        close = {"[": "]", "(": ")"}.get(self._took("[", "("), "")
        if not close:
            raise self._wrong("a list such as ['NY', 'NJ']")
        values: list[_Term] = []
        while not self._took(close):
            if values:
                self._expect(",")
                if self._took(close):
                    break
            values.append(self._term("a value"))
            if values[-1].is_column:
                raise self._unquoted(values[-1].text)
        if not values:
            raise self._wrong("a value; the list is empty")
        if not denied:
            self.equal += [(column.text, value.text) for value in values]
        return lambda r: denied != any(_same(column.of(r), value.text) for value in values)

    def _compared(self, left: _Term, how: str, right: _Term) -> Test:
        if not right.is_column:
            left = self._column(left)
        compare, columns = _COMPARE[how], [t.text for t in (left, right) if t.is_column]
        if how in _ORDERED:
            for term in (left, right):
                if not term.is_column and _ordered(term.text) is None:
                    raise _unreadable(
                        self.text,
                        f"{shown(term.text)} is no number, date or column, so {how} cannot "
                        "compare it",
                    )
            return lambda r: _compared(compare, how, columns, left.of(r), right.of(r))
        if how == "==" and len(columns) == 1:
            self.equal.append((columns[0], right.text if left.is_column else left.text))
        return lambda r: _same(left.of(r), right.of(r)) == (how == "==")

    # Terms -------------------------------------------------------------------------------------

    def _term(self, wanted: str) -> _Term:
        now = self._next
        if now.kind not in ("column", "quoted", "word"):
            raise self._wrong(wanted)
        self._at += 1
        if now.kind == "column" and now.text not in self.columns:
            raise InputError(unknown("column", now.text, self.columns))
        # A column in quotes is one only where nothing else can be: before a comparison.
        first = wanted == "a column"
        is_column = now.text in self.columns and (now.kind != "quoted" or first)
        if now.kind == "word" and not is_column:
            if first and _ordered(now.text) is None:
                raise InputError(unknown("column", now.text, self.columns))
            self._check_word(now.text)
        return _Term(now.text, is_column)

    def _check_word(self, word: str) -> None:
        """Refuse a bare word that may be meant as a sum, a call or anything else than itself."""
        parts = re.split(r"[^\w']+", word)
        plain = re.fullmatch(r"[+-]?[\w.':/-]+", word) and not any(p in self.columns for p in parts)
        if not plain and _number(word) is None:
            raise self._unquoted(word)

    def _unquoted(self, word: str) -> InputError:
        return _unreadable(self.text, f"if {shown(word)} is a value, it stands in quotes")

    def _column(self, term: _Term) -> _Term:
        if not term.is_column:
            raise InputError(unknown("column", term.text, self.columns))
        return term


def _negated(test: Test) -> Test:
    return lambda record: not test(record)


def _same(one: object, other: object) -> bool:
    """Whether two cells, or a cell and a value, are the same number or else the same text."""
    texts = _text(one), _text(other)
    numbers = _number(texts[0]), _number(texts[1])
    if None not in numbers:
        return numbers[0] == numbers[1]
    if isinstance(one, bool) or isinstance(other, bool):
        return texts[0].lower() == texts[1].lower()
    return texts[0] == texts[1]


def _compared(
    compare: Callable[[Any, Any], bool],
    how: str,
    columns: Sequence[str],
    one: object,
    other: object,
) -> bool:
    """Compare two cells by size; a cell that is missing is neither below nor above anything."""
    texts = _text(one), _text(other)
    if any(text in _ABSENT for text in texts):
        return False
    sizes = [_ordered(text) for text in texts]
    if None in sizes or type(sizes[0]) is not type(sizes[1]):
        named = " and ".join(map(repr, columns))
        told = " with ".join(map(shown, texts))
        raise InputError(
            f"{how} compares two numbers or two dates, not {told} (column {named}); ask for the "
            "values themselves with == or in"
        )
    return compare(*sizes)


def _text(cell: object) -> str:
    return "" if cell is None else str(cell).strip()


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number  # "nan" is a text, and equals itself


def _ordered(text: str) -> float | datetime | None:
    number = _number(text)
    if number is not None:
        return number
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when


def _check_known(table: Table, equal: Sequence[tuple[str, str]]) -> None:
    """Where no row was found, name a text that its column never has: it may be misspelt."""
    for column, value in equal:
        cells = dict.fromkeys(_text(record[column]) for record in table.records)
        texts = [cell for cell in cells if _number(cell) is None]
        if texts and not any(_same(cell, value) for cell in cells):
            why = unknown(f"value of {column}", value, texts)
            raise InputError(f"no row of {table.source} meets this: {why}")
