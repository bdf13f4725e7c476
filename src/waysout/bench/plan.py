"""Plans as TOML: which methods, with which settings, on which data sets, for how many queries.

    title = "What is compared, in a line"
    datasets = ["loan", "adult"]
    queries = 30

    [[arms]]
    name = "compression"
    method = "comp-mcts"
    settings = { pruning = "gzip" }
    grid = { scope = ["path", "global"], threshold = [0.001, 0.01] }

An arm with a grid expands to one arm per combination. Arms inherit unset keys from the plan. A plan
with ``like`` inherits from the plan it names, and may add ``[[more_arms]]``. ``reading`` is for the
plans of the paper (`waysout.bench.readings`); ``NAME@first`` loads one under another reading.
``paper`` stands for several plans (`GROUPS`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib import resources
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, get_args

from waysout.bench.arms import FIND, Arm, ExperimentPlan, listed_queries
from waysout.bench.kinds import KINDS
from waysout.bench.readings import MARK, Reading, reading_of, split
from waysout.datasets import registry
from waysout.datasets.queries import QuerySet
from waysout.errors import InputError, shown, unknown
from waysout.methods import all_methods, make_method, method_class
from waysout.prompts.propose import Style
from waysout.prompts.render import Template
from waysout.run.plan import MOST_K, check_whole

__all__ = [
    "GROUPS", "Arm", "ExperimentPlan", "load_plan", "plan_names", "plan_text", "plans_meant",
]  # fmt: skip

GROUPS: Mapping[str, tuple[str, ...]] = {
    "paper": (
        "llm-budget", "reward-weights", "pruning-sweep", "pruning-heldout", "compressors", "cost",
    ),
}  # fmt: skip
"""Names for several plans. ``paper`` are those of the paper that ask an LLM."""

_SHARED = ("k", "calls", "rows", "seed", "rules", "queries", "polish")
_PLAN_KEYS = (
    "title", "datasets", "llms", "in_flight", "one_by_one", "style", "arms", "more_arms", "like",
    "kind", "kind_settings", "rows_of", "query_sets", "reading", *_SHARED,
)  # fmt: skip
_ARM_KEYS = (
    "name", "method", "settings", "paper", "by_dataset", "grid", "datasets", "style", "repeat",
    "kind_settings", *_SHARED,
)  # fmt: skip
_STYLE_KEYS = tuple(field.name for field in fields(Style))
_DEFAULTS = {"queries": 30, "k": 5, "calls": 30, "seed": 0, "rules": "paper", "polish": 0.0}
_INTEGER_BOUNDS: Mapping[str, tuple[int, int | None]] = {
    "k": (1, MOST_K), "calls": (0, None), "rows": (1, None), "seed": (0, 2**31 - 1),
    "queries": (1, None),
}  # fmt: skip
_MOST_ARMS = 10_000

Table = Mapping[str, Any]


def plan_names() -> list[str]:
    """Return the names of the plans that come with Waysout."""
    folder = resources.files("waysout.bench") / "plans"
    if not folder.is_dir():
        return []
    return sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name[-5:] == ".toml")


def plans_meant(name: str) -> tuple[str, ...]:
    """Return the names of the plans that a name stands for.

    >>> plans_meant("yields"), plans_meant("paper@first")[:2]
    (('yields',), ('llm-budget@first', 'reward-weights@first'))
    """
    group, reading = split(name)
    if group not in GROUPS:
        return (name,)
    return tuple(f"{plan}{MARK}{reading}" if reading else plan for plan in GROUPS[group])


def plan_text(name_or_path: str) -> str:
    """Return the TOML text of a plan, with the reading that its name asks for."""
    place, reading = split(name_or_path)
    text = _find(place).text
    return (
        re.sub(r'^reading = ".*"$', f'reading = "{reading}"', text, flags=re.M) if reading else text
    )


def load_plan(name_or_path: str) -> ExperimentPlan:
    """Load a built-in plan by name, or a plan from a TOML file; ``@`` and a reading may follow."""
    place, reading = split(name_or_path)
    source = _find(place)
    table = _merged(source, ())
    if reading and "reading" not in table:
        raise InputError(f"{source.label} is no plan of the paper: it has no readings")
    return _plan(source.name, source.label, {**table, "reading": reading} if reading else table)


# Files -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    """A plan's text, its name in messages, and the folder that its ``like`` is relative to."""

    name: str
    label: str
    text: str
    folder: Path | None = None


