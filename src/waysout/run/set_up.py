"""From a model and a data frame to a problem: its columns, which label is a yes, what may change.

What cannot be known is an error that names both sides, before the model is asked anything; what was
inferred or assumed is said in the problem's notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from waysout.datasets.frames import Frame
from waysout.datasets.infer import infer
from waysout.datasets.load import Dataset
from waysout.datasets.table import Table
from waysout.domain.card import Card, label_text
from waysout.domain.known import Known
from waysout.domain.oracle import Goal
from waysout.domain.problem import Problem
from waysout.domain.rules import Direction, Immutable, OneHot, Rule, RuleSet
from waysout.domain.schema import Feature, Row, Scalar, Schema, text_of
from waysout.errors import InputError, RowError, shown, unknown
from waysout.oracles.adapt import as_oracle, model_columns
from waysout.oracles.adapter import classes_of
from waysout.oracles.answers import as_raised
from waysout.oracles.inputs import Inputs
from waysout.oracles.like import as_named
from waysout.oracles.watchdog import at_most, check_row_seconds, watched
from waysout.report.words import counted, listed

T = TypeVar("T")
Order = Sequence[str] | Mapping[str, Sequence[Scalar]]
"""Features by name, or by name with their levels from low to high."""

_ZERO_ONE = ({"0", "1"}, {"False", "True"})
_MOST_CARRIED = 50
_MOST_NAMED = 40
_EXAMPLES = 64


@dataclass(frozen=True)
class Given:
    """The arguments of an `Explainer`."""

    data: Any
    y: Any
    positive: Scalar | None
    positive_class: Scalar | None
    features: Sequence[str] | None
    card: Card | None
    fixed: Sequence[str]
    only_up: Order
    only_down: Order
    free: Sequence[str]
    rules: tuple[Rule, ...]
    inputs: Inputs
    goal: Goal | None
    row_seconds: float | None


@dataclass(frozen=True)
class SetUp:
    """What is made of them.

    ``like`` is an empty frame of the user's kind; ``columns`` is the order of rows without names.
    """

    card: Card
    problem: Problem
    known: Known | None
    columns: tuple[str, ...]
    like: Any = None


def set_up(model: Any, given: Given) -> SetUp:
    """Make the problem of a model and a frame (or a `Dataset`, or a card)."""
    if given.data is None or isinstance(given.data, Dataset):
        return _from_card(model, given)
    frame = Frame.of(given.data, given.features)
    if len(frame) < 2:
        raise InputError(
            f"data has {counted(len(frame), 'row')}: pass the rows the model was trained on, or "
            "rows like them"
        )
    y, positive = given.y, given.positive
    if positive is None and given.card is not None:
        positive = given.card.outcome.positive
    if isinstance(y, (str, int)):
        label = str(y)
        if label not in frame.columns:
            raise InputError(f"y: {unknown('column', label, frame.columns)}")
        y = frame.cells(label)
        frame = frame.only([name for name in frame.columns if name != label])
    elif y is not None:
        y = _labels(y, given.data, len(frame))
    positive = _positive(y, positive, model, given)
    used = _columns(model, frame, given)
    if y is not None:
        _refuse_leaks(frame, used, y)
    keep = frame.sample()
    table = frame.table(keep)
    labels = y if y is None or keep is None else [y[i] for i in keep]
    notes: list[str] = []
    if given.card is not None:
        card = given.card
    else:
        card = _inferred(table, used, frame, positive, given)
        notes.append(_told(card, given))
    rules = (*_asked_rules(given), *given.rules)
    rows, truth = _typed(card, table, labels, positive)
    like = frame.only([n for n in used if n in card.schema]).native
    problem = _problem(model, given, card, rules, rows, like)
    examples = tuple(rows[:: max(1, len(rows) // _EXAMPLES)][:_EXAMPLES])
    if keep is not None:
        notes.append(f"{len(rows):,} of {len(frame):,} rows were read: a sample")
    problem = replace(problem, notes=tuple(notes), examples=examples)
    known = None if truth is None else Dataset(card, tuple(rows), truth, "data")
    return SetUp(card, problem, known, tuple(frame.columns), _empty(frame))


def _empty(frame: Frame) -> Any:
    """Return the frame without rows, with a mark of the columns in which None is missing."""
    empty = frame.empty()
    if hasattr(empty, "attrs"):
        objects = [name for name, i in frame.columns.items() if empty.dtypes.iloc[i].kind == "O"]
        columns = {name: frame.native.iloc[:, frame.columns[name]] for name in objects}
        empty.attrs["none"] = [n for n, cells in columns.items() if any(c is None for c in cells)]
    return empty


def _from_card(model: Any, given: Given) -> SetUp:
    """Set up a model whose table has a card already: that of a `Dataset`, or one passed in."""
    data: Dataset | None = given.data
    card = given.card or (data.card if data is not None else None)
    if card is None:
        raise InputError("pass data=…, a frame of the rows the model was trained on, or a card=…")
    for name in ("y", "positive", "features", "free"):
        if getattr(given, name) not in (None, (), []):
            raise InputError(f"{name}=… is for a frame; a card says it already")
    rules = (*_asked_rules(given), *given.rules)
    rows = [] if data is None else data.rows
    problem = _problem(model, given, card, rules, rows, None)
    return SetUp(card, problem, data, card.schema.names)


def _problem(
    model: Any, given: Given, card: Card, rules: Sequence[Rule], rows: Sequence[Row], like: Any
) -> Problem:
    if _looked_at(lambda: callable(getattr(model, "ask", None)), given):
        oracle = model  # an oracle already
    else:
        oracle = as_oracle(
            model, card, positive_class=given.positive_class, inputs=given.inputs, like=like,
            row_seconds=given.row_seconds,
        )  # fmt: skip
    return Problem.from_card(card, oracle, training=rows, rules=rules, goal=given.goal)


def _looked_at(look: Callable[[], T], given: Given) -> T:
    """Return what a look at the model finds: its attributes may be code, and hang or exit."""

    def call() -> T:
        with as_raised("the model"):
            return look()

    return watched(call, 1, check_row_seconds(given.row_seconds))


def _labels(y: Any, data: Any, rows: int) -> list[Any]:
    """Return the labels as plain values, one for each row."""
    found = y.to_list() if hasattr(y, "to_list") else list(y)
    if len(found) != rows:
        raise InputError(f"data has {rows:,} rows, and y has {len(found):,} labels")
    indexes: list[Any] = [getattr(one, "index", None) for one in (data, y)]
    if all(hasattr(index, "equals") for index in indexes) and not indexes[0].equals(indexes[1]):
        raise InputError(
            "y and data have different indexes, so whose label is whose? Align them "
            "(y = y.loc[X.index]), or pass y.to_numpy() if they are in the same order"
        )
    return [cell.item() if hasattr(cell, "item") else cell for cell in found]


def _refuse_leaks(frame: Frame, used: Sequence[str], labels: Sequence[Any]) -> None:
    """Refuse a column that is the label itself: the only way would be to be approved."""
    texts = [label_text(label) for label in labels]
    for name in used:
        if len(texts) > 10 and list(map(label_text, frame.cells(name))) == texts:
            raise InputError(
                f"the column {name!r} of data is the same as y: leave it out of data and of the "
                f"model, or name it as the label (y={name!r})"
            )


def _positive(
    labels: Sequence[Any] | None,
    positive: Scalar | None,
    model: Any,
    given: Given,
) -> Scalar:
    """Return the label that means yes, or say that nobody can know it."""
    classes: Sequence[Any] | None
    if labels is None:
        positive = given.positive_class if positive is None else positive
        if positive is not None:
            return positive
        classes, where = _looked_at(lambda: classes_of(model), given), "the model's classes are"
        if classes is None:
            return 1
    else:
        missing = next((i for i, label in enumerate(labels) if label is None or label != label), -1)
        if missing >= 0:
            raise RowError("the label is missing; leave such rows out", column="y", row=missing)
        classes, where = [*Counter(map(text_of, labels))], "y holds"
        if len(classes) < 2:
            raise InputError(f"every label of y is {classes[0]!r}: both outcomes are needed")
        if positive is not None:
            if label_text(positive) not in map(label_text, classes):
                raise InputError(f"positive: {unknown('label', positive, sorted(classes))}")
            return positive
    for zero_one in _ZERO_ONE:
        if {label_text(c) for c in classes} == zero_one:
            return next(c for c in (1, True) if label_text(c) in zero_one)
    some = listed([repr(c) for c in classes[:6]])
    either = listed([f"positive={c!r}" for c in classes[:6]], "or")
    raise InputError(f"{where} {some}: say which of them means yes, {either}")


def _columns(model: Any, frame: Frame, given: Given) -> list[str]:
    """Return the columns that the model takes: those named, its own, or all."""
    names = features = given.features
    if features is None:
        with at_most(check_row_seconds(given.row_seconds)):
            own = model_columns(model)
        names = None if own is None else [as_named(name, frame.columns) for name in own]
    if names is None:
        return list(frame.columns)
    lacking = [name for name in names if name not in frame.columns]
    if lacking:
        who = "features names" if features is not None else "the model was trained on"
        raise InputError(
            f"{who} a column that data lacks: {unknown('column', lacking[0], frame.columns)}"
        )
    return list(names)


def _inferred(
    table: Table, used: Sequence[str], frame: Frame, positive: Scalar, given: Given
) -> Card:
    card = replace(infer(table, positive=positive, name="data", features=used), title="")
    orders = {**_orders(frame, used), **_given_orders(given)}
    carried = [name for name in frame.columns if name not in used][:_MOST_CARRIED]
    known = {f.name: _ordered(f, orders.pop(f.name)) if f.name in orders else f
             for f in card.schema}  # fmt: skip
    if orders:
        raise InputError(unknown("feature", next(iter(orders)), card.schema.names))
    for what in ("only_up", "only_down"):
        unordered = {n for n, f in known.items() if f.kind == "category" and not f.ordered}
        for name in unordered.intersection(getattr(given, what)):
            raise InputError(
                f"the levels of {name!r} have no order: give it, {what}={{{name!r}: [levels from "
                "low to high]}"
            )
    # What the model does not look at travels with the person, so that exports can be joined; all in
    # the order of the data, so that they look like it.
    known |= {name: Feature(name, "opaque", missing="keep") for name in carried}
    schema = Schema(tuple(known[name] for name in frame.columns if name in known))
    sets = {
        name: RuleSet(schema, tuple(_freed(rules.rules, given.free, schema)), rules.name)
        for name, rules in card.rule_sets.items()
    }
    return replace(card, schema=schema, rule_sets=sets)


def _orders(frame: Frame, used: Sequence[str]) -> dict[str, list[Any]]:
    """Return the order of ordered categories, as pandas and polars' Enum know it."""
    found: dict[str, list[Any]] = {}
    for name in used:
        if not hasattr(frame.native, "iloc"):
            continue
        dtype = frame.native.dtypes.iloc[frame.columns[name]]
        if getattr(dtype, "ordered", False):
            found[name] = dtype.categories.tolist()
    return found


