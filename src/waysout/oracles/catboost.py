"""CatBoost: reading its files, and asking its models."""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from waysout.domain.schema import Feature, Schema
from waysout.errors import OracleError
from waysout.oracles.adapter import Adapter, classes_of, no_classes
from waysout.oracles.file_trial import trial_rows
from waysout.oracles.inputs import InputColumn, InputLayout, Inputs, Place, codes_of, places


def read_model(file: Path) -> Any:
    """Read a model in CatBoost's own format."""
    import catboost

    return catboost.CatBoost().load_model(str(file))


def check_model(model: Any) -> None:
    """Raise where a tree splits at borders, or has leaves, that the model does not have.

    Writing the model as JSON goes to every node and leaf that a row could get to.
    """
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "model.json")
        model.save_model(str(file), format="json")
        told = json.loads(file.read_bytes())
    borders = {f["feature_index"]: f["borders"] for f in told["features_info"]["float_features"]}
    width = len(told["scale_and_bias"][1])
    for tree in told.get("oblivious_trees") or ():
        splits = tree["splits"] or ()
        whole = len(tree["leaf_values"]) == width << len(splits)
        for split in splits:
            if split["split_type"] == "FloatFeature":
                known = borders.get(split["float_feature_index"], ())
                whole = whole and any(math.isclose(split["border"], b, rel_tol=1e-6) for b in known)
        if not whole:
            raise OracleError(
                "the CatBoost model is damaged: a tree has other splits or leaves than the model"
            )


def try_rows(model: Any) -> None:
    """Ask for rows, and for what the adapter wants to know."""
    classes_of(model)
    with contextlib.suppress(ValueError):
        model.get_all_params()
    cells = trial_rows(len(model.feature_names_)).astype(object)
    for at in model.get_cat_feature_indices():
        cells[:, at] = [str(value)[:1] for value in cells[:, at]]
    for kind in ("RawFormulaVal", "Probability"):
        model.predict(cells, prediction_type=kind, thread_count=1)


def columns(model: Any) -> list[str]:
    """Return what the model calls its columns."""
    return list(model.feature_names_)


def adapter(model: Any, schema: Schema, inputs: Inputs) -> Adapter:
    """Adapt a CatBoostClassifier or a CatBoost that was trained to classify.

    CatBoost keeps only hashes of its categories: where the card has codes, a trial decides.
    """
    loss = str(model.get_all_params().get("loss_function", "custom"))
    classes = classes_of(model) or ((0, 1) if loss == "CrossEntropy" else None)
    if classes is None:
        raise no_classes("CatBoost", loss)
    spots = places(schema, model.feature_names_)
    categorical = set(model.get_cat_feature_indices())
    layouts, refused, kinds = [], [], list[str]()
    if inputs in ("category", "dicts"):
        layouts.append(InputLayout.plain(inputs, spots))
    else:
        kinds += ["raw", "codes"] if inputs == "auto" else [inputs]
        if any(_is_bool(spots[i].feature) for i in categorical) and inputs != "codes":
            kinds.append("text")
    for kind in kinds:
        try:
            columns = tuple(
                _category(spot, kind) if i in categorical else InputColumn.codes(spot)
                for i, spot in enumerate(spots)
            )
            layouts.append(InputLayout("codes" if kind == "codes" else "raw", columns, "frame"))
        except OracleError as error:
            refused.append(f"as {kind!r}: {error}")
    if not layouts:
        raise OracleError(refused[0])
    return Adapter(
        lambda batch: model.predict(batch, prediction_type="Probability"),
        tuple(layouts),
        classes=classes,
        sums_to_one=loss != "MultiClassOneVsAll",
        refused=tuple(refused),
    )


def _category(place: Place, kind: str) -> InputColumn:
    feature, column = place.feature, InputColumn.raw(place)
    if kind == "codes" and feature.has_levels:
        table = {value: int(code) for value, code in codes_of(feature).items()}
        missing = None if feature.missing_code is None else int(feature.missing_code)
        return InputColumn(place, "objects", table, missing=missing)
    # To CatBoost true is 1, unless it was trained on a column that was turned into text.
    if kind == "text" and _is_bool(feature):
        return InputColumn(place, "text", {False: "False", True: "True"})
    # CatBoost takes text and integers for categories, and no floats, which integers beside a
    # missing value would become.
    return replace(column, holds="objects") if column.holds == "values" else column


def _is_bool(feature: Feature) -> bool:
    return bool in map(type, feature.levels)
