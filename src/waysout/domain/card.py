"""Cards: one TOML file that describes a table. `docs/cards.md` is the reference."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from waysout.domain.rules import Custom, Rule, RuleSet, rule_from_table
from waysout.domain.schema import LARGEST, MISSING_TOKENS, Feature, Scalar, Schema, text_of
from waysout.domain.toml_lines import Path as TomlPath
from waysout.domain.toml_lines import line_map, nearest_line
from waysout.errors import CardError, InputError, SchemaError, shown, unknown

VERSION = 1
_TOP = (
    "card", "name", "title", "rule_set", "rule_sets", "missing_values", "outcome", "features",
    "rules",
)  # fmt: skip
_OUTCOME = ("target", "positive", "yes", "no", "ignore")
_FEATURE = (
    "kind", "unit", "about", "range", "bins", "scale", "decimals", "levels", "ordered", "codes",
    "words", "synonyms", "missing", "unseen", "missing_code",
)  # fmt: skip

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CardOutcome:
    """Which column is the label, which value is a yes, and how a person would say it."""

    target: str
    positive: Scalar
    yes: str
    no: str
    ignore: tuple[str, ...] = ()


@dataclass(frozen=True)
class Card:
    """A table, described: features, outcome, rule sets, bins for the key, scales."""

    name: str
    schema: Schema
    outcome: CardOutcome
    title: str = ""
    rule_sets: Mapping[str, RuleSet] = field(default_factory=dict)
    default_rules: str = ""
    bins: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    scales: Mapping[str, float] = field(default_factory=dict)
    source: str = "card"

    @classmethod
    def load(cls, path: str | Path, *, trust_code: bool = False) -> Card:
        """Read a card from a file."""
        path = Path(path)
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except FileNotFoundError:
            raise CardError("there is no such file", source=str(path)) from None
        except UnicodeDecodeError as error:
            raise CardError(f"not UTF-8 text ({error.reason})", source=str(path)) from None
        except OSError as error:
            raise CardError(f"cannot be read: {error.strerror}", source=str(path)) from None
        return cls.parse(text, source=str(path), trust_code=trust_code)

    @classmethod
    def parse(cls, text: str, *, source: str = "card", trust_code: bool = False) -> Card:
        """Read a card from text; a wrong one raises `CardError` with all its problems."""
        return _Reader(text, source, trust_code).card()

    def rules(self, name: str | None = None) -> RuleSet:
        """Return a rule set by name, or the card's default one."""
        if name is None and not self.default_rules:
            return RuleSet(self.schema, name="none")
        wanted = self.default_rules if name is None else name
        if wanted not in self.rule_sets:
            raise InputError(f"{self.source}: {unknown('rule set', wanted, self.rule_sets)}")
        return self.rule_sets[wanted]

    def is_positive(self, raw: object) -> bool:
        """Whether a label of the table means yes."""
        return label_text(raw) == label_text(self.outcome.positive)

    def advice(self) -> list[str]:
        """Return what is not wrong but worth a second look."""
        found: dict[str, list[str]] = {}
        for feature in self.schema:
            for advice in _advice(feature):
                found.setdefault(advice, []).append(feature.name)
        told = [f"{_some(names)}: {advice}" for advice, names in found.items()]
        return told if self.rule_sets else [*told, "no rules: everything may change in any way"]


def _advice(feature: Feature) -> Iterator[str]:
    folded = {text.casefold() for text in feature.level_texts}
    text = any(isinstance(level, str) for level in feature.levels)
    if feature.kind == "category" and text and not feature.codes:
        yield "no codes, so a model trained on label codes cannot be asked"
    if len(folded) < len(feature.level_texts):
        yield "levels that differ in letter case only are one to the key"
    if feature.is_numeric and feature.range is None:
        yield "no range, so any number may be proposed"
    if not feature.about:
        yield "no 'about', which people and LLMs read"


