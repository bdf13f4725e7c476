"""A reader of GBNF grammars without recursion: what they match, and random texts of theirs.

An independent reading of the notation, so that a grammar is not proved by the code that made it.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import cache, cached_property

_TOKEN = re.compile(
    r"""\s*(?:(?P<literal>"(?:[^"\\]|\\.)*")|(?P<letters>\[(?:[^\]\\]|\\.)*\])"""
    r"""|(?P<name>[a-zA-Z][a-zA-Z0-9-]*)|(?P<times>\{\d+(?:,\d+)?\}|\?)|(?P<mark>[()|]))"""
)
_ESCAPE = re.compile(r"\\(x[0-9A-F]{2}|.)")
_PLAIN = {"n": "\n", "r": "\r", "t": "\t"}
_SOME_LETTERS = [chr(c) for c in range(0x100)] + list("€漢🙂")


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    return chr(int(code[1:], 16)) if len(code) == 3 else _PLAIN.get(code, code)


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while text[at:].strip():
        token = _TOKEN.match(text, at)
        if token is None or token.lastgroup is None:
            raise ValueError(f"not GBNF: {text[at : at + 40]!r}")
        found.append((token.lastgroup, token[token.lastgroup]))
        at = token.end()
    return found


@cache
def _fitting(letters: str) -> str:
    """Return some of the characters that a class of them holds."""
    return "".join(c for c in _SOME_LETTERS if re.fullmatch(letters, c))


@dataclass(frozen=True)
class Literal:
    text: str

    def pattern(self, rules: Gbnf) -> str:
        return re.escape(self.text)

    def sample(self, rules: Gbnf, rng: random.Random) -> str:
        return self.text


@dataclass(frozen=True)
class Letters:
    source: str

    def pattern(self, rules: Gbnf) -> str:
        return self.source

    def sample(self, rules: Gbnf, rng: random.Random) -> str:
        return rng.choice(_fitting(self.source))


@dataclass(frozen=True)
class Name:
    name: str

    def pattern(self, rules: Gbnf) -> str:
        return rules.pattern(self.name)

    def sample(self, rules: Gbnf, rng: random.Random) -> str:
        return rules.rules[self.name].sample(rules, rng)


@dataclass(frozen=True)
class Times:
    part: Part
    least: int
    most: int

    def pattern(self, rules: Gbnf) -> str:
        return f"(?:{self.part.pattern(rules)}){{{self.least},{self.most}}}"

    def sample(self, rules: Gbnf, rng: random.Random) -> str:
        count = rng.randint(self.least, self.most)
        return "".join(self.part.sample(rules, rng) for _ in range(count))


@dataclass(frozen=True)
class Either:
    """One of several sequences."""

    options: tuple[tuple[Part, ...], ...]

    def pattern(self, rules: Gbnf) -> str:
        options = ("".join(p.pattern(rules) for p in parts) for parts in self.options)
        return f"(?:{'|'.join(options)})"

    def sample(self, rules: Gbnf, rng: random.Random) -> str:
        return "".join(p.sample(rules, rng) for p in rng.choice(self.options))


Part = Literal | Letters | Name | Times | Either


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)

    def either(self) -> Either:
        options = [self.sequence()]
        while self.tokens and self.tokens[0][1] == "|":
            self.tokens.pop(0)
            options.append(self.sequence())
        return Either(tuple(options))

    def sequence(self) -> tuple[Part, ...]:
        parts: list[Part] = []
        while self.tokens and self.tokens[0] not in (("mark", "|"), ("mark", ")")):
            kind, text = self.tokens.pop(0)
            parts.append(self.times(self.part(kind, text)))
        if not parts:
            raise ValueError("an empty alternative")
        return tuple(parts)

    def part(self, kind: str, text: str) -> Part:
        if kind == "literal":
            return Literal(_ESCAPE.sub(_unescaped, text[1:-1]))
        if kind == "letters":
            return Letters(text)
        if kind == "name":
            return Name(text)
        if text != "(":
            raise ValueError(f"{text!r} stands alone")
        inside = self.either()
        if not self.tokens or self.tokens.pop(0)[1] != ")":
            raise ValueError("an open bracket")
        return inside

    def times(self, part: Part) -> Part:
        if not self.tokens or self.tokens[0][0] != "times":
            return part
        text = self.tokens.pop(0)[1]
        if text == "?":
            return Times(part, 0, 1)
        ends = text[1:-1].split(",")
        return Times(part, int(ends[0]), int(ends[-1]))


def read_expression(text: str) -> Either:
    reader = _Reader(text)
    found = reader.either()
    if reader.tokens:
        raise ValueError(f"{reader.tokens[0][1]!r} closes nothing")
    return found


class Gbnf:
    """A grammar, one rule a line."""

    def __init__(self, text: str) -> None:
        lines = [line.split(" ::= ", 1) for line in text.splitlines()]
        self.rules = {name: read_expression(rule) for name, rule in lines}
        self._patterns: dict[str, str] = {}
        if len(self.rules) < len(lines):
            raise ValueError("a rule is given twice")

    def pattern(self, name: str) -> str:
        """Return a rule as a regular expression."""
        if name not in self._patterns:
            self._patterns[name] = self.rules[name].pattern(self)
        return self._patterns[name]

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        return re.compile(self.pattern("root"))

    def matches(self, text: str) -> bool:
        return self._whole.fullmatch(text) is not None

    def sample(self, rng: random.Random) -> str:
        return self.rules["root"].sample(self, rng)


def expression(text: str) -> Gbnf:
    """Read an expression as a grammar of its own."""
    return Gbnf(f"root ::= {text}")