def _given_orders(given: Given) -> dict[str, Sequence[Scalar]]:
    asked = (given.only_up, given.only_down)
    return {n: levels for one in asked if isinstance(one, Mapping) for n, levels in one.items()}


def _ordered(feature: Feature, levels: Sequence[Any]) -> Feature:
    """Return a category with its levels from low to high."""
    if feature.kind != "category":
        return feature
    texts = {text_of(level): level for level in levels}
    lacking = [text for text in feature.level_texts if text not in texts]
    if lacking:
        raise InputError(
            f"the order of {feature.name!r} lacks {shown(lacking[0])}, which is in the data"
        )
    by_text = dict(zip(feature.level_texts, feature.levels, strict=True))
    kept = tuple(by_text[text] for text in texts if text in by_text)
    return replace(feature, levels=kept, ordered=True)


def _freed(rules: Iterable[Rule], free: Sequence[str], schema: Schema) -> Iterator[Rule]:
    """Return the inferred rules without those about features that the user sets free."""
    for name in free:
        schema.index(name)  # an unknown one is an error
    for rule in rules:
        features = getattr(rule, "features", None)
        if features is None or isinstance(rule, OneHot):
            yield rule
        elif kept := [name for name in features if name not in free]:
            yield replace(rule, features=kept)  # type: ignore[call-arg]


