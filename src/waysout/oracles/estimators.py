"""Adapters for functions and for whatever looks like a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from waysout.domain.schema import Schema, Value
from waysout.errors import OracleError
from waysout.oracles.adapter import Adapter
from waysout.oracles.inputs import (
    InputColumn,
    InputKind,
    InputLayout,
    Inputs,
    Place,
    match,
    never_seen,
    places,
    plain_layout,
    spelled_column,
    text_category_layout,
)
from waysout.oracles.seen import Splits, check_codes

# These decide at a threshold of their own, which "the likelier class wins" would overrule.
_OWN_THRESHOLD = ("FixedThresholdClassifier", "TunedThresholdClassifierCV")


def from_callable(function: Any, schema: Schema, inputs: Inputs) -> Adapter:
    """Adapt a function; it gets the raw DataFrame unless asked for otherwise.

    One number a row is the chance of approval. A bound method such as ``model.predict_proba``
    brings its owner's classes along.
    """
    kind: InputKind = "raw" if inputs == "auto" else inputs
    layout = plain_layout(kind, places(schema), named=kind != "codes")
    owner = getattr(function, "__self__", None)
    return Adapter(function, (layout,), gives="either", classes=_classes(owner))


def from_estimator(model: Any, schema: Schema, inputs: Inputs) -> Adapter:
    """Adapt an estimator or a pipeline by its fitted names, encoders and classes."""
    _refuse_own_threshold(model)
    names = _names(model, schema)
    count = getattr(model, "n_features_in_", None)
    spots = places(schema, names, count)
    named = names is not None or count is None
    evidence = _fitted_categories(model) if named and inputs == "auto" else {}
    layouts, refused = _candidates(spots, evidence, inputs, named=named)
    if inputs == "auto":
        layouts, refused = _without_refuted(model, layouts, refused)
    seen = (
        never_seen(s.feature, match(s.feature, evidence[s.name]))
        for s in spots
        if s.name in evidence and not s.feature.is_numeric
    )
    return Adapter(
        ask=_method(model),
        layouts=layouts,
        gives="scores" if hasattr(model, "predict_proba") else "labels",
        classes=_classes(model),
        refused=refused,
        notes=tuple(note for note in seen if note),
    )


def _names(model: Any, schema: Schema) -> list[str] | None:
    """Return the names of the columns the model wants, those it never looks at left out.

    A model is often fitted on a whole table, identifiers included, of which a leading
    ColumnTransformer picks its columns; it does not miss the others.
    """
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return None
    used = _columns_used(model)
    return [str(n) for n in names if used is None or str(n) in used or str(n) in schema]


def _columns_used(model: Any) -> set[str] | None:
    first = model.steps[0][1] if getattr(model, "steps", None) else model
    parts = getattr(first, "transformers_", None)
    if parts is None:
        return None
    used: set[str] = set()
    for _, step, columns in parts:
        if isinstance(step, str) and step == "drop":
            continue
        if isinstance(columns, (str, slice)) or not all(isinstance(c, str) for c in columns):
            return None
        used.update(columns)
    return used


def _refuse_own_threshold(model: Any) -> None:
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    if type(last).__name__ in _OWN_THRESHOLD:
        raise OracleError(
            f"a {type(last).__name__} decides at a threshold of its own: pass the model inside it "
            "(.estimator_) and set that threshold as the goal (at_least=…)"
        )


def _classes(model: Any) -> tuple[Any, ...] | None:
    classes = getattr(model, "classes_", None)
    return None if classes is None else tuple(np.asarray(classes).tolist())


def _method(model: Any) -> Any:
    for name in ("predict_proba", "predict"):
        if hasattr(model, name):
            return getattr(model, name)
    return lambda batch: _labels_of_scores(model, np.asarray(model.decision_function(batch)))


def _labels_of_scores(model: Any, scores: Any) -> Any:
    index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
    return np.asarray(model.classes_)[index]


def _candidates(
    spots: Sequence[Place], evidence: Mapping[str, Sequence[Any]], inputs: Inputs, *, named: bool
) -> tuple[tuple[InputLayout, ...], tuple[str, ...]]:
    """Return the layouts to try: one where the user or the encoders tell, else several."""
    if inputs == "category":
        plain = plain_layout(inputs, spots, named=named)
        return _distinct([plain, text_category_layout(spots)]), ()
    if inputs != "auto":
        return (plain_layout(inputs, spots, named=named),), ()
    if all(spot.feature.is_numeric or spot.name in evidence for spot in spots):
        return (_with_evidence(plain_layout("raw", spots, named=named), evidence),), ()
    layouts, refused = [], []
    kinds: tuple[InputKind, ...] = ("raw", "codes", "category") if named else ("raw", "codes")
    for kind in kinds:
        try:
            layouts.append(_with_evidence(plain_layout(kind, spots, named=named), evidence))
        except OracleError as error:
            refused.append(f"as {kind!r}: {error}")
    if named:
        layouts.append(_with_evidence(text_category_layout(spots), evidence))
    return _distinct(layouts), tuple(refused)


def _without_refuted(
    model: Any, layouts: Sequence[InputLayout], refused: Sequence[str]
) -> tuple[tuple[InputLayout, ...], tuple[str, ...]]:
    """Leave out layouts whose numbers the model's trees were not made for."""
    splits = _splits(model)
    kept, reasons = [], list(refused)
    for layout in layouts:
        try:
            for i, column in enumerate(layout.columns):
                if i in splits and (numbers := _numbers(column)):
                    check_codes(column.place.feature, numbers, splits[i])
            kept.append(layout)
        except OracleError as error:
            reasons.append(f"as {layout.kind!r}: {error}")
    if not kept and layouts:
        raise OracleError(reasons[-1])
    return tuple(kept), tuple(reasons)


