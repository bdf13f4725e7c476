"""CatBoost: reading its files, and asking its models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from waysout.domain.schema import Feature, Schema
from waysout.errors import OracleError
from waysout.oracles.adapter import Adapter, classes_of, no_classes
from waysout.oracles.inputs import InputColumn, InputLayout, Inputs, Place, codes_of, places


def read_model(file: Path) -> Any:
    """Read a model in CatBoost's own format."""
    import catboost

    return catboost.CatBoost().load_model(str(file))


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
