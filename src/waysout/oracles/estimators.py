"""Adapters for functions and for whatever looks like a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from waysout.domain.schema import Schema
from waysout.errors import OracleError
from waysout.oracles.adapter import Adapter
from waysout.oracles.inputs import (
    Column,
    InputKind,
    Inputs,
    Layout,
    Place,
    match,
    never_seen,
    places,
    plain_layout,
    spelled_column,
)

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
    names = getattr(model, "feature_names_in_", None)
    count = getattr(model, "n_features_in_", None)
    spots = places(schema, None if names is None else [str(n) for n in names], count)
    named = names is not None or count is None
    evidence = _fitted_categories(model) if named and inputs == "auto" else {}
    layouts, refused = _candidates(spots, evidence, inputs, named=named)
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
) -> tuple[tuple[Layout, ...], tuple[str, ...]]:
    """Return the layouts to try: one where the user or the encoders tell, else up to three."""
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
    return tuple(layouts), tuple(refused)


def _with_evidence(layout: Layout, evidence: Mapping[str, Sequence[Any]]) -> Layout:
    def known(column: Column) -> Column:
        place = column.place
        if place.feature.is_numeric or place.name not in evidence:
            return column
        return spelled_column(place, evidence[place.name])

    return Layout(layout.kind, tuple(map(known, layout.columns)), layout.container)


def _fitted_categories(model: Any) -> dict[str, Sequence[Any]]:
    """Return what the model's encoders were fitted on, by column; the first to see one counts."""
    found: dict[str, Sequence[Any]] = {}
    for part in _parts(model, set()):
        categories = getattr(part, "categories_", None)
        names = getattr(part, "feature_names_in_", ())
        if categories is not None and len(categories) == len(names):
            for name, values in zip(names, categories, strict=True):
                found.setdefault(str(name), np.asarray(values).tolist())
    return found


def _parts(value: Any, seen: set[int], depth: int = 0) -> Iterator[Any]:
    """Walk the estimators inside an estimator, in the order in which they are applied."""
    if depth > 12 or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, (list, tuple)):
        inside: Any = value
    elif isinstance(value, dict):
        inside = value.values()
    elif hasattr(value, "get_params") and not isinstance(value, type):
        yield value
        inside = vars(value).values()
    else:
        return
    for child in inside:
        yield from _parts(child, seen, depth + 1)
