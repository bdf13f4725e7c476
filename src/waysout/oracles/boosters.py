"""Adapters for LightGBM, XGBoost and CatBoost: the models that record what they were trained on.

LightGBM and XGBoost turn a pandas category into its position among the categories they recorded.
We hand them the positions: the same numbers, without a frame in between.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import compress, islice, pairwise
from typing import Any

import numpy as np

from waysout.domain.schema import Feature, Schema
from waysout.errors import OracleError
from waysout.oracles.adapter import Adapter, Gives
from waysout.oracles.inputs import (
    Column,
    Inputs,
    Layout,
    Place,
    code_column,
    codes_of,
    index_column,
    match,
    never_seen,
    places,
    plain_layout,
    raw_column,
)

_LIGHTGBM_OBJECTIVES = ("binary", "multiclass", "multiclassova", "cross_entropy")


def from_lightgbm(model: Any, schema: Schema, inputs: Inputs) -> Adapter:
    """Adapt a Booster or an LGBMClassifier."""
    booster = model.booster_ if hasattr(type(model), "booster_") else model
    about = booster.dump_model(num_iteration=1)
    # With a custom objective there is no such entry.
    objective = str(about.get("objective", "custom")).split(" ")[0]
    if objective not in _LIGHTGBM_OBJECTIVES:
        raise _no_classes("LightGBM", objective)
    spots = places(schema, booster.feature_name())
    infos = [about["feature_infos"].get(name, {}) for name in booster.feature_name()]
    marked = [i for i, info in enumerate(infos) if info.get("values")]
    recorded = _lightgbm_categories(spots, booster.pandas_categorical or [], marked)
    layout, notes = _recorded_layout(spots, recorded, inputs)
    width = booster.num_model_per_iteration()
    return Adapter(
        ask=booster.predict,
        layouts=(layout,),
        classes=_classes(model) or tuple(range(max(2, width))),
        sums_to_one=objective != "multiclassova",
        notes=notes,
    )


def _lightgbm_categories(
    spots: Sequence[Place], lists: Sequence[Sequence[Any]], marked: list[int]
) -> list[Sequence[Any] | None]:
    """Tell which columns were pandas categories: LightGBM keeps their values, not their names.

    ``marked`` are the columns it split as categories; ordered and constant ones are not among them.
    """
    textual = [i for i, spot in enumerate(spots) if not spot.feature.is_numeric]
    possible = {*marked, *textual}
    fits = [
        [i in possible and _may_hold(spot.feature, values) for i, spot in enumerate(spots)]
        for values in lists
    ]
    for columns in (marked, textual):
        if len(columns) == len(lists) and all(map(list.__getitem__, fits, columns)):
            chosen = columns
            break
    else:
        chosen = _only_way(fits)
    if len(chosen) != len(lists):
        raise OracleError(
            f"cannot tell which columns the model's {len(lists)} lists of categories belong "
            f"to ({', '.join(repr(list(v)[:3]) for v in lists[:5])}): describe those columns "
            "as categories with these levels in the card, or wrap the model in a function"
        )
    recorded: list[Sequence[Any] | None] = [None] * len(spots)
    for i, values in zip(chosen, lists, strict=True):
        recorded[i] = values
    return recorded


def _may_hold(feature: Feature, categories: Sequence[Any]) -> bool:
    try:
        return bool(match(feature, categories))
    except OracleError:
        return False


def _only_way(fits: Sequence[Sequence[bool]]) -> list[int]:
    """Return the only way to lay the lists out in the columns' order, or nothing.

    If the leftmost way is also the rightmost, there is no other.
    """
    left = _leftmost(fits)
    mirrored = _leftmost([fit[::-1] for fit in fits[::-1]])
    right = [len(fit) - 1 - i for fit, i in zip(fits, mirrored[::-1], strict=False)]
    return left if left == right else []


def _leftmost(fits: Sequence[Sequence[bool]]) -> list[int]:
    chosen: list[int] = []
    for fit in fits:
        start = chosen[-1] + 1 if chosen else 0
        chosen.extend(islice(compress(range(start, len(fit)), fit[start:]), 1))
    return chosen if len(chosen) == len(fits) else []


def from_xgboost(model: Any, schema: Schema, inputs: Inputs) -> Adapter:
    """Adapt a Booster or an XGBClassifier."""
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    learner = json.loads(booster.save_config())["learner"]
    objective = str(learner["objective"]["name"])
    spots = places(schema, booster.feature_names, booster.num_features())
    types = booster.feature_types or []
    recorded = _xgboost_categories(booster, spots) if "c" in types else [None] * len(spots)
    layout, notes = _recorded_layout(spots, recorded, inputs)
    return Adapter(
        ask=_xgboost_ask(model, booster, linear=learner["gradient_booster"]["name"] == "gblinear"),
        layouts=(layout,),
        gives=_xgboost_gives(objective),
        classes=_classes(model) or tuple(range(max(2, _xgboost_width(learner)))),
        notes=notes,
    )


def _xgboost_gives(objective: str) -> Gives:
    if objective in ("binary:logistic", "reg:logistic", "multi:softprob"):
        return "scores"
    if objective in ("binary:hinge", "multi:softmax"):
        return "labels"
    raise _no_classes("XGBoost", objective)


def _xgboost_width(learner: dict[str, Any]) -> int:
    return int(learner["learner_model_param"]["num_class"])


def _xgboost_ask(model: Any, booster: Any, *, linear: bool) -> Any:
    from xgboost import DMatrix

    attributes = booster.attributes()
    # The scikit-learn wrapper predicts with the best iteration, a bare Booster with all of them.
    wrapped = model is not booster or "scikit_learn" in attributes
    best = int(attributes["best_iteration"]) + 1 if "best_iteration" in attributes else 0
    rounds = (0, best if wrapped and not linear else 0)
    missing = getattr(model, "missing", math.nan)

    def ask(batch: Any) -> Any:
        options: dict[str, Any] = {"missing": missing, "enable_categorical": True}
        if isinstance(batch, np.ndarray):
            options["feature_names"] = booster.feature_names
            options["feature_types"] = booster.feature_types
        return booster.predict(DMatrix(batch, **options), iteration_range=rounds)

    return ask


def _xgboost_categories(booster: Any, spots: Sequence[Place]) -> list[Sequence[Any] | None]:
    """Read the categories from the model's JSON; models before 3.1 have none and need codes."""
    document = json.loads(bytes(booster.save_raw(raw_format="json")))
    model = document["learner"]["gradient_booster"].get("model", {})
    encoded = model.get("cats", {}).get("enc", [])
    if not encoded:
        return [None] * len(spots)
    return [
        (_xgboost_text(column, spot.feature) if "offsets" in column else column["values"]) or None
        for column, spot in zip(encoded, spots, strict=True)
    ]


