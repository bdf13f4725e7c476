"""Adapters for LightGBM, XGBoost and CatBoost: the models that record what they were trained on.

LightGBM and XGBoost turn a pandas category into its position among the categories they recorded.
We hand them the positions: the same numbers, without a frame in between.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress, islice, pairwise
from typing import Any

import numpy as np

from waysout.domain.schema import Feature, Schema
from waysout.errors import OracleError
from waysout.oracles.adapter import Adapter, Gives
from waysout.oracles.inputs import (
    InputColumn,
    InputLayout,
    Inputs,
    Place,
    code_column,
    codes_if_any,
    codes_of,
    index_column,
    match,
    never_seen,
    places,
    plain_layout,
    raw_column,
)
from waysout.oracles.seen import Seen, Splits, check_codes

SMALL_BATCH = 1000

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
    lists = booster.pandas_categorical or []
    seen = [Seen.by_lightgbm(info) for info in infos]
    # Where the user names another form, whose lists they are does not matter.
    own = inputs in ("auto", "category")
    recorded = _lightgbm_categories(spots, lists if own else [], seen)
    layout, notes = _recorded_layout(spots, recorded, inputs)
    if own:
        for spot, values, numbers in zip(spots, recorded, seen, strict=True):
            if values is None and not spot.feature.is_numeric:
                check_codes(spot.feature, codes_of(spot.feature), numbers)
    width = booster.num_model_per_iteration()
    return Adapter(
        ask=_lightgbm_ask(booster),
        layouts=(layout,),
        classes=_classes(model) or tuple(range(max(2, width))),
        sums_to_one=objective != "multiclassova",
        notes=(*notes, *filter(None, map(_shifted, spots, seen))),
    )


def _shifted(spot: Place, seen: Seen | None) -> str | None:
    """Say where a number's recorded range lies beside the card's: it may have been encoded."""
    if seen is None or seen.values or spot.feature.range is None:
        return None
    low, high = spot.feature.range
    if not (seen.low < low and seen.high < high) and not (seen.low > low and seen.high > high):
        return None
    return (
        f"column {spot.feature.name!r}: the model {seen}, and the card's range is {low:g} to "
        f"{high:g}: are these the same numbers?"
    )


def _lightgbm_ask(booster: Any) -> Any:
    def ask(batch: Any) -> Any:
        # On a busy machine, waking the threads costs far more than a small batch.
        options = {"num_threads": 1} if len(batch) < SMALL_BATCH else {}
        return booster.predict(batch, **options)

    return ask


def _lightgbm_categories(
    spots: Sequence[Place], lists: Sequence[Sequence[Any]], seen: Sequence[Seen | None]
) -> list[Sequence[Any] | None]:
    """Tell which columns were pandas categories: LightGBM keeps their values, not their names.

    Nor do the columns that it split as categories tell: ordered and constant ones are not among
    them, and numbers that the user called categories are.
    """
    columns = list(zip(spots, seen, strict=True))
    fits = [[_may_hold(spot.feature, values, s) for spot, s in columns] for values in lists]
    chosen = _only_way(fits)
    if len(chosen) != len(lists) and _all_the_same(spots, lists, fits):
        chosen = _leftmost(fits)
    if len(chosen) != len(lists):
        raise OracleError(
            f"cannot tell which columns the model's {len(lists)} lists of categories belong "
            f"to ({', '.join(repr(list(v)[:3]) for v in lists[:5])}): describe those columns "
            "as categories with these levels in the card, name the form with inputs='codes' or "
            "inputs='raw', or wrap the model in a function"
        )
    recorded: list[Sequence[Any] | None] = [None] * len(spots)
    for i, values in zip(chosen, lists, strict=True):
        recorded[i] = values
    return recorded


def _all_the_same(
    spots: Sequence[Place], lists: Sequence[Sequence[Any]], fits: Sequence[Sequence[bool]]
) -> bool:
    """Whether it does not matter whose the lists are: positions and codes are the same numbers."""
    pairs = [(spot, v) for v, fit in zip(lists, fits, strict=True) for spot in compress(spots, fit)]
    try:
        return all(index_column(spot, values) == code_column(spot) for spot, values in pairs)
    except OracleError:
        return False


def _may_hold(feature: Feature, categories: Sequence[Any], seen: Seen | None) -> bool:
    """Whether a column may have had these categories."""
    if feature.is_numeric and (seen is None or not seen.values):
        return False
    if seen is not None and not _may_be_positions(feature, len(categories), seen):
        return False
    try:
        return bool(match(feature, categories))
    except OracleError:
        return False


def _may_be_positions(feature: Feature, count: int, seen: Seen) -> bool:
    """Whether what the model saw in a column may be positions among so many categories."""
    if not count or seen.high >= count or seen.low < -1:
        return False
    if seen.values or seen.is_exactly(range(count)):
        return True
    codes = list(codes_if_any(feature).values())
    return not (codes and seen.is_exactly(codes))


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
    if inputs == "auto":
        _check_xgboost_codes(booster, spots, recorded)
    # The scikit-learn wrapper predicts with the best iteration, and probabilities whatever the
    # objective; a bare Booster with all iterations, and what its objective says.
    wrapped = model is not booster or "scikit_learn" in booster.attributes()
    softmax = wrapped and objective == "multi:softmax"
    return Adapter(
        ask=_xgboost_ask(
            booster,
            rounds=_xgboost_rounds(booster, learner) if wrapped else 0,
            missing=getattr(model, "missing", math.nan),
            softmax=softmax,
        ),
        layouts=(layout,),
        gives="scores" if softmax else _xgboost_gives(objective),
        classes=_classes(model) or tuple(range(max(2, _xgboost_width(learner)))),
        notes=notes,
    )


def _check_xgboost_codes(
    booster: Any, spots: Sequence[Place], recorded: Sequence[Sequence[Any] | None]
) -> None:
    # Beside missing values XGBoost also splits above the greatest number.
    coded = [
        i
        for i, (spot, values) in enumerate(zip(spots, recorded, strict=True))
        if values is None and not spot.feature.is_numeric and spot.feature.missing == "refuse"
    ]
    thresholds: dict[int, set[float]] = {i: set() for i in coded}
    for tree in _xgboost_model(booster).get("trees", []) if coded else ():
        nodes = (tree[k] for k in ("left_children", "split_type", "split_indices"))
        for left, kind, column, at in zip(*nodes, tree["split_conditions"], strict=True):
            if left != -1 and not kind and column in thresholds:
                thresholds[column].add(float(at))
    for i in coded:
        if thresholds[i]:
            splits = Splits(frozenset(thresholds[i]))
            check_codes(spots[i].feature, codes_of(spots[i].feature), splits)


def _xgboost_model(booster: Any) -> dict[str, Any]:
    gradient = json.loads(bytes(booster.save_raw(raw_format="json")))["learner"]["gradient_booster"]
    # dart keeps its trees one level deeper.
    return dict(gradient.get("gbtree", gradient).get("model", {}))


def _xgboost_gives(objective: str) -> Gives:
    if objective in ("binary:logistic", "reg:logistic", "multi:softprob"):
        return "scores"
    if objective in ("binary:hinge", "multi:softmax"):
        return "labels"
    raise _no_classes("XGBoost", objective)


def _xgboost_width(learner: dict[str, Any]) -> int:
    return int(learner["learner_model_param"]["num_class"])


def _xgboost_rounds(booster: Any, learner: dict[str, Any]) -> int:
    best = booster.attributes().get("best_iteration")
    linear = learner["gradient_booster"]["name"] == "gblinear"
    return 0 if best is None or linear else int(best) + 1


def _xgboost_ask(booster: Any, *, rounds: int, missing: float, softmax: bool) -> Any:
    from xgboost import DMatrix

    def ask(batch: Any) -> Any:
        options: dict[str, Any] = {"missing": missing, "enable_categorical": True}
        if isinstance(batch, np.ndarray):
            options["feature_names"] = booster.feature_names
            options["feature_types"] = booster.feature_types
        matrix = DMatrix(batch, **options)
        returned = booster.predict(matrix, iteration_range=(0, rounds), output_margin=softmax)
        return _softmax(returned) if softmax else returned

    return ask


def _softmax(margins: Any) -> Any:
    powers = np.exp(margins - margins.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _xgboost_categories(booster: Any, spots: Sequence[Place]) -> list[Sequence[Any] | None]:
    """Read the categories from the model's JSON; models before 3.1 have none and need codes."""
    encoded = _xgboost_model(booster).get("cats", {}).get("enc", [])
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
    # As the table spells them: a level in another Unicode normal form has another length.
    known = list(dict.fromkeys([*map(str, feature.levels), *feature.level_texts]))
    levels = [
        [t for t in known if len(t) == b - a and t.startswith(piece)]
        for piece, (a, b) in zip(pieces, spans, strict=True)
    ]
    if sum(t in known for t in by_bytes) >= sum(map(bool, levels)):
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
) -> tuple[tuple[InputLayout, ...], tuple[str, ...]]:
    """CatBoost keeps only hashes of its categories: where the card has codes, a trial decides."""
    if inputs in ("category", "dicts"):
        return (plain_layout(inputs, spots),), ()
    makers = {"raw": _object_column, "codes": _whole_code_column, "text": _text_column}
    kinds: list[str] = [inputs] if inputs != "auto" else ["raw", "codes"]
    if any(_is_bool(spots[i].feature) for i in categorical) and inputs != "codes":
        kinds.append("text")
    layouts, refused = [], []
    for kind in kinds:
        try:
            columns = tuple(
                makers[kind](spot) if i in categorical else code_column(spot)
                for i, spot in enumerate(spots)
            )
            layouts.append(InputLayout("codes" if kind == "codes" else "raw", columns, "frame"))
        except OracleError as error:
            refused.append(f"as {kind!r}: {error}")
    if not layouts:
        raise OracleError(refused[0])
    return tuple(layouts), tuple(refused)