def _asked_rules(given: Given) -> Iterator[Rule]:
    for what in ("fixed", "only_up", "only_down", "free"):
        if isinstance(getattr(given, what), str):
            raise InputError(f"{what} is a list of features: [{getattr(given, what)!r}]")
    if given.fixed:
        yield Immutable(features=list(given.fixed), why="you said that it cannot change")
    directions: tuple[tuple[Order, Literal["up", "down"]], ...] = (
        (given.only_up, "up"), (given.only_down, "down"),
    )  # fmt: skip
    for features, direction in directions:
        if features:
            yield Direction(features=list(features), direction=direction)


def _typed(
    card: Card, table: Table, labels: Sequence[Any] | None, positive: Scalar
) -> tuple[list[Row], tuple[bool, ...] | None]:
    rows = card.schema.parse_many(table.records)
    if labels is None:
        return rows, None
    return rows, tuple(label_text(label) == label_text(positive) for label in labels)


def _told(card: Card, given: Given) -> str:
    """Say what may change and how, as far as it was inferred."""
    inferred: dict[str, list[str]] = {}
    for rule in card.rules().rules:
        if isinstance(rule, Immutable):
            inferred.setdefault(f"fixed ({rule.why})", []).extend(rule.features)
        elif isinstance(rule, Direction):
            inferred.setdefault(f"only {rule.direction}", []).extend(rule.features)
    for way, names in (("up", given.only_up), ("down", given.only_down)):
        said = inferred.setdefault(f"only {way}", [])
        said += [name for name in names if name not in said]
    fixed = {n for said, names in inferred.items() if said.startswith("fixed") for n in names}
    may = [f for f in card.schema if f.name not in fixed | {*given.fixed} and not f.is_opaque]
    inferred["carried along"] = [f.name for f in card.schema if f.is_opaque]
    parts = [f"what may change was inferred from the data: {_some([f.name for f in may])}"]
    parts += [f"{said}: {_some(names)}" for said, names in inferred.items() if names]
    told = {name for way in ("up", "down") for name in inferred.get(f"only {way}", ())}
    either = any(f.is_numeric and f.name not in told for f in may)
    hint = ". Other numbers may go up or down unless only_up=… or only_down=… says otherwise"
    return "; ".join(parts) + (hint if either else "")


def _some(names: Sequence[str]) -> str:
    if not names:
        return "nothing"
    shown_names = [str(name) for name in names[:_MOST_NAMED]]
    more = len(names) - len(shown_names)
    return (
        f"{', '.join(shown_names)} and {counted(more, 'more', 'more')} (explainer.card has them)"
        if more
        else listed(shown_names)
    )
