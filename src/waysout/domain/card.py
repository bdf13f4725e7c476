"""Cards: one TOML file that describes a table. `docs/cards.md` is the reference."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from waysout.domain.card_fields import (
    as_list,
    as_name,
    as_number,
    as_scalar,
    as_table,
    as_text,
    feature_of,
)
from waysout.domain.rules import (
    Custom,
    Direction,
    Immutable,
    OneHot,
    Rule,
    RuleSet,
    rule_from_table,
)
from waysout.domain.rules.base import SMALLEST
from waysout.domain.schema import (
    MISSING_TOKENS,
    Feature,
    Row,
    Scalar,
    Schema,
    text_of,
)
from waysout.domain.toml_lines import TomlPath, line_map
from waysout.errors import CardError, InputError, SchemaError, shown, unknown

VERSION = 1
_TOP = (
    "card", "name", "title", "rule_set", "rule_sets", "missing_values", "scales", "outcome",
    "features", "rules",
)  # fmt: skip
# Reading this much takes a quarter of a minute; the largest cards we know have a tenth of either.
_LARGEST_FILE = 16 * 2**20
_MOST_RULES = 100_000
_MOST_PROBLEMS = 100
# The standard parser's time grows with the square of a key's parts, and no key of a card has ten.
_MOST_PARTS = 100
_ENDLESS_KEY = re.compile(
    r"""(?<![\w.-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+)"""
    rf"{{{_MOST_PARTS}}}"
)
_OUTCOME = ("target", "positive", "yes", "no", "ignore")
_FEATURE = (
    "kind", "unit", "about", "range", "bins", "scale", "decimals", "levels", "ordered", "codes",
    "words", "synonyms", "missing", "unseen", "missing_code", "holds", "written", "label",
    "moves",
)  # fmt: skip


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
    """The description of a table: features, outcome, rule sets, bins for the key, scales.

    >>> import waysout
    >>> card = waysout.Card.parse('''
    ... card = 1
    ... name = "loans"
    ... outcome = { target = "decision", positive = "approved" }
    ... features.income = { kind = "integer", unit = "euros a year", range = [0, 200000] }
    ... ''')
    >>> card.schema.parse({"income": "48000", "decision": "refused"})
    (48000,)
    """

    name: str
    schema: Schema
    outcome: CardOutcome
    title: str = ""
    rule_sets: Mapping[str, RuleSet] = field(default_factory=dict)
    default_rules: str = ""
    bins: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    scales: Mapping[str, float] = field(default_factory=dict)
    source: str = "card"
    scales_from: Literal["card", "training"] = "card"
    """Whether the card's scales hold also beside training rows, or only where there are none."""

    @classmethod
    def load(cls, path: str | Path, *, trust_code: bool = False) -> Card:
        """Read a card from a file."""
        path = Path(path)
        try:
            with path.open("rb") as file:
                data = file.read(_LARGEST_FILE + 1)  # it may be a device that never ends
            if len(data) > _LARGEST_FILE:
                most = _LARGEST_FILE // 2**20
                reason = f"larger than {most} MiB, which no card is: is it the table?"
                raise CardError(reason, source=str(path))
            text = data.decode("utf-8-sig")
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

    @classmethod
    def infer(
        cls,
        frame: Any,
        *,
        target: str | None = None,
        positive: Scalar | None = None,
        features: Sequence[str] | None = None,
        name: str = "data",
    ) -> Card:
        """Describe a data frame: what each column is, and what may change, as far as it shows.

        ``target`` is the column of the labels, if the frame has it, and ``positive`` the label that
        means yes. ``features`` are the columns to describe, if not all. ``waysout card infer``
        writes the same as a file, with comments, to be read and corrected.

        >>> import pandas as pd
        >>> frame = pd.DataFrame({"sex": ["f", "m", "f"], "income": [1.5, 2.5, 3.5]})
        >>> [(feature.name, feature.kind) for feature in Card.infer(frame).schema]
        [('sex', 'category'), ('income', 'number')]
        """
        from waysout.datasets.frames import Frame
        from waysout.datasets.infer import infer

        wrapped = Frame.of(frame, features if not hasattr(frame, "columns") else None)
        table = wrapped.table(wrapped.sample())
        return infer(table, target=target, positive=positive, name=name, features=features)

    def rules(self, name: str | None = None) -> RuleSet:
        """Return a rule set by name, or the card's default one."""
        if name is None and not self.default_rules:
            return RuleSet(self.schema, name="none")
        wanted = self.default_rules if name is None else name
        if wanted not in self.rule_sets:
            raise InputError(f"{self.source}: {unknown('rule set', wanted, self.rule_sets)}")
        return self.rule_sets[wanted]

    def scales_beside(self, training: Sequence[Row]) -> Mapping[str, float]:
        """Return the scales that the card sets where there are these training rows."""
        return {} if len(training) and self.scales_from == "training" else self.scales

    def is_positive(self, raw: object) -> bool:
        """Whether a label of the table means yes."""
        return label_text(raw) == label_text(self.outcome.positive)

    def advice(self) -> list[str]:
        """Return warnings: what is valid but worth a second look."""
        found: dict[str, list[str]] = {}
        for f in self.schema:
            text = any(isinstance(level, str) for level in f.levels)
            alike = len({text.casefold() for text in f.level_texts}) < len(f.level_texts)
            no_codes = f.kind == "category" and text and not f.codes
            for applies, advice in (
                (no_codes, "no codes, so a model trained on label codes cannot be asked"),
                (alike, "levels that differ in letter case only are one to the key"),
                (f.is_numeric and f.range is None, "no range, so any number may be proposed"),
                (not f.about and not f.is_opaque, "no 'about', which people and LLMs read"),
            ):
                if applies:
                    found.setdefault(advice, []).append(f.name)
        told = [f"{_some(names)}: {advice}" for advice, names in found.items()]
        return [*told, *self._free()]

    def _free(self) -> list[str]:
        """Say what the rules leave open that somebody may have meant to close."""
        rules = [rule for rule_set in self.rule_sets.values() for rule in rule_set.rules]
        spans = {f.name: f.range or (0.0, 1.0) for f in self.schema if f.is_numeric}
        numbers = [name for name, (low, high) in spans.items() if low < high]
        if not rules:
            such_as = f", also {numbers[0]} up or down" if numbers else ""
            return [f"no rules: everything may change in any way{such_as}: write what may change"]
        if any(isinstance(rule, Direction) for rule in rules):
            return []  # whoever wrote it has thought of that
        closed = {
            self.schema[name].name
            for rule in rules
            if isinstance(rule, (Immutable, OneHot))
            for name in rule.features
        }
        free = [name for name in numbers if name not in closed]
        return [f"{_some(free)}: no rule says which way, so up or down"] if free else []


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return f"{', '.join(names[:6])}{more}"


def label_text(raw: object) -> str:
    """Write a label so that 1, 1.0, "1" and "1.0" are the same."""
    text = text_of(raw)
    try:
        return text_of(float(text))
    except ValueError:
        return text


class _Reader:
    """Reads one card, collecting every problem with its line before it gives up.

    People fix files, not lines; and TOML's standard parser forgets lines, so `line_map` finds them.
    """

    def __init__(self, text: str, source: str, trust_code: bool) -> None:
        self.source = source
        self.trust_code = trust_code
        self.problems: list[CardError] = []
        self._steps = 0  # rules and includes read so far to put the sets together
        if _ENDLESS_KEY.search(text):
            most = f"a key has more than {_MOST_PARTS} parts with dots between them"
            raise CardError(most, source=source)
        try:
            self.table: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"line (\d+)", str(error))
            reason = re.sub(r" \(at .*\)$", "", str(error))
            raise CardError(
                f"not valid TOML: {reason}", source=source, line=int(line[1]) if line else None
            ) from None
        except RecursionError:
            raise CardError(
                "not valid TOML: lists or tables nested too deeply", source=source
            ) from None
        except ValueError as error:  # thousands of digits
            raise CardError(f"not valid TOML: {error}", source=source) from None
        self.lines = line_map(text)

    def card(self) -> Card:
        self._known((), self.table, _TOP)
        version = self.table.get("card")
        if isinstance(version, bool) or version != VERSION:
            self._note(("card",), f"needs the line card = {VERSION}, the version of this format")
        with self._noting("outcome"):
            outcome = self._outcome()
        features = self._features()
        self._give_up()
        with self._noting("features"):
            schema = Schema(tuple(features))
        self._give_up()
        for field_name, names in (("target", (outcome.target,)), ("ignore", outcome.ignore)):
            for column in names:
                if column in schema:
                    reason = f"{column!r} is the target or ignored, so it cannot be a feature"
                    self._note(("outcome", field_name), reason)
        sets, known = self._rule_sets(schema), [*self._set_names]
        default = self.table.get("rule_set")
        with self._noting("rule_set"):
            if default is None and len(known) > 1:
                raise InputError("there are several rule sets: name the usual, rule_set = 'NAME'")
            if default is None:
                default = known[0] if known else ""
            elif not isinstance(default, str) or default not in known:
                raise InputError(unknown("rule set", default, known))
        bins, scales = self._key_and_scale(schema)
        name, title = self.table.get("name"), self.table.get("title", "")
        with self._noting("name"):
            if not isinstance(name, str) or not re.fullmatch(r"[\w-]{1,64}", name):
                raise InputError(f"name is 1 to 64 letters, digits, - or _; got {shown(name)}")
        with self._noting("title"):
            as_text(title, "title")
        scales_from = self.table.get("scales", "card")
        with self._noting("scales"):
            if scales_from not in ("card", "training"):
                raise InputError(unknown("source of scales", scales_from, ["card", "training"]))
        self._give_up()
        return Card(
            str(name), schema, outcome, str(title), sets, str(default), bins, scales, self.source,
            scales_from,
        )  # fmt: skip

    def _note(self, path: TomlPath, reason: str) -> None:
        # The line of the path, or of the closest thing around it that has one.
        around = (path[:end] for end in range(len(path), 0, -1))
        line = next((self.lines[part] for part in around if part in self.lines), None)
        self.problems.append(CardError(reason, source=self.source, line=line))
        if len(self.problems) >= _MOST_PROBLEMS:
            self._give_up()

    @contextmanager
    def _noting(self, *path: str | int) -> Iterator[None]:
        try:
            yield
        except CardError:
            raise  # the reader has given up
        except InputError as error:
            self._note(path, str(error))

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

    def _outcome(self) -> CardOutcome:
        table = as_table(self.table.get("outcome"), "[outcome], which says what a yes is,")
        self._known(("outcome",), table, _OUTCOME)
        for key in ("target", "positive"):
            if key not in table:
                raise InputError(f"[outcome] needs {key!r}")
        positive = as_scalar(table["positive"], "positive")
        return CardOutcome(
            target=as_name(table["target"], "target"),
            positive=positive,
            yes=as_text(table.get("yes", f"{table['target']} is {positive}"), "yes"),
            no=as_text(table.get("no", f"{table['target']} is not {positive}"), "no"),
            ignore=tuple(as_name(n, "ignore") for n in as_list(table.get("ignore", []), "ignore")),
        )

    def _features(self) -> list[Feature]:
        tables = self.table.get("features")
        if not isinstance(tables, dict) or not tables:
            self._note(("features",), "a card needs at least one [features.NAME]")
            return []
        tokens: tuple[str, ...] = MISSING_TOKENS
        with self._noting("missing_values"):
            given = as_list(self.table.get("missing_values", [*tokens]), "missing_values")
            tokens = tuple(as_text(t, "missing_values") for t in given) or MISSING_TOKENS
        made = []
        for name, table in tables.items():
            path = ("features", name)
            if not isinstance(table, dict):
                self._note(path, f"feature {name!r} is a table, not {shown(table)}")
                continue
            self._known(path, table, _FEATURE)
            try:
                made.append(feature_of(name, table, tokens))
            except SchemaError as error:
                self._note(path if error.field is None else (*path, error.field), str(error))
        return made

    def _rule_sets(self, schema: Schema) -> dict[str, RuleSet]:
        with self._noting("rule_sets"):
            for name in as_list(self.table.get("rule_sets", []), "rule_sets"):
                as_text(name, "rule_sets")
        tables = self.table.get("rules", {})
        if not isinstance(tables, dict):
            self._note(("rules",), "rules stand in a named set: [[rules.NAME]]")
            return {}
        # A text in the list of a set's rules is the name of another set to include there.
        rules: dict[str, list[Rule | str]] = {name: [] for name in self._set_names}
        for name, found in rules.items():
            of_set = tables.get(name, [])
            if not isinstance(of_set, list):
                self._note(("rules", name), f"rule set {name!r} is a list: [[rules.{name}]]")
                continue
            for i, table in enumerate(of_set):
                with self._noting("rules", name, i):
                    found.append(self._rule(schema, table))
        sets: dict[str, RuleSet] = {}
        for name in rules:
            whole = self._with_included(name, rules)
            if self._steps > _MOST_RULES:
                most = f"the sets up to {name!r} hold more than {_MOST_RULES:,} rules, counting"
                self._note(("rules", name), f"{most} what they include: include fewer sets")
                break
            with self._noting("rules", name):
                sets[name] = RuleSet(schema, tuple(whole), name)
        return sets

    def _rule(self, schema: Schema, table: object) -> Rule | str:
        if not isinstance(table, dict):
            raise InputError(f"a rule is a table, not {shown(table)}")
        if table.get("kind") == "include":
            included = table.get("set")
            if set(table) - {"kind", "set"} or not isinstance(included, str):
                raise InputError("an include has the name of a rule set, set = 'NAME', and no more")
            if included not in self._set_names:
                raise InputError(unknown("rule set", included, self._set_names))
            return included
        rule = rule_from_table(table)
        if self.trust_code and isinstance(rule, Custom):
            rule = rule.trusted()
        RuleSet(schema, (rule,))  # binding it alone finds what is wrong with it, at its own line
        return rule

    @cached_property
    def _set_names(self) -> dict[str, None]:
        """The names of the rule sets, in order."""
        # rule_sets may declare a set without rules, which [[rules.NAME]] cannot.
        declared = self.table.get("rule_sets", [])
        known = [n for n in declared if isinstance(n, str)] if isinstance(declared, list) else []
        return dict.fromkeys([*known, *self.table.get("rules", {})])

    def _with_included(self, name: str, rules: Mapping[str, list[Rule | str]]) -> list[Rule]:
        """Return the rules of a set and of those it includes, each set once.

        A rule says nothing more where it stands twice, and sets that include one another twice
        would double with each of them.
        """
        whole: list[Rule] = []
        around, seen = {name: iter(rules[name])}, {name}
        while around:
            inner = next(reversed(around))
            for rule in around[inner]:
                self._steps += 1
                if self._steps > _MOST_RULES:
                    return whole
                if not isinstance(rule, str):
                    whole.append(rule)
                elif rule in around:
                    reason = f"rule sets include each other in a circle: {rule!r}"
                    self._note(("rules", name), reason)
                elif rule not in seen:
                    seen.add(rule)
                    around[rule] = iter(rules[rule])
                    break
            else:
                del around[inner]
        return whole

    def _key_and_scale(
        self, schema: Schema
    ) -> tuple[dict[str, tuple[float, ...]], dict[str, float]]:
        bins: dict[str, tuple[float, ...]] = {}
        scales: dict[str, float] = {}
        for written, table in self.table["features"].items():
            f = schema[written]
            where = f"feature {f.name!r}"
            with self._noting("features", written, "bins"):
                if "bins" in table:
                    edges = tuple(
                        as_number(edge, "bins") for edge in as_list(table["bins"], "bins")
                    )
                    if not f.is_numeric:
                        raise InputError(f"{where} is a {f.kind}; bins need a number")
                    if not edges or any(a >= b for a, b in pairwise(edges)):
                        given = table["bins"]
                        raise InputError(f"{where}: bins are edges in rising order, not {given!r}")
                    bins[f.name] = edges
            with self._noting("features", written, "scale"):
                if "scale" in table:
                    scales[f.name] = as_number(table["scale"], "scale")
                    if not f.is_numeric or scales[f.name] < SMALLEST:
                        least = f"a number above 0 (of at least {SMALLEST:g})"
                        raise InputError(f"{where}: scale is {least} for a numeric one")
        return bins, scales
