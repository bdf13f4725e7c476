"""XGBoost: reading its files, and asking its models."""

from __future__ import annotations

import contextlib
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
from waysout.oracles.file_trial import follows, trial_rows
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


def check_model(booster: Any) -> None:
    """Raise where a tree leads to nodes, columns or categories that it does not have."""
    learner = json.loads(bytes(booster.save_raw(raw_format="json")))["learner"]
    params = learner["learner_model_param"]
    width = int(params["num_feature"])
    groups = max(1, int(params["num_class"]), int(params["num_target"]))
    booster_of = learner["gradient_booster"]
    model = booster_of.get("gbtree", booster_of)["model"]
    if "weights" in model:
        whole = len(model["weights"]) % ((width + 1) * groups) == 0 and bool(model["weights"])
    else:
        trees, of_group = model["trees"], model["tree_info"]
        whole = len(trees) == len(of_group) and all(0 <= group < groups for group in of_group)
        bounds = model.get("iteration_indptr", [0, len(trees)])
        whole = whole and bounds == sorted(bounds) and bounds[0] >= 0 and bounds[-1] == len(trees)
        whole = whole and len(booster_of.get("weight_drop", trees)) == len(trees)
        whole = whole and all(_is_sound(tree, width, groups) for tree in trees)
    if not whole:
        raise OracleError(
            "the XGBoost model is damaged: a tree leads to nodes, columns, classes or categories "
            "that are not there"
        )


def _is_sound(tree: dict[str, Any], width: int, groups: int) -> bool:
    """Whether every index of a tree is in range, and no node comes twice on the way down."""
    names = ("left_children", "right_children", "split_indices", "split_type")
    left, right, columns, kinds = (np.array(tree[name], dtype=np.int64) for name in names)
    outputs = max(1, int(tree["tree_param"]["size_leaf_vector"]))
    if not len(left) or {len(left)} != {len(right), len(columns), len(kinds)} or outputs > groups:
        return False
    leaf = left == -1
    inner = ~leaf
    if not follows(np.column_stack([left, right]), leaf):
        return False
    if (columns[inner] < 0).any() or (columns[inner] >= width).any():
        return False
    nodes, starts, sizes = (
        np.array(tree[f"categories_{name}"], dtype=np.int64)
        for name in ("nodes", "segments", "sizes")
    )
    told = {len(nodes)} == {len(starts), len(sizes)} and (starts >= 0).all() and (sizes >= 0).all()
    ends = starts + sizes
    sets = set(nodes.tolist())
    split = np.flatnonzero(inner & (kinds == 1)).tolist()
    return bool(told and (ends <= len(tree["categories"])).all() and sets.issuperset(split))


def try_rows(booster: Any) -> None:
    """Ask for rows, and for what the adapter wants to know."""
    from xgboost import DMatrix

    booster.save_config()
    booster.attributes()
    cells = trial_rows(booster.num_features())
    about = {"feature_names": booster.feature_names, "feature_types": booster.feature_types}
    for rows in (cells, np.where(np.abs(cells) < 2**24, cells, np.nan)):  # it refuses infinity
        with contextlib.suppress(ValueError):
            booster.predict(DMatrix(rows, enable_categorical=True, **about))


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
