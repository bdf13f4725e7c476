"""Plans as TOML: which methods, with which settings, on which data sets, for how many queries.

    title = "What is compared, in a line"
    datasets = ["loan", "adult"]
    queries = 30

    [[arms]]
    name = "compression"
    method = "comp-mcts"
    settings = { pruning = "gzip" }
    grid = { scope = ["path", "global"], threshold = [0.001, 0.01] }

An arm with a grid stands for an arm of each combination. What an arm does not say, the plan does.
A plan that is ``like`` another takes from it what it does not say, and may add ``[[more_arms]]``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any, get_args

from waysout.bench.arms import Arm, ExperimentPlan
from waysout.datasets import registry
from waysout.datasets.queries import queries as stored_queries
from waysout.domain.card import Card
from waysout.errors import InputError, shown, unknown
from waysout.methods import all_methods, make_method, method_class
from waysout.prompts.propose import Style
from waysout.prompts.render import Template
from waysout.run.plan import MOST_K, check_whole

__all__ = ["Arm", "ExperimentPlan", "load_plan", "plan_names", "plan_text"]

_SHARED = ("k", "calls", "rows", "seed", "rules", "queries")
_PLAN_KEYS = (
    "title", "datasets", "llms", "in_flight", "one_by_one", "style", "arms", "more_arms", "like",
    *_SHARED,
)  # fmt: skip
_ARM_KEYS = (
    "name", "method", "settings", "paper", "by_dataset", "grid", "datasets", "style", "repeat",
    *_SHARED,
)  # fmt: skip
_STYLE_KEYS = tuple(field.name for field in fields(Style))
_DEFAULTS = {"queries": 30, "k": 5, "calls": 30, "seed": 0, "rules": "paper"}
_WHOLE: Mapping[str, tuple[int, int | None]] = {
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


def plan_text(name_or_path: str) -> str:
    """Return a plan as it is written."""
    return _find(name_or_path).text


def load_plan(name_or_path: str) -> ExperimentPlan:
    """Read a plan: one of ours by its name, or a TOML file."""
    source = _find(name_or_path)
    return _Reader(source.label, _whole(source, ())).plan(source.name)


# Files -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    """A plan's text, what to call it in messages, and the folder that its ``like`` starts from."""

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
        raise InputError(f"{unknown('plan', name_or_path, plan_names())}; or give a .toml file")
    path = path if folder is None else folder / path
    try:
        return _Source(path.stem, str(path), path.read_text("utf-8"), path.parent)
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read the plan {path}: {reason}") from None