def _some(names: Sequence[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def label_text(raw: object) -> str:
    """Write a label so that 1, 1.0, "1" and "1.0" are the same."""
    text = text_of(raw)
    try:
        return text_of(float(text))
    except ValueError:
        return text


class _Reader:
    """Reads one card, collecting every problem with its line before it gives up."""

    def __init__(self, text: str, source: str, trust_code: bool) -> None:
        self.source = source
        self.trust_code = trust_code
        self.problems: list[CardError] = []
        try:
            self.table: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"line (\d+)", str(error))
            reason = re.sub(r" \(at .*\)$", "", str(error))
            raise CardError(
                f"not valid TOML: {reason}", source=source, line=int(line[1]) if line else None
            ) from None
        except (RecursionError, ValueError) as error:  # nested too deeply; thousands of digits
            raise CardError(f"not valid TOML: {error}", source=source) from None
        self.lines = line_map(text)

    def card(self) -> Card:
        self._known((), self.table, _TOP)
        version = self.table.get("card")
        if isinstance(version, bool) or version != VERSION:
            self._note(("card",), f"needs the line card = {VERSION}, the version of this format")
        outcome = self._try(("outcome",), self._outcome)
        features = self._features()
        self._give_up()
        schema = self._try(("features",), Schema, tuple(features))
        self._give_up()
        assert schema is not None
        assert outcome is not None
        self._refuse_overlap(schema, outcome)
        sets = self._rule_sets(schema)
        default = self._try(("rule_set",), self._default)
        bins, scales = self._key_and_scale(schema)
        name = self._try(("name",), self._name)
        title = self._try(("title",), _text, self.table.get("title", ""), "title")
        self._give_up()
        return Card(
            str(name), schema, outcome, str(title), sets, str(default), bins, scales, self.source
        )

    def _note(self, path: TomlPath, reason: str) -> None:
        line = nearest_line(self.lines, path)
        self.problems.append(CardError(reason, source=self.source, line=line))

    def _try(self, path: TomlPath, make: Callable[..., T], *args: object) -> T | None:
        try:
            return make(*args)
        except InputError as error:
            self._note(path, str(error))
            return None

    def _give_up(self) -> None:
        if self.problems:
            first = min(self.problems, key=lambda p: p.line or 0)
            raise CardError(
                first.reason, source=self.source, line=first.line, problems=self.problems
            )

    def _known(self, path: TomlPath, table: Mapping[str, Any], names: Sequence[str]) -> None:
        for key in table:
            if key not in names:
                self._note((*path, key), unknown("field", key, names))

    def _name(self) -> str:
        name = self.table.get("name")
        if not isinstance(name, str) or not re.fullmatch(r"[\w-]{1,64}", name):
            raise InputError(f"name is 1 to 64 letters, digits, - or _; got {shown(name)}")
        return name

    def _outcome(self) -> CardOutcome:
        table = _table(self.table.get("outcome"), "[outcome], which says what a yes is,")
        self._known(("outcome",), table, _OUTCOME)
        for key in ("target", "positive"):
            if key not in table:
                raise InputError(f"[outcome] needs {key!r}")
        positive = _scalar(table["positive"], "positive")
        return CardOutcome(
            target=_name(table["target"], "target"),
            positive=positive,
            yes=_text(table.get("yes", f"{table['target']} is {positive}"), "yes"),
            no=_text(table.get("no", f"{table['target']} is not {positive}"), "no"),
            ignore=tuple(_name(n, "ignore") for n in _list(table.get("ignore", []), "ignore")),
        )

    def _refuse_overlap(self, schema: Schema, outcome: CardOutcome) -> None:
        for field_name, names in (("target", (outcome.target,)), ("ignore", outcome.ignore)):
            for name in names:
                if name in schema:
                    reason = f"{name!r} is the target or ignored, so it cannot be a feature"
                    self._note(("outcome", field_name), reason)

    def _features(self) -> list[Feature]:
        tables = self.table.get("features")
        if not isinstance(tables, dict) or not tables:
            self._note(("features",), "a card needs at least one [features.NAME]")
            return []
        tokens = self._try(("missing_values",), self._missing_tokens) or MISSING_TOKENS
        made = []
        for name, table in tables.items():
            path = ("features", name)
            if not isinstance(table, dict):
                self._note(path, f"feature {name!r} is a table, not {shown(table)}")
                continue
            self._known(path, table, _FEATURE)
            try:
                made.append(_feature(name, table, tokens))
            except SchemaError as error:
                self._note(path if error.field is None else (*path, error.field), str(error))
        return made

    def _missing_tokens(self) -> tuple[str, ...]:
        given = _list(self.table.get("missing_values", list(MISSING_TOKENS)), "missing_values")
        return tuple(_text(token, "missing_values") for token in given)

    def _rule_sets(self, schema: Schema) -> dict[str, RuleSet]:
        tables = self.table.get("rules", {})
        self._try(("rule_sets",), _names, self.table.get("rule_sets", []))
        if not isinstance(tables, dict):
            self._note(("rules",), "rules stand in a named set: [[rules.NAME]]")
            return {}
        names = dict.fromkeys(self._set_names())
        rules = {name: self._rules(schema, name, tables.get(name, [])) for name in names}
        sets: dict[str, RuleSet] = {}
        for name in names:
            whole = self._with_included(name, rules, ())
            made = self._try(("rules", name), RuleSet, schema, tuple(whole), name)
            sets |= {name: made} if made else {}
        return sets

    def _rules(self, schema: Schema, name: str, tables: object) -> list[Rule | str]:
        """Read one set; a text in the list is the name of a set to include there."""
        if not isinstance(tables, list):
            self._note(("rules", name), f"rule set {name!r} is a list: [[rules.{name}]]")
            return []
        found: list[Rule | str] = []
        for i, table in enumerate(tables):
            path = ("rules", name, i)
            made = self._try(path, self._rule, schema, table)
            found += [] if made is None else [made]
        return found

    def _rule(self, schema: Schema, table: object) -> Rule | str:
        if not isinstance(table, dict):
            raise InputError(f"a rule is a table, not {shown(table)}")
        if table.get("kind") == "include":
            if set(table) - {"kind", "set"} or table.get("set") not in self._set_names():
                raise InputError(unknown("rule set", table.get("set"), self._set_names()))
            return str(table["set"])
        rule = rule_from_table(table)
        if self.trust_code and isinstance(rule, Custom):
            rule = rule.trusted()
        RuleSet(schema, (rule,))  # binding it alone finds what is wrong with it, at its own line
        return rule

    def _set_names(self) -> list[str]:
        declared = self.table.get("rule_sets", [])
        known = [n for n in declared if isinstance(n, str)] if isinstance(declared, list) else []
        return [*known, *(n for n in self.table.get("rules", {}) if n not in known)]

    def _with_included(
        self, name: str, rules: Mapping[str, list[Rule | str]], inside: tuple[str, ...]
    ) -> list[Rule]:
        if name in inside:
            self._note(("rules", name), f"rule sets include each other in a circle: {name!r}")
            return []
        whole: list[Rule] = []
        for rule in rules[name]:
            if isinstance(rule, str):
                whole += self._with_included(rule, rules, (*inside, name))
            else:
                whole.append(rule)
        return whole

    def _default(self) -> str:
        name, sets = self.table.get("rule_set"), self._set_names()
        if name is None and len(sets) > 1:
            raise InputError("there are several rule sets: say which is usual, rule_set = 'NAME'")
        if name is None:
            return sets[0] if sets else ""
        if not isinstance(name, str) or name not in sets:
            raise InputError(unknown("rule set", name, sets))
        return name

    def _key_and_scale(
        self, schema: Schema
    ) -> tuple[dict[str, tuple[float, ...]], dict[str, float]]:
        bins: dict[str, tuple[float, ...]] = {}
        scales: dict[str, float] = {}
        for written, table in self.table["features"].items():
            feature = schema[written]
            path = ("features", written)
            if "bins" in table:
                edges = self._try((*path, "bins"), _bins, feature, table["bins"])
                bins[feature.name] = edges or ()
            if "scale" in table:
                scale = self._try((*path, "scale"), _scale, feature, table["scale"])
                scales[feature.name] = scale or 1.0
        return bins, scales


def _feature(name: str, table: Mapping[str, Any], tokens: tuple[str, ...]) -> Feature:
    if "kind" not in table:
        raise SchemaError(f"feature {name!r} needs a kind: number, integer, category or boolean")
    feature = Feature(
        name=name,
        kind=table["kind"],
        levels=tuple(_scalar(v, "levels") for v in _list(table.get("levels", []), "levels")),
        ordered=_flag(table.get("ordered", False), "ordered"),
        range=_pair(table["range"]) if "range" in table else None,
        decimals=_whole(table["decimals"], "decimals") if "decimals" in table else None,
        missing=table.get("missing", "refuse"),
        unseen=table.get("unseen", "refuse"),
        synonyms=_texts(table.get("synonyms", {}), "synonyms"),
        codes={
            text_of(k): _number(v, "codes")
            for k, v in _table(table.get("codes", {}), "codes").items()
        },
        words=_texts(table.get("words", {}), "words"),
        unit=_text(table.get("unit", ""), "unit"),
        about=_text(table.get("about", ""), "about"),
        missing_code=_number(table["missing_code"], "missing_code")
        if "missing_code" in table
        else None,
        missing_tokens=tokens,
    )
    without = [t for t in feature.level_texts if t not in feature.codes]
    if feature.codes and without:
        raise SchemaError(f"feature {name!r}: level {without[0]!r} has no code", field="codes")
    return feature


def _bins(feature: Feature, raw: object) -> tuple[float, ...]:
    edges = tuple(_number(edge, "bins") for edge in _list(raw, "bins"))
    if not feature.is_numeric:
        raise InputError(f"feature {feature.name!r} is a {feature.kind}; bins need a number")
    if not edges or any(a >= b for a, b in pairwise(edges)):
        raise InputError(f"feature {feature.name!r}: bins are edges in rising order, not {raw!r}")
    return edges


def _scale(feature: Feature, raw: object) -> float:
    scale = _number(raw, "scale")
    if not feature.is_numeric or scale <= 0:
        raise InputError(f"feature {feature.name!r}: scale is a number above 0 for a numeric one")
    return scale


def _wrong(what: str, wanted: str, raw: object) -> SchemaError:
    return SchemaError(f"{what} must be {wanted}, not {shown(raw)}", field=what)


def _table(raw: object, what: str) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise _wrong(what, "a table", raw)
    return raw


def _texts(raw: object, what: str) -> dict[str, str]:
    return {text_of(k): _text(v, what) for k, v in _table(raw, what).items()}


def _list(raw: object, what: str) -> list[Any]:
    if not isinstance(raw, list):
        raise _wrong(what, "a list", raw)
    return raw


def _text(raw: object, what: str) -> str:
    if not isinstance(raw, str):
        raise _wrong(what, "text", raw)
    return raw


def _name(raw: object, what: str) -> str:
    """Return a column's name in the form that tables are read in."""
    return unicodedata.normalize("NFC", _text(raw, what)).strip()


def _names(raw: object) -> list[str]:
    return [_text(name, "rule_sets") for name in _list(raw, "rule_sets")]


def _flag(raw: object, what: str) -> bool:
    if not isinstance(raw, bool):
        raise _wrong(what, "true or false", raw)
    return raw


def _scalar(raw: object, what: str) -> Scalar:
    if not isinstance(raw, (str, int, float)) or (isinstance(raw, float) and not isfinite(raw)):
        raise _wrong(what, "text, a number or true/false", raw)
    return raw


def _whole(raw: object, what: str) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise _wrong(what, "a whole number", raw)
    return raw


def _number(raw: object, what: str) -> float:
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not abs(raw) <= LARGEST:
        raise _wrong(what, "a finite number of at most ±1e15", raw)
    return float(raw)


def _pair(raw: object) -> tuple[float, float]:
    if not isinstance(raw, list) or len(raw) != 2:
        raise _wrong("range", "two numbers, [lowest, highest]", raw)
    return _number(raw[0], "range"), _number(raw[1], "range")