def _whole_code_column(place: Place) -> InputColumn:
    feature = place.feature
    if feature.is_numeric:
        return _object_column(place)
    table = {value: int(code) for value, code in codes_of(feature).items()}
    missing = None if feature.missing_code is None else int(feature.missing_code)
    return InputColumn(place, "objects", table, missing=missing)


def _object_column(place: Place) -> InputColumn:
    # CatBoost takes text and integers for categories, and no floats, which integers beside a
    # missing value would become.
    column = raw_column(place)
    return replace(column, holds="objects") if column.holds == "values" else column


def _text_column(place: Place) -> InputColumn:
    # To CatBoost true is 1, unless it was trained on a column that was turned into text.
    if not _is_bool(place.feature):
        return _object_column(place)
    return InputColumn(place, "text", {False: "False", True: "True"})


def _is_bool(feature: Feature) -> bool:
    return bool in map(type, feature.levels)


def _recorded_layout(
    spots: Sequence[Place], recorded: Sequence[Sequence[Any] | None], inputs: Inputs
) -> tuple[InputLayout, tuple[str, ...]]:
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
    return InputLayout("category" if known else "codes", columns, "matrix"), kept


def _classes(model: Any) -> tuple[Any, ...] | None:
    classes = np.asarray(getattr(model, "classes_", ())).tolist()
    return tuple(classes) or None


def _no_classes(library: str, objective: str) -> OracleError:
    return OracleError(
        f"this {library} model was trained with the objective {objective!r}, which gives numbers "
        "and no class probabilities: wrap it in a function that returns the chance of approval"
    )