def _find(name_or_path: str, folder: Path | None = None) -> _Source:
    if name_or_path in plan_names():
        place = resources.files("waysout.bench") / "plans" / f"{name_or_path}.toml"
        return _Source(name_or_path, f"plan {name_or_path}", place.read_text("utf-8"))
    path = Path(name_or_path).expanduser()
    if path.suffix != ".toml":
        known = [*plan_names(), *GROUPS]
        raise InputError(f"{unknown('plan', name_or_path, known)}; or pass a .toml file")
    path = path if folder is None else folder / path
    try:
        return _Source(path.stem, str(path), path.read_text("utf-8"), path.parent)
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read the plan {path}: {reason}") from None


def _merged(source: _Source, parents: tuple[str, ...]) -> Table:
    """Return a plan's table, merged with the one named by its ``like``."""
    try:
        table = tomllib.loads(source.text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{source.label} is not TOML: {error}") from None
    like = table.pop("like", None)
    if like is None:
        if "more_arms" in table:
            raise InputError(
                f"{source.label}: more_arms extends the plan named by `like`; set `like`, or use "
                "[[arms]]"
            )
        return table
    if "arms" in table:  # they would silently replace all arms of the other plan
        raise InputError(
            f"{source.label}: a plan with `like` inherits its arms; use [[more_arms]] to add to "
            "them, or remove `like`"
        )
    if not isinstance(like, str):
        raise InputError(f"{source.label}: like must be the name of a plan, not {shown(like)}")
    if source.label in parents:
        cycle = " → ".join((*parents, source.label))
        raise InputError(f"{source.label}: `like` forms a cycle: {cycle}")
    base = _merged(_find(like, source.folder), (*parents, source.label))
    more = _tables(source.label, table, "more_arms")
    return {**base, **table, "arms": [*_tables(like, base, "arms"), *more], "more_arms": []}


# Reading ---------------------------------------------------------------------------------------


def _plan(name: str, label: str, table: Table) -> ExperimentPlan:
    """Build a plan from its table; errors begin with the label."""
    _check_keys(label, "key", table, _PLAN_KEYS)
    shared = {**_DEFAULTS, **_shared(label, table)}
    datasets = _names(label, table, "datasets")
    _check_datasets(label, datasets)
    in_flight = table.get("in_flight")
    if in_flight is not None:
        _whole_number(label, "in_flight", in_flight, 1)
    entries = []
    for place, arm in enumerate(_tables(label, table, "arms"), 1):
        where = f"{label}, arm {shown(arm.get('name', place))}"
        _check_keys(where, "key", arm, _ARM_KEYS)
        entries.append(_Entry(where, arm, shared, label, table))
    arms = tuple(arm for data in datasets for entry in entries for arm in entry.arms(data))
    if not arms:
        raise InputError(f"{label} has no arms; add an [[arms]] table")
    seen: set[tuple[str, str]] = set()
    for one in arms:
        if (one.data, one.name) in seen:
            raise InputError(f"{label}: two arms are named {shown(one.name)}; rename one")
        seen.add((one.data, one.name))
    return ExperimentPlan(
        name=name,
        title=_text(label, table, "title"),
        llms=_names(label, table, "llms", ("simulated:1",)),
        arms=arms,
        datasets=datasets,
        queries=shared["queries"],
        in_flight=in_flight,
        one_by_one=_flag(label, table, "one_by_one"),
        reading=_text(label, table, "reading", ""),
    )


@dataclass(frozen=True)
class _Entry:
    """One ``[[arms]]`` table of a plan, which may expand to many arms."""

    where: str
    table: Table
    shared: Table
    label: str
    plan: Table

    def arms(self, data: str) -> Iterator[Arm]:
        table, where = self.table, self.where
        only = _names(where, table, "datasets", (data,))
        _check_datasets(where, only)
        name, method = _text(where, table, "name"), _text(where, table, "method")
        if method not in all_methods():
            raise InputError(f"{where}: {unknown('method', method, all_methods())}")
        if data not in only:
            return
        settings = [field.name for field in fields(method_class(method))]
        for point in self._points(settings):
            if self._lacks_rules(data, point):
                continue
            texts = ((k, str(v).lower() if isinstance(v, bool) else v) for k, v in point.items())
            added = "".join(f" {key}={text}" for key, text in texts)
            yield self._arm(data, f"{name}{added}", method, settings, point)

    def _lacks_rules(self, data: str, point: Table) -> bool:
        """Whether a grid has rules that this data set has not, though another of the plan has."""
        rules = point.get("rules")
        others = _names(self.label, self.plan, "datasets")
        return rules not in (None, *_card(data).rule_sets) and any(
            rules in _card(other).rule_sets for other in others
        )

    def _points(self, settings: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the combinations of the grid."""
        grid = dict(_table(self.where, self.table, "grid"))
        for key, values in grid.items():
            if not isinstance(values, list) or not values:
                raise InputError(
                    f"{self.where}: grid: {key} must be a list of values, not {shown(values)}"
                )
        known = (*settings, *_SHARED, *_STYLE_KEYS)
        _check_keys(f"{self.where}: grid", "setting or key", grid, known)
        repeat = self.table.get("repeat", 1)
        _whole_number(self.where, "repeat", repeat, 1)
        if repeat > 1:
            if "seed" in grid:
                raise InputError(
                    f"{self.where}: repeat already varies the seed; remove either `repeat` or "
                    "`seed` from the grid"
                )
            first = self._limits({})["seed"]
            grid["seed"] = list(range(first, first + repeat))
        size = prod(len(values) for values in grid.values())
        if size > _MOST_ARMS:
            raise InputError(f"{self.where}: the grid has {size:,} arms, more than {_MOST_ARMS:,}")
        for values in product(*grid.values()):
            yield dict(zip(grid, values, strict=True))

    def _limits(self, point: Table) -> dict[str, Any]:
        """Return the shared keys; the grid overrides the arm, and the arm overrides the plan."""
        limits = {**self.shared, **_shared(self.where, {**self.table, **point})}
        if "rows" not in limits:
            limits["rows"] = limits["k"] * max(self.shared["calls"], limits["calls"])
        return limits

    def _arm(
        self, data: str, name: str, method: str, settings_of: Sequence[str], point: Table
    ) -> Arm:
        by_dataset = _table(self.where, self.table, "by_dataset")
        _check_datasets(f"{self.where}: by_dataset", tuple(by_dataset))
        reading = self._reading()
        settings = {
            **reading.settings(method),
            **_table(self.where, self.table, "settings"),
            **_table(f"{self.where}: by_dataset", by_dataset, data),
            **{key: value for key, value in point.items() if key in settings_of},
        }
        rest = {key: value for key, value in point.items() if key not in settings_of}
        limits = self._limits(rest)
        style = {
            **reading.style(method),
            **_style(self.label, self.plan.get("style", {})),
            **_style(self.where, self.table.get("style", {})),
            **_style(self.where, {k: v for k, v in rest.items() if k in _STYLE_KEYS}),
        }
        try:
            made = make_method(method, settings)
            _card(data).rules(limits["rules"])
        except InputError as error:
            raise InputError(f"{self.where}, {data}: {error}") from None
        if limits["rows"] < 1:
            raise InputError(f"{self.where}: with calls = 0, `rows` must be set")
        listed, sets = self._listed(data), self._query_sets()
        known = len(listed or listed_queries(data, sets))
        if limits["queries"] > known:
            raise InputError(
                f"{self.where}, {data}: {limits['queries']} queries requested, but only {known} "
                "stored"
            )
        kind, kind_settings = self._kind()
        return Arm(
            name=name,
            data=data,
            method=method,
            settings=settings,
            k=limits["k"],
            calls=limits["calls"] if made.needs_llm else 0,
            rows=limits["rows"],
            seed=limits["seed"],
            rules=limits["rules"],
            style=Style(**style),
            queries=limits["queries"],
            paper=_text(self.where, self.table, "paper", ""),
            alone=_flag(self.label, self.plan, "one_by_one"),
            kind=kind,
            kind_settings=kind_settings,
            rows_of=listed,
            query_sets=sets,
            polish=round(limits["polish"] * limits["rows"]),
            binning=reading.binning.get(data, "fixed"),
        )

    def _reading(self) -> Reading:
        try:
            return reading_of(_text(self.label, self.plan, "reading", ""))
        except InputError as error:
            raise InputError(f"{self.label}: {error}") from None

    def _query_sets(self) -> tuple[QuerySet, ...]:
        """Return the lists of queries that the plan names, the stored one if it names none."""
        names = _names(self.label, self.plan, "query_sets", ("stored",))
        known = {which: which for which in get_args(QuerySet)}
        for name in names:
            if name not in known:
                raise InputError(f"{self.label}: {unknown('query set', name, known)}")
        return tuple(known[name] for name in names)

    def _listed(self, data: str) -> tuple[int, ...]:
        """Return the row numbers that the plan lists for a data set, if any."""
        rows = _table(self.label, self.plan, "rows_of").get(data, [])
        if not isinstance(rows, list) or len(set(map(repr, rows))) < len(rows):
            raise InputError(
                f"{self.label}: rows_of: {data} must be a list of distinct row numbers"
            )
        for row in rows:
            _whole_number(f"{self.label}: rows_of", data, row, 0)
        return tuple(rows)

    def _kind(self) -> tuple[str, dict[str, float]]:
        kind = _text(self.label, self.plan, "kind", FIND)
        if kind not in KINDS:
            raise InputError(f"{self.label}: {unknown('kind', kind, KINDS)}")
        found = dict(KINDS[kind].settings)
        for where, table in ((self.label, self.plan), (self.where, self.table)):
            own = _table(where, table, "kind_settings")
            _check_keys(f"{where}: kind_settings", "setting", own, tuple(found))
            for key, value in own.items():
                if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                    raise InputError(
                        f"{where}: {key} must be a number of at least 0, not {shown(value)}"
                    )
            found |= own
        return kind, found


# Values ----------------------------------------------------------------------------------------

_card = lru_cache(maxsize=16)(registry.card)


def _check_keys(where: str, what: str, table: Table, known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise InputError(f"{where}: {unknown(what, key, known)}")


def _shared(where: str, table: Table) -> dict[str, Any]:
    """Return the keys that plans, arms and grids may all have, checked."""
    for key, (least, most) in _INTEGER_BOUNDS.items():
        if key in table:
            _whole_number(where, key, table[key], least, most)
    if "rules" in table:
        _text(where, table, "rules")
    share = table.get("polish", 0.0)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
        raise InputError(
            f"{where}: polish is the share of the rows that is set aside for finishing, from 0 to "
            f"below 1, not {shown(share)}"
        )
    return {key: table[key] for key in _SHARED if key in table}


def _whole_number(where: str, key: str, value: object, least: int, most: int | None = None) -> None:
    try:
        check_whole(key, value, least, most)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _text(where: str, table: Table, key: str, default: str | None = None) -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or (not value and default is None):
        if key not in table:
            raise InputError(f"{where}: `{key}` is required (a string)")
        raise InputError(f"{where}: {key} must be a string, not {shown(value)}")
    return value


def _flag(where: str, table: Table, key: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise InputError(f"{where}: {key} must be true or false, not {shown(value)}")
    return value


def _table(where: str, table: Table, key: str) -> Table:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise InputError(f"{where}: {key} must be a table, not {shown(value)}")
    return value


def _tables(where: str, table: Table, key: str) -> list[Table]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InputError(f"{where}: {key} must be an array of tables ([[{key}]])")
    return value


def _names(
    where: str, table: Table, key: str, default: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    """Return a list of distinct strings."""
    value = table.get(key, default)
    valid = isinstance(value, (list, tuple)) and value and all(isinstance(v, str) for v in value)
    if not valid or not all(value) or len(set(value)) < len(value):
        if key not in table:
            raise InputError(f"{where}: `{key}` is required (a list of names)")
        raise InputError(f"{where}: {key} must be a list of distinct names, not {shown(value)}")
    return tuple(value)


def _check_datasets(where: str, names: Sequence[str]) -> None:
    for name in names:
        if name not in registry.DATASETS:
            raise InputError(f"{where}: {unknown('data set', name, registry.DATASETS)}")


def _style(where: str, table: object) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise InputError(f"{where}: style must be a table, not {shown(table)}")
    _check_keys(f"{where}: style", "key", table, _STYLE_KEYS)
    if "template" in table and table["template"] not in get_args(Template):
        raise InputError(f"{where}: {unknown('template', table['template'], get_args(Template))}")
    for key in _STYLE_KEYS[1:]:
        _flag(where, table, key)
    return dict(table)