def _numbers(column: InputColumn) -> dict[Value, float]:
    table = column.table or {}
    if any(isinstance(cell, str) for cell in table.values()):
        return {}
    return {value: float(cell) for value, cell in table.items()}  # type: ignore[arg-type]


def _splits(model: Any) -> dict[int, Splits]:
    """Return where the trees of a tree or a forest split, by the number of the column."""
    found: dict[int, set[float]] = {}
    for part in [model, *np.ravel(getattr(model, "estimators_", ()))]:
        tree = getattr(part, "tree_", None)
        if tree is None or getattr(part, "n_features_in_", 0) != model.n_features_in_:
            continue
        inner = (tree.children_left != -1) & np.isfinite(tree.threshold)
        for column, at in zip(tree.feature[inner], tree.threshold[inner], strict=True):
            found.setdefault(int(column), set()).add(float(at))
    return {column: Splits(frozenset(at)) for column, at in found.items()}


def _distinct(layouts: Sequence[InputLayout]) -> tuple[InputLayout, ...]:
    kept: list[InputLayout] = []
    for layout in layouts:
        if all(layout.columns != other.columns for other in kept):
            kept.append(layout)
    return tuple(kept)


def _with_evidence(layout: InputLayout, evidence: Mapping[str, Sequence[Any]]) -> InputLayout:
    def known(column: InputColumn) -> InputColumn:
        place = column.place
        if place.feature.is_numeric or place.name not in evidence:
            return column
        spelled = spelled_column(place, evidence[place.name])
        if column.holds != "categories":
            return spelled
        cells = [*(spelled.table or {}).values(), spelled.missing]
        kept = tuple(dict.fromkeys(c for c in cells if c is not None and c == c))
        return InputColumn(place, "categories", spelled.table, kept, spelled.missing)

    return InputLayout(layout.kind, tuple(map(known, layout.columns)), layout.container)


def _fitted_categories(model: Any) -> dict[str, Sequence[Any]]:
    """Return what the model's encoders were fitted on, by column; the first to see one counts."""
    found: dict[str, Sequence[Any]] = {}
    for encoder in _encoders(model, set()):
        categories = encoder.categories_
        names = getattr(encoder, "feature_names_in_", ())
        if len(categories) == len(names):
            for name, values in zip(names, categories, strict=True):
                found.setdefault(str(name), np.asarray(values).tolist())
    return found


def _encoders(part: Any, seen: set[int], depth: int = 0) -> Iterator[Any]:
    """Find the fitted encoders that get the table's own columns.

    What an encoder behind another step was fitted on says nothing about the table.
    """
    if depth > 12 or id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, (list, tuple, dict)):
        inside = list(part.values() if isinstance(part, dict) else part)
    elif not hasattr(part, "get_params") or isinstance(part, type):
        return
    elif hasattr(part, "categories_"):
        yield part
        return
    else:
        inside = _fed_the_table(part)
    for child in inside:
        yield from _encoders(child, seen, depth + 1)


def _fed_the_table(part: Any) -> list[Any]:
    """Return the parts of an estimator that get what it gets."""
    if hasattr(part, "steps"):
        # Samplers work while fitting only.
        steps = [step for _, step in part.steps if not hasattr(step, "fit_resample")]
        return [step for step in steps if step not in (None, "passthrough")][:1]
    if hasattr(part, "transformers_"):
        return [transformer for _, transformer, *_ in part.transformers_]
    if hasattr(part, "transformer_list"):
        return [transformer for _, transformer in part.transformer_list]
    # scikit-learn's own searches, votes and calibrations hand the table on; others may not.
    known = type(part).__module__.split(".")[0] in ("sklearn", "imblearn")
    return list(vars(part).values()) if known else []