def _xgboost_text(column: dict[str, Any], feature: Feature) -> list[str]:
    """Cut the run of bytes that holds a column's categories.

    XGBoost up to 3.2 at least takes the characters of a text for its bytes, so that the offsets
    count characters and the run lacks its end wherever a category is not plain ASCII. What is cut
    off is found again by its length and its beginning among the card's levels.
    """
    run = bytes(byte % 256 for byte in column["values"])
    spans = list(pairwise(column["offsets"]))
    by_bytes = [run[a:b].decode("utf-8", "replace") for a, b in spans]
    if run.isascii():
        return by_bytes
    text = run.decode("utf-8", "ignore")
    pieces = [text[a:b] for a, b in spans]
    levels = [
        [t for t in feature.level_texts if len(t) == b - a and t.startswith(piece)]
        for piece, (a, b) in zip(pieces, spans, strict=True)
    ]
    if sum(t in feature.level_texts for t in by_bytes) >= sum(map(bool, levels)):
        return by_bytes
    unclear = next((found for found in levels if len(found) > 1), None)
    if unclear:
        raise OracleError(
            f"column {feature.name!r}: XGBoost stored a category incompletely, and it could be "
            f"{' or '.join(map(repr, unclear))}: train it on categories in plain ASCII"
        )
    return [found[0] if found else piece for found, piece in zip(levels, pieces, strict=True)]


