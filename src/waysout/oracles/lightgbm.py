"""LightGBM: importing it, reading its text files, and asking its models."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import re
import sys
import tempfile
from collections.abc import Sequence
from itertools import compress, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.domain.schema import Feature, Schema
from waysout.errors import MissingExtra, OracleError, UnavailableError
from waysout.oracles.adapter import (
    Adapter,
    Seen,
    check_codes,
    classes_of,
    no_classes,
    recorded_layout,
)
from waysout.oracles.file_trial import follows, trial_rows
from waysout.oracles.inputs import InputColumn, Inputs, Place, codes_if_any, codes_of, match, places

SMALL_BATCH = 1000

_OPENMP = b"libgomp.so.1"
_OBJECTIVES = ("binary", "multiclass", "multiclassova", "cross_entropy")
_TREE_FIELDS = ("split_feature", "threshold", "decision_type", "left_child", "right_child")


def import_lightgbm(extra: str = "lightgbm") -> Any:
    """Return the module, or say which extra to install."""
    try:
        return importlib.import_module("lightgbm")
    except ImportError:
        raise MissingExtra("lightgbm", extra) from None
    except OSError as error:
        if not _lend_openmp():
            raise UnavailableError(
                f"LightGBM does not load: {error}. It needs the system's OpenMP runtime "
                "(Debian, Ubuntu: apt-get install libgomp1; macOS: brew install libomp)"
            ) from None
    return importlib.import_module("lightgbm")


def _lend_openmp() -> bool:
    """Load scikit-learn's copy of the OpenMP runtime under the name that LightGBM asks for.

    LightGBM's Linux wheel expects the system's ``libgomp.so.1``, which slim container images leave
    out. Without this, "a machine with Python and nothing else" would not be enough.
    """
    spec = importlib.util.find_spec("sklearn")
    if not sys.platform.startswith("linux") or spec is None or spec.origin is None:
        return False
    folder = Path(spec.origin).parent.parent / "scikit_learn.libs"
    for library in folder.glob("libgomp-*.so*"):
        # The loader knows a library by the name inside it, so that is what has to be changed.
        own = library.name.encode() + b"\0"
        renamed = library.read_bytes().replace(own, _OPENMP.ljust(len(own), b"\0"))
        with tempfile.TemporaryDirectory() as place:
            copy = Path(place) / _OPENMP.decode()
            copy.write_bytes(renamed)
            try:
                ctypes.CDLL(str(copy), mode=ctypes.RTLD_GLOBAL)
            except OSError:
                continue
        return True
    return False


def read_model(file: Path) -> Any:
    """Read a text model, after checking that every tree is complete and where the header says.

    LightGBM calls abort() from a worker thread when a tree is cut short, which cannot be caught.
    """
    content = file.read_bytes().replace(b"\r\n", b"\n")  # the sizes of its trees are without
    if content.splitlines()[:1] != [b"tree"]:
        raise OracleError("this is not a LightGBM text model: its first line is not 'tree'")
    head, _, body = content.partition(b"\n\n")
    sizes = re.search(rb"^tree_sizes=([\d ]+)$", head, re.MULTILINE)
    if sizes is None:
        raise OracleError("the LightGBM model has no tree_sizes: it is cut short, or has no trees")
    at = 0
    for i, size in enumerate(map(int, sizes[1].split())):
        text = body[at : at + size].decode("utf-8", "replace")
        fields = _fields(text)
        leaves = fields.get("num_leaves", "")
        lengths = {len(fields.get(name, "").split()) + 1 for name in _TREE_FIELDS}
        lengths.add(len(fields.get("leaf_value", "").split()))
        whole = leaves.isdigit() and lengths == {int(leaves)} and "shrinkage" in fields
        if not whole or fields.get("Tree") != str(i):
            raise OracleError(
                f"the LightGBM model is damaged at tree {i}: it is cut short, or was edited"
            )
        at += size
    if not body[at:].startswith(b"end of trees") or b"\nend of parameters" not in body[at:]:
        raise OracleError("the LightGBM model is cut short after its last tree")
    return import_lightgbm().Booster(model_str=content.decode("utf-8"))


def check_model(booster: Any) -> None:
    """Raise where a tree leads to nodes, leaves, columns or categories that it does not have.

    LightGBM follows whatever the file says: out of its memory, or round and round.
    """
    head, _, body = booster.model_to_string(num_iteration=-1).partition("\nTree=")
    about = _fields(head)
    width, classes = int(about["max_feature_idx"]) + 1, int(about["num_class"])
    told = re.search(r"num_class:(\d+)", about.get("objective", ""))
    per_round = int(about["num_tree_per_iteration"])
    trees = body.partition("\nend of trees")[0].split("\nTree=")
    # Answers are written to num_class cells a row, by each tree of a round, and by the objective.
    counts = {classes, per_round, int(told[1]) if told else classes}
    names = (len(about["feature_names"].split(" ")), len(about["feature_infos"].split(" ")))
    if counts != {max(1, classes)} or len(trees) % per_round or set(names) != {width}:
        raise OracleError(
            f"the LightGBM model is damaged: {len(trees)} trees for {classes} classes, and names "
            f"for {names[0]} of {width} columns"
        )
    for i, tree in enumerate(trees):
        if not _is_sound(_fields(tree), width):
            raise OracleError(
                f"the LightGBM model is damaged at tree {i}: it leads to nodes, leaves, columns or "
                "categories that are not there"
            )
    booster.dump_model()  # as the adapter does; it reads what stands beside the trees as well


def _fields(text: str) -> dict[str, str]:
    # A name may hold other characters that end a line to Python.
    return dict(line.split("=", 1) for line in text.split("\n") if "=" in line)


def _is_sound(fields: dict[str, str], width: int) -> bool:
    """Whether every index of a tree is in range, and no node comes twice on the way down."""

    def numbers(name: str) -> NDArray[np.int64]:
        cells = fields.get(name, "").split()
        return np.array([int(float(cell)) for cell in cells], dtype=np.int64)

    leaves, sets = int(fields["num_leaves"]), int(fields["num_cat"])
    if len(fields["leaf_value"].split()) != leaves or leaves < 1 or sets < 0:
        return False
    if fields.get("is_linear", "0") != "0":
        used, columns = numbers("num_features"), numbers("leaf_features")
        sizes = {len(columns), len(fields.get("leaf_coeff", "").split())}
        lengths = {len(used), len(fields.get("leaf_const", "").split())}
        outside = (columns < 0) | (columns >= width)
        if (used < 0).any() or sizes != {int(used.sum())} or lengths != {leaves} or outside.any():
            return False
    if leaves == 1:
        return True
    columns, kinds = numbers("split_feature"), numbers("decision_type")
    children = np.column_stack([numbers("left_child"), numbers("right_child")])
    if {len(children), len(columns), len(kinds)} != {leaves - 1}:
        return False
    # Leaf i is written as -1 - i: here leaves come after the nodes.
    below = np.where(children < 0, leaves - 2 - children, children)
    below = np.vstack([below, np.zeros((leaves, 2), dtype=np.int64)])
    inner = children[children >= 0]
    if (inner >= leaves - 1).any() or not follows(below, np.arange(len(below)) >= leaves - 1):
        return False
    if (columns < 0).any() or (columns >= width).any():
        return False
    categorical = kinds & 1 == 1
    if not sets and not categorical.any():
        return True
    cells = np.array(fields["threshold"].split(), dtype=np.float64)[categorical]
    bounds, stored = numbers("cat_boundaries"), len(fields.get("cat_threshold", "").split())
    if len(bounds) != sets + 1 or bounds[0] != 0 or (np.diff(bounds) < 0).any():
        return False
    return bool(bounds[-1] == stored and ((cells >= 0) & (cells < sets)).all())


def try_rows(booster: Any) -> None:
    """Ask for rows."""
    booster.predict(trial_rows(booster.num_feature()), num_threads=1)


def columns(model: Any) -> list[str]:
    """Return what the model calls its columns."""
    booster = model.booster_ if hasattr(type(model), "booster_") else model
    return list(booster.feature_name())


def adapter(model: Any, schema: Schema, inputs: Inputs) -> Adapter:
    """Adapt a Booster or an LGBMClassifier."""
    booster = model.booster_ if hasattr(type(model), "booster_") else model
    about = booster.dump_model(num_iteration=1)
    # With a custom objective there is no such entry.
    objective = str(about.get("objective", "custom")).split(" ")[0]
    if objective not in _OBJECTIVES:
        raise no_classes("LightGBM", objective)
    spots = places(schema, booster.feature_name())
    seen = [_seen(about["feature_infos"].get(name, {})) for name in booster.feature_name()]
    # Where the user names another form, whose lists they are does not matter.
    own = inputs in ("auto", "category")
    recorded = _categories(spots, (booster.pandas_categorical or []) if own else [], seen)
    layout, told = recorded_layout(spots, recorded, inputs)
    notes = [*told]
    for spot, values, numbers in zip(spots, recorded, seen, strict=True):
        feature = spot.feature
        if own and values is None and feature.has_levels:
            check_codes(feature, codes_of(feature), numbers)
        if numbers is not None and not numbers.values and feature.range is not None:
            low, high = feature.range
            if (numbers.low - low) * (numbers.high - high) > 0:  # a number may have been encoded
                notes.append(
                    f"column {feature.name!r}: the model {numbers}, and the card's range is "
                    f"{low:g} to {high:g}: are these the same numbers?"
                )

    def ask(batch: Any) -> Any:
        # The answers are the same, and waking the threads costs far more than a small batch.
        options = {"num_threads": 1} if len(batch) < SMALL_BATCH else {}
        return booster.predict(batch, **options)

    return Adapter(
        ask,
        (layout,),
        classes=classes_of(model) or tuple(range(max(2, booster.num_model_per_iteration()))),
        sums_to_one=objective != "multiclassova",
        notes=tuple(notes),
    )


def _seen(info: dict[str, Any]) -> Seen | None:
    """Read one of LightGBM's ``feature_infos``; a column it never used has none."""
    # For a category -1 stands for whatever is missing, rare or unknown.
    values = frozenset(float(v) for v in info.get("values", ()) if v >= 0)
    if values:
        return Seen(min(values), max(values), values)
    if info.get("values") or "min_value" not in info:
        return None
    return Seen(float(info["min_value"]), float(info["max_value"]))