def _whole(source: _Source, inside: tuple[str, ...]) -> Table:
    """Return a plan's table, on top of the one that it is like."""
    try:
        table = tomllib.loads(source.text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{source.label} is not TOML: {error}") from None
    like = table.pop("like", None)
    _check_arms(source.label, table, like)
    if like is None:
        return table
    if not isinstance(like, str):
        raise InputError(f"{source.label}: like is the name of a plan, not {shown(like)}")
    if source.label in inside:
        raise InputError(f"{source.label} is like itself: {' → '.join((*inside, source.label))}")
    base = _whole(_find(like, source.folder), (*inside, source.label))
    more = _tables(source.label, table, "more_arms")
    return {**base, **table, "arms": [*_tables(like, base, "arms"), *more], "more_arms": []}


def _check_arms(where: str, table: Table, like: object) -> None:
    """Refuse arms that would take the place of all others unseen."""
    if like is None and "more_arms" in table:
        raise InputError(
            f"{where}: more_arms are added to those of the plan that it is like: say like, or "
            "write [[arms]]"
        )
    if like is not None and "arms" in table:
        raise InputError(
            f"{where}: a plan that is like another has its arms: write [[more_arms]] to add some, "
            "or leave out like"
        )


# Reading ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reader:
    """Makes a plan of a table; errors say where."""

    label: str
    table: Table

    def plan(self, name: str) -> ExperimentPlan:
        _check_keys(self.label, "key", self.table, _PLAN_KEYS)
        shared = {**_DEFAULTS, **_shared(self.label, self.table)}
        one_by_one = _flag(self.label, self.table, "one_by_one")
        datasets = _names(self.label, self.table, "datasets")
        _check_datasets(self.label, datasets)
        in_flight = self.table.get("in_flight")
        if in_flight is not None:
            _whole_number(self.label, "in_flight", in_flight, 1)
        arms = [
            arm
            for data in datasets
            for entry in self._entries(shared)
            for arm in entry.arms(data, one_by_one)
        ]
        self._check(arms)
        return ExperimentPlan(
            name=name,
            title=_text(self.label, self.table, "title"),
            llms=_names(self.label, self.table, "llms", ("simulated:1",)),
            arms=tuple(arms),
            datasets=datasets,
            queries=shared["queries"],
            in_flight=in_flight,
            one_by_one=one_by_one,
        )

    def _entries(self, shared: Table) -> Iterator[_Entry]:
        tables = _tables(self.label, self.table, "arms")
        style = _style(self.label, self.table.get("style", {}))
        for place, table in enumerate(tables, 1):
            where = f"{self.label}, arm {shown(table.get('name', place))}"
            _check_keys(where, "key", table, _ARM_KEYS)
            yield _Entry(where, table, shared, style)

    def _check(self, arms: Sequence[Arm]) -> None:
        if not arms:
            raise InputError(f"{self.label} has no arms: give it some, [[arms]]")
        seen: set[tuple[str, str]] = set()
        for arm in arms:
            if (arm.data, arm.name) in seen:
                raise InputError(f"{self.label}: two arms are named {shown(arm.name)}; rename one")
            seen.add((arm.data, arm.name))


@dataclass(frozen=True)
class _Entry:
    """One ``[[arms]]`` of a plan, which may stand for many arms."""

    where: str
    table: Table
    shared: Table
    style: Table

    def arms(self, data: str, alone: bool) -> Iterator[Arm]:
        table, where = self.table, self.where
        only = _names(where, table, "datasets", (data,))
        _check_datasets(where, only)
        name, method = _text(where, table, "name"), _text(where, table, "method")
        if method not in all_methods():
            raise InputError(f"{where}: {unknown('method', method, all_methods())}")
        if data not in only:
            return
        for point in self._points(method):
            added = "".join(f" {key}={_written(value)}" for key, value in point.items())
            yield self._arm(data, f"{name}{added}", method, point, alone)

    def _points(self, method: str) -> Iterator[dict[str, Any]]:
        """Yield the combinations of the grid."""
        grid = dict(_table(self.where, self.table, "grid"))
        for key, values in grid.items():
            if not isinstance(values, list) or not values:
                raise InputError(
                    f"{self.where}: grid: {key} is a list of values, not {shown(values)}"
                )
        known = (*_settings_of(method), *_SHARED, *_STYLE_KEYS)
        _check_keys(f"{self.where}: grid", "setting or key", grid, known)
        repeat = self.table.get("repeat", 1)
        _whole_number(self.where, "repeat", repeat, 1)
        if repeat > 1:
            if "seed" in grid:
                raise InputError(f"{self.where}: repeat counts seeds up: leave it or the grid's")
            first = self._said({})["seed"]
            grid["seed"] = list(range(first, first + repeat))
        size = 1
        for values in grid.values():
            size *= len(values)
        if size > _MOST_ARMS:
            raise InputError(f"{self.where}: the grid has {size:,} arms; {_MOST_ARMS:,} at most")
        for values in product(*grid.values()):
            yield dict(zip(grid, values, strict=True))

    def _said(self, point: Table) -> dict[str, Any]:
        """Return what is shared by plan, arm and grid, the last to speak first."""
        own = _shared(self.where, {**self.table, **point})
        said = {**self.shared, **own}
        if "rows" not in said:
            said["rows"] = said["k"] * max(self.shared["calls"], said["calls"])
        return said

    def _arm(self, data: str, name: str, method: str, point: Table, alone: bool) -> Arm:
        settings_of = _settings_of(method)
        by_dataset = _table(self.where, self.table, "by_dataset")
        _check_datasets(f"{self.where}: by_dataset", tuple(by_dataset))
        settings = {
            **_table(self.where, self.table, "settings"),
            **_table(f"{self.where}: by_dataset", by_dataset, data),
            **{key: value for key, value in point.items() if key in settings_of},
        }
        rest = {key: value for key, value in point.items() if key not in settings_of}
        said = self._said(rest)
        style = {**self.style, **_style(self.where, self.table.get("style", {}))}
        style |= _style(self.where, {k: v for k, v in rest.items() if k in _STYLE_KEYS})
        try:
            made = make_method(method, settings)
            _card(data).rules(said["rules"])
        except InputError as error:
            raise InputError(f"{self.where}, {data}: {error}") from None
        if said["rows"] < 1:
            raise InputError(f"{self.where}: without calls, say how many rows it may ask (rows)")
        stored = len(stored_queries(data))
        if said["queries"] > stored:
            raise InputError(
                f"{self.where}, {data}: {said['queries']} queries; {stored} are stored"
            )
        return Arm(
            name=name,
            data=data,
            method=method,
            settings=settings,
            k=said["k"],
            calls=said["calls"] if made.needs_llm else 0,
            rows=said["rows"],
            seed=said["seed"],
            rules=said["rules"],
            style=Style(**style),
            queries=said["queries"],
            paper=_text(self.where, self.table, "paper", ""),
            alone=alone,
        )


# Values ----------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def _card(data: str) -> Card:
    return registry.card(data)


def _settings_of(method: str) -> list[str]:
    return [field.name for field in fields(method_class(method))]


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_keys(where: str, what: str, table: Table, known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise InputError(f"{where}: {unknown(what, key, known)}")


def _shared(where: str, table: Table) -> dict[str, Any]:
    """Return what plans, arms and grids may all say, checked."""
    for key, (least, most) in _WHOLE.items():
        if key in table:
            _whole_number(where, key, table[key], least, most)
    if "rules" in table:
        _text(where, table, "rules")
    return {key: table[key] for key in _SHARED if key in table}


def _whole_number(where: str, key: str, value: object, least: int, most: int | None = None) -> None:
    try:
        check_whole(key, value, least, most)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _text(where: str, table: Table, key: str, default: str | None = None) -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or (not value and default is None):
        said = f"not {shown(value)}" if key in table else "and is missing"
        raise InputError(f"{where}: {key} is a text, {said}")
    return value


def _flag(where: str, table: Table, key: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise InputError(f"{where}: {key} is true or false, not {shown(value)}")
    return value


def _table(where: str, table: Table, key: str) -> Table:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise InputError(f"{where}: {key} is a table, not {shown(value)}")
    return value


def _tables(where: str, table: Table, key: str) -> list[Table]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InputError(f"{where}: {key} are tables: [[{key}]]")
    return value


def _names(
    where: str, table: Table, key: str, default: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    """Return a list of different texts."""
    value = table.get(key, default)
    whole = isinstance(value, (list, tuple)) and value and all(isinstance(v, str) for v in value)
    if not whole or not all(value) or len(set(value)) < len(value):
        said = f"not {shown(value)}" if key in table else "and is missing"
        raise InputError(f"{where}: {key} is a list of names, each once, {said}")
    return tuple(value)


def _check_datasets(where: str, names: Sequence[str]) -> None:
    for name in names:
        if name not in registry.DATASETS:
            raise InputError(f"{where}: {unknown('data set', name, registry.DATASETS)}")


def _style(where: str, table: object) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise InputError(f"{where}: style is a table, not {shown(table)}")
    _check_keys(f"{where}: style", "key", table, _STYLE_KEYS)
    if "template" in table and table["template"] not in get_args(Template):
        raise InputError(f"{where}: {unknown('template', table['template'], get_args(Template))}")
    for key in _STYLE_KEYS[1:]:
        _flag(where, table, key)
    return dict(table)