def from_catboost(model: Any, schema: Schema, inputs: Inputs) -> Adapter:
    """Adapt a CatBoostClassifier or a CatBoost that was trained to classify."""
    loss = str(model.get_all_params().get("loss_function", "custom"))
    classes = _classes(model) or ((0, 1) if loss == "CrossEntropy" else None)
    if classes is None:
        raise _no_classes("CatBoost", loss)
    spots = places(schema, model.feature_names_)
    categorical = set(model.get_cat_feature_indices())
    layouts, refused = _catboost_layouts(spots, categorical, inputs)
    return Adapter(
        ask=lambda batch: model.predict(batch, prediction_type="Probability"),
        layouts=layouts,
        classes=classes,
        sums_to_one=loss != "MultiClassOneVsAll",
        refused=refused,
    )


def _catboost_layouts(
    spots: Sequence[Place], categorical: set[int], inputs: Inputs
) -> tuple[tuple[Layout, ...], tuple[str, ...]]:
    """CatBoost keeps only hashes of its categories: where the card has codes, a trial decides."""
    if inputs in ("category", "dicts"):
        return (plain_layout(inputs, spots),), ()
    makers = {"raw": raw_column, "codes": _whole_code_column}
    layouts, refused = [], []
    for kind in ("raw", "codes") if inputs == "auto" else (inputs,):
        try:
            columns = tuple(
                makers[kind](spot) if i in categorical else code_column(spot)
                for i, spot in enumerate(spots)
            )
            layouts.append(Layout("raw" if kind == "raw" else "codes", columns, "frame"))
        except OracleError as error:
            refused.append(f"as {kind!r}: {error}")
    if not layouts:
        raise OracleError(refused[0])
    return tuple(layouts), tuple(refused)


def _whole_code_column(place: Place) -> Column:
    # CatBoost takes text and integers for categories, and no floats.
    if place.feature.is_numeric:
        return raw_column(place)
    codes = codes_of(place.feature)
    return Column(place, "values", {value: int(code) for value, code in codes.items()})


def _recorded_layout(
    spots: Sequence[Place], recorded: Sequence[Sequence[Any] | None], inputs: Inputs
) -> tuple[Layout, tuple[str, ...]]:
    """Lay out numbers only: positions where the model recorded categories, else codes."""
    known = any(values is not None for values in recorded)
    if inputs == "category" and not known:
        raise OracleError(
            "the model recorded no categories, so their order is not known: write the numbers it "
            "was trained on as codes into the card and pass inputs='codes'"
        )
    if inputs != "auto" and inputs != "category":
        return plain_layout(inputs, spots, named=inputs != "codes"), ()
    pairs = list(zip(spots, recorded, strict=True))
    columns = tuple(
        code_column(spot) if values is None else index_column(spot, values)
        for spot, values in pairs
    )
    notes = (never_seen(s.feature, match(s.feature, v)) for s, v in pairs if v is not None)
    kept = tuple(f"{note}, and is given it as missing" for note in notes if note)
    return Layout("category" if known else "codes", columns, "matrix"), kept


def _classes(model: Any) -> tuple[Any, ...] | None:
    classes = np.asarray(getattr(model, "classes_", ())).tolist()
    return tuple(classes) or None


def _no_classes(library: str, objective: str) -> OracleError:
    return OracleError(
        f"this {library} model was trained with the objective {objective!r}, which gives numbers "
        "and no class probabilities: wrap it in a function that returns the chance of approval"
    )
