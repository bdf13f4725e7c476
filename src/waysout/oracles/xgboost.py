"""XGBoost: reading its files, and asking its models."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from waysout.domain.schema import Feature, Schema
from waysout.errors import OracleError
from waysout.oracles.adapter import (
    Adapter,
    Gives,
    Splits,
    check_codes,
    classes_of,
    no_classes,
    recorded_layout,
)
from waysout.oracles.inputs import Inputs, Place, codes_of, places

_SIZES = {"i": 1, "U": 1, "I": 2, "l": 4, "L": 8, "d": 4, "D": 8, "C": 1}
_INTEGERS = {"i": ">b", "U": ">B", "I": ">h", "l": ">i", "L": ">q"}
_GIVES: dict[str, Gives] = {
    "binary:logistic": "scores", "reg:logistic": "scores", "multi:softprob": "scores",
    "binary:hinge": "labels", "multi:softmax": "labels",
}  # fmt: skip


def read_model(file: Path) -> Any:
    """Read a JSON or UBJSON model."""
    content = file.read_bytes()
    if file.suffix.lower() == ".ubj":
        check_ubjson(content)
    if b"learner" not in content[:4096]:
        raise OracleError("this is not an XGBoost model: it has no 'learner' at its start")
    import xgboost

    return xgboost.Booster(model_file=bytearray(content))


def check_ubjson(content: bytes) -> None:
    """Raise unless the bytes are one whole UBJSON value.

    XGBoost reads past the end of a truncated file, which ends the process.
    """
    try:
        whole = _value_end(content, 0) == len(content)
    except (IndexError, KeyError, RecursionError, struct.error):
        whole = False
    if not whole:
        raise OracleError("the UBJSON file is cut short or damaged: save the model again")


def _value_end(data: bytes, at: int, kind: str | None = None) -> int:
    """Return where the value that starts here ends; its kind comes first unless it is given."""
    if kind is None:
        kind, at = chr(data[at]), at + 1
    if kind in "TFZN":
        return at
    if kind == "{":
        while data[at] != ord("}"):
            length, at = _integer(data, at)
            at = _value_end(data, at + length)
        return at + 1
    if kind == "S":
        length, at = _integer(data, at)
        at += length
    elif kind == "[":
        of = None
        if data[at] == ord("$"):
            of, at = chr(data[at + 1]), at + 2
        if data[at] != ord("#"):
            while data[at] != ord("]"):
                at = _value_end(data, at)
            return at + 1
        count, at = _integer(data, at + 1)
        if of not in _SIZES:
            for _ in range(count):
                at = _value_end(data, at, of)
            return at
        at += count * _SIZES[of]
    else:
        at += _SIZES[kind]
    if at > len(data):
        raise IndexError
    return at


def _integer(data: bytes, at: int) -> tuple[int, int]:
    code = chr(data[at])
    (value,) = struct.unpack_from(_INTEGERS[code], data, at + 1)
    if value < 0:
        raise IndexError
    return value, at + 1 + _SIZES[code]


def columns(model: Any) -> list[str]:
    """Return what the model calls its columns."""
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    return list(booster.feature_names or ())


def adapter(model: Any, schema: Schema, inputs: Inputs) -> Adapter:
    """Adapt a Booster or an XGBClassifier."""
    from xgboost import DMatrix

    booster = model.get_booster() if hasattr(model, "get_booster") else model
    learner = json.loads(booster.save_config())["learner"]
    objective = str(learner["objective"]["name"])
    if objective not in _GIVES:
        raise no_classes("XGBoost", objective)
    spots = places(schema, booster.feature_names, booster.num_features())
    stored: dict[str, Any] = {}
    if not all(spot.feature.is_numeric for spot in spots) or "c" in (booster.feature_types or []):
        raw = json.loads(bytes(booster.save_raw(raw_format="json")))["learner"]["gradient_booster"]
        stored = raw.get("gbtree", raw).get("model", {})  # dart keeps its trees one level deeper
    recorded: list[Sequence[Any] | None] = [None] * len(spots)
    # Models before 3.1 stored no categories and need codes.
    if "c" in (booster.feature_types or []) and (encoded := stored.get("cats", {}).get("enc")):
        for i, (column, spot) in enumerate(zip(encoded, spots, strict=True)):
            text = "offsets" in column
            recorded[i] = (_text(column, spot.feature) if text else column["values"]) or None
    layout, notes = recorded_layout(spots, recorded, inputs)
    if inputs == "auto":
        _check_splits(stored.get("trees", []), spots, recorded)
    # The scikit-learn wrapper predicts with the best iteration, and probabilities whatever the
    # objective; a bare Booster with all iterations, and what its objective says.
    wrapped = model is not booster or "scikit_learn" in booster.attributes()
    softmax = wrapped and objective == "multi:softmax"
    best = booster.attributes().get("best_iteration") if wrapped else None
    linear = learner["gradient_booster"]["name"] == "gblinear"
    rounds = 0 if best is None or linear else int(best) + 1

    def ask(batch: Any) -> Any:
        options: dict[str, Any] = {"missing": getattr(model, "missing", math.nan)}
        if isinstance(batch, np.ndarray):
            options["feature_names"] = booster.feature_names
            options["feature_types"] = booster.feature_types
        matrix = DMatrix(batch, enable_categorical=True, **options)
        returned = booster.predict(matrix, iteration_range=(0, rounds), output_margin=softmax)
        if not softmax:
            return returned
        powers = np.exp(returned - returned.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    width = int(learner["learner_model_param"]["num_class"])
    return Adapter(
        ask,
        (layout,),
        gives="scores" if softmax else _GIVES[objective],
        classes=classes_of(model) or tuple(range(max(2, width))),
        notes=notes,
    )


def _check_splits(
    trees: Sequence[Any], spots: Sequence[Place], recorded: Sequence[Sequence[Any] | None]
) -> None:
    """Hold the thresholds of the trees against the codes of the card."""
    # Beside missing values XGBoost also splits above the greatest number.
    thresholds: dict[int, set[float]] = {
        i: set()
        for i, (spot, values) in enumerate(zip(spots, recorded, strict=True))
        if values is None and spot.feature.has_levels and spot.feature.missing == "refuse"
    }
    for tree in trees if thresholds else ():
        nodes = (tree[k] for k in ("left_children", "split_type", "split_indices"))
        for left, kind, column, at in zip(*nodes, tree["split_conditions"], strict=True):
            if left != -1 and not kind and column in thresholds:
                thresholds[column].add(float(at))
    for i, found in thresholds.items():
        if found:
            check_codes(spots[i].feature, codes_of(spots[i].feature), Splits(found))


def _text(column: dict[str, Any], feature: Feature) -> list[str]:
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