def _categories(
    spots: Sequence[Place], lists: Sequence[Sequence[Any]], seen: Sequence[Seen | None]
) -> list[Sequence[Any] | None]:
    """Tell which columns were pandas categories: LightGBM keeps their values, not their names.

    Nor do the columns that it split as categories tell: ordered and constant ones are not among
    them, and numbers that the user called categories are.
    """
    columns = list(zip(spots, seen, strict=True))
    fits = [[_may_hold(spot.feature, values, s) for spot, s in columns] for values in lists]
    # If the leftmost way to lay the lists out is also the rightmost, there is no other.
    left, mirrored = _leftmost(fits), _leftmost([fit[::-1] for fit in fits[::-1]])
    only = left == [len(fit) - 1 - i for fit, i in zip(fits, mirrored[::-1], strict=False)]
    pairs = [(spot, v) for v, fit in zip(lists, fits, strict=True) for spot in compress(spots, fit)]
    with contextlib.suppress(OracleError):
        # Nor does it matter whose they are where positions and codes are the same numbers.
        column = InputColumn
        only = only or all(column.positions(s, v) == column.codes(s) for s, v in pairs)
    if not only or len(left) != len(lists):
        raise OracleError(
            f"cannot tell which columns the model's {len(lists)} lists of categories belong "
            f"to ({', '.join(repr(list(v)[:3]) for v in lists[:5])}): describe those columns "
            "as categories with these levels in the card, name the form with inputs='codes' or "
            "inputs='raw', or wrap the model in a function"
        )
    recorded: list[Sequence[Any] | None] = [None] * len(spots)
    for i, values in zip(left, lists, strict=True):
        recorded[i] = values
    return recorded


def _may_hold(feature: Feature, categories: Sequence[Any], seen: Seen | None) -> bool:
    """Whether a column may have had these categories, and the model have seen their positions."""
    if not feature.has_levels and (seen is None or not seen.values):
        return False
    if seen is not None:
        count, codes = len(categories), list(codes_if_any(feature).values())
        if not count or seen.high >= count or seen.low < -1:
            return False
        positions = bool(seen.values) or seen.is_exactly(range(count))
        if not positions and codes and seen.is_exactly(codes):
            return False
    try:
        return bool(match(feature, categories))
    except OracleError:
        return False


def _leftmost(fits: Sequence[Sequence[bool]]) -> list[int]:
    """Return the leftmost columns that fit the lists, in their order; nothing where none do."""
    chosen: list[int] = []
    for fit in fits:
        start = chosen[-1] + 1 if chosen else 0
        chosen.extend(islice(compress(range(start, len(fit)), fit[start:]), 1))
    return chosen if len(chosen) == len(fits) else []
