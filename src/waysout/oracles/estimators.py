"""Whatever looks like a scikit-learn estimator: fitted names, encoders, trees and classes."""

from __future__ import annotations

import contextlib
import copy
import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from waysout.domain.schema import Schema
from waysout.errors import OracleError
from waysout.oracles.adapter import Adapter, Splits, check_codes, classes_of
from waysout.oracles.archive import unpacked
from waysout.oracles.file_trial import follows, trial_rows
from waysout.oracles.inputs import (
    InputColumn,
    InputKind,
    InputLayout,
    Inputs,
    Place,
    match,
    never_seen,
    places,
)

# These decide at a threshold of their own, which "the likelier class wins" would overrule.
_OWN_THRESHOLD = ("FixedThresholdClassifier", "TunedThresholdClassifierCV")


def read_model(file: Path, trusted: frozenset[str]) -> Any:
    """Read a skops file that creates none but trusted types, or those that skops knows."""
    io = importlib.import_module("skops.io")
    data = unpacked(file)
    asked = set(io.get_untrusted_types(data=data))
    if asked - trusted:
        raise OracleError(
            f"the file wants to create types that skops does not know: "
            f"{', '.join(sorted(asked - trusted))}. If you trust them, pass trusted_types=[…]"
        )
    return io.loads(data, trusted=sorted(asked))


def check_model(model: Any) -> None:
    """Raise where native code that asks the model would leave the cells that there are.

    The code of scikit-learn and SciPy follows the indices of these parts without a look at them.
    """
    for part in _parts(model, set()):
        if hasattr(part, "check_format"):  # a sparse matrix; only its shape is checked by itself
            part.check_format(full_check=True)
        native = ("sklearn.", "scipy.")
        if not any(base.__module__.startswith(native) for base in type(part).__mro__):
            continue  # others may have fields of the same names
        if not all(is_sound(part) for is_sound in _CHECKS):
            raise OracleError(
                f"the model is damaged: its {type(part).__name__} leads to nodes, columns or other "
                "cells that it does not have"
            )


def _sound_tree(part: Any) -> bool:
    if hasattr(part, "tree_") and part.tree_.n_features != getattr(part, "n_features_in_", None):
        return False
    if not hasattr(part, "children_left"):
        return True
    children = np.column_stack([part.children_left, part.children_right])
    return _leads_down(children, part.children_left == -1, part.feature, part.n_features)


def _leads_down(children: Any, leaf: Any, columns: Any, width: int) -> bool:
    inner = columns[~leaf]
    outside = (inner < 0) | (inner >= width)
    return bool(len(leaf) and follows(children.astype(np.int64), leaf) and not outside.any())


def _sound_boosting(part: Any) -> bool:
    """Whether gradient boosting has as many trees a round as columns of sums, of the same width."""
    # The class has the method, also before it is fitted, as searches over settings keep one.
    if not hasattr(part, "_raw_predict_init") or not hasattr(part, "estimators_"):
        return True
    width, trees = part.n_features_in_, part.estimators_
    if trees.ndim != 2 or {tree.n_features_in_ for tree in trees.flat} != {width}:
        return False
    return bool(part._raw_predict_init(np.zeros((1, width))).shape == (1, trees.shape[1]))


def _sound_histograms(part: Any) -> bool:
    """Whether the trees of histogram gradient boosting lead to nodes, columns and categories."""
    if not hasattr(part, "_predictors"):
        return True
    width, categorical = part._n_features, np.asarray(part._bin_mapper.is_categorical_, dtype=bool)
    for tree in (tree for trees in part._predictors for tree in trees):
        nodes, sets = tree.nodes, tree.raw_left_cat_bitsets
        leaf = nodes["is_leaf"] != 0
        children = np.column_stack([nodes["left"], nodes["right"]])
        columns = nodes["feature_idx"].astype(np.int64)
        if len(categorical) != width or not _leads_down(children, leaf, columns, width):
            return False
        split = (nodes["is_categorical"] != 0) & ~leaf
        if not categorical[columns[split]].all() or (nodes["bitset_idx"][split] >= len(sets)).any():
            return False
        if split.any() and sets.shape[1] != 8:  # 256 bits
            return False
    return True


def _sound_neighbours(part: Any) -> bool:
    """Whether the nodes of a KD or ball tree have rows and children, and labels are classes."""
    labels = getattr(part, "_y", None)
    if hasattr(part, "classes_") and isinstance(labels, np.ndarray) and labels.ndim == 1:
        outside = (labels < 0) | (labels >= len(part.classes_))
        if outside.any() or np.shape(part._fit_X)[0] != len(labels):
            return False
    if not hasattr(part, "get_tree_stats"):
        return True
    rows, order, nodes, bounds, *_, metric, weights = part.__getstate__()
    count, starts, ends = len(nodes), nodes["idx_start"], nodes["idx_end"]
    inner = np.flatnonzero(nodes["is_leaf"] == 0)
    metric._validate_data(rows)
    *_, matrix = metric.__getstate__()[:3]
    return bool(
        len(order) == len(rows)
        and ((order >= 0) & (order < len(rows))).all()
        and count > 0
        and ((starts >= 0) & (starts <= ends) & (ends <= len(rows))).all()
        and (2 * inner + 2 < count).all()
        and bounds.shape in ((1, count, rows.shape[1]), (2, count, rows.shape[1]))
        and part.__getstate__()[6] == count
        and len(set(matrix.shape)) == 1
        and (weights is None or len(weights) == len(rows))
    )


def _sound_vectors(part: Any) -> bool:
    """Whether a support vector machine has a weight of each vector for each pair of classes."""
    if not hasattr(part, "_dual_coef_"):
        return True
    classes, vectors, weights = len(part._n_support), len(part.support_), part._dual_coef_
    pairs = classes * (classes - 1) // 2
    if callable(part.kernel) or part.kernel == "precomputed":
        held = bool(((part.support_ >= 0) & (part.support_ < part.shape_fit_[0])).all())
    else:
        held = part.support_vectors_.shape[0] == vectors
    return bool(
        held
        and weights.shape == (classes - 1, vectors)
        and getattr(weights, "nnz", weights.size) == weights.shape[0] * vectors
        and len(part._intercept_) == pairs
        and {len(part._probA), len(part._probB)} in ({0}, {pairs})
        and (part._n_support >= 0).all()
        and (part._n_support[0] == vectors or part._n_support.sum() == vectors)
    )


def _sound_spline(part: Any) -> bool:
    """Whether a spline has a weight for each of its intervals, and these are in order."""
    if not all(hasattr(part, name) for name in ("t", "c", "k", "extrapolate")):
        return True
    knots, degree = np.asarray(part.t), part.k
    count = len(knots) - degree - 1
    ordered = np.isfinite(knots).all() and (np.diff(knots) >= 0).all()
    return bool(degree >= 0 and count > degree and len(part.c) >= count and ordered)


def _sound_words(part: Any) -> bool:
    """Whether each word has a column of its own, where a vocabulary tells the columns."""
    words = getattr(part, "vocabulary_", None)
    return not isinstance(words, dict) or set(words.values()) == set(range(len(words)))


def _sound_encoder(part: Any) -> bool:
    """Whether each category has a column, in sparse form, which is checked and not followed."""
    if not hasattr(part, "sparse_output") or not hasattr(part, "categories_"):
        return True
    encoder = copy.copy(part)
    encoder.sparse_output = True
    encoder.set_output(transform="default")
    vars(encoder).pop("feature_names_in_", None)
    lists = [np.asarray(categories) for categories in part.categories_]
    table = np.empty((max(map(len, lists)), len(lists)), dtype=object)
    for i, categories in enumerate(lists):
        table[:, i] = np.resize(categories.astype(object), len(table))
    encoder.transform(table).check_format(full_check=True)
    return True


_CHECKS = (
    _sound_tree, _sound_boosting, _sound_histograms, _sound_neighbours, _sound_vectors,
    _sound_spline, _sound_words, _sound_encoder,
)  # fmt: skip


def _parts(part: Any, seen: set[int], depth: int = 0) -> Iterator[Any]:
    """Find everything inside a model."""
    if depth > 20 or id(part) in seen:
        return
    seen.add(id(part))
    yield part
    inside: Iterable[Any] = ()
    if isinstance(part, dict):
        inside = part.values()
    elif isinstance(part, (list, tuple, set)) or (
        isinstance(part, np.ndarray) and part.dtype == object
    ):
        inside = part if not isinstance(part, np.ndarray) else part.ravel().tolist()
    elif not isinstance(part, type):
        inside = vars(part).values() if hasattr(part, "__dict__") else ()
    for child in inside:
        yield from _parts(child, seen, depth + 1)
    if hasattr(part, "tree_"):
        yield from _parts(part.tree_, seen, depth + 1)


def try_rows(model: Any) -> None:
    """Ask for rows of numbers, and for rows of the categories that the encoders were fitted on."""
    names = getattr(model, "feature_names_in_", None)
    cells = trial_rows(int(getattr(model, "n_features_in_", 1 if names is None else len(names))))
    finite = np.nan_to_num(cells, nan=0.0, posinf=1e15, neginf=-1e15).clip(-1e15, 1e15)
    batches: list[Any] = [cells, finite]
    if names is not None:
        import pandas as pd

        known = _fitted_categories(model)
        for base in (cells, finite):
            frame = pd.DataFrame(base, columns=list(names))
            for name, values in known.items():
                if name in frame and len(values):
                    frame[name] = [values[i % len(values)] for i in range(len(frame))]
            batches.append(frame)
    for batch in batches:
        for method in ("predict_proba", "predict", "decision_function"):
            # A row that it refuses is no fault of the model.
            with contextlib.suppress(ArithmeticError, LookupError, TypeError, ValueError):
                getattr(model, method, lambda _: None)(batch)


def adapter(model: Any, schema: Schema, inputs: Inputs, like: InputLayout | None = None) -> Adapter:
    """Adapt an estimator or a pipeline by its fitted names, encoders and classes."""
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    if type(last).__name__ in _OWN_THRESHOLD:
        raise OracleError(
            f"a {type(last).__name__} decides at a threshold of its own: pass the model inside it "
            "(.estimator_) and set that threshold as the goal (at_least=…)"
        )
    if _is_regression(last):
        raise OracleError(
            f"a {type(last).__name__} is a regression, which has no classes: pass a function that "
            "says what a yes is, such as lambda rows: model.predict(rows) >= limit"
        )
    layouts, refused, notes = list[InputLayout](), list[str](), list[str]()
    try:
        layouts, refused, notes = _layouts(model, schema, inputs)
    except OracleError as error:
        if like is None:
            raise
        refused = [str(error)]

    def label(batch: Any) -> Any:
        scores = np.asarray(model.decision_function(batch))
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(model.classes_)[index]

    ask = next((getattr(model, n) for n in ("predict_proba", "predict") if hasattr(model, n)), None)
    return Adapter(
        ask or label,
        tuple(layouts),
        gives="scores" if hasattr(model, "predict_proba") else "labels",
        classes=classes_of(model),
        refused=tuple(refused),
        # What encoders saw is beside the point where the data itself tells.
        notes=() if like else tuple(notes),
        like=like,
    )


def _is_regression(model: Any) -> bool:
    """Whether this is a regressor of scikit-learn, or says that it is one."""
    if hasattr(model, "predict_proba") or not hasattr(model, "get_params"):
        return False
    try:
        from sklearn.base import is_regressor

        return bool(is_regressor(model))
    except Exception:  # no scikit-learn, or an estimator without its tags
        return getattr(model, "_estimator_type", "") == "regressor"


def columns(model: Any) -> list[str]:
    """Return the names of the columns the model was fitted on and looks at."""
    used = _columns_used(model)
    return [n for n in map(str, model.feature_names_in_) if used is None or n in used]


def _layouts(
    model: Any, schema: Schema, inputs: Inputs
) -> tuple[list[InputLayout], list[str], list[str]]:
    """Return the layouts the model may want, why not others, and what a user should know."""
    names, used = getattr(model, "feature_names_in_", None), _columns_used(model)
    if names is not None:
        names = [str(n) for n in names if used is None or str(n) in used or str(n) in schema]
    count = getattr(model, "n_features_in_", None)
    spots = places(schema, names, count)
    named = names is not None or count is None
    evidence = _fitted_categories(model) if named and inputs == "auto" else {}
    layouts, refused = _candidates(spots, evidence, inputs, named=named)
    if inputs == "auto":
        layouts = _without_refuted(model, layouts, refused)
    seen = (
        never_seen(s.feature, match(s.feature, evidence[s.name]))
        for s in spots
        if s.name in evidence and s.feature.has_levels
    )
    return layouts, refused, [note for note in seen if note]


def _columns_used(model: Any) -> set[str] | None:
    """Return the columns the model looks at, where a leading ColumnTransformer tells.

    A model is often fitted on a whole table, identifiers included, and does not miss the others.
    """
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


def _candidates(
    spots: Sequence[Place], evidence: Mapping[str, Sequence[Any]], inputs: Inputs, *, named: bool
) -> tuple[list[InputLayout], list[str]]:
    """Return the layouts to try (one where the user or the encoders tell), and why not others."""
    layouts, refused = [], []
    kinds: tuple[InputKind, ...] = ("raw", "codes", "category") if named else ("raw", "codes")
    if inputs != "auto":
        kinds = (inputs,)
    elif all(not spot.feature.has_levels or spot.name in evidence for spot in spots):
        kinds = ("raw",)
    for kind in kinds:
        try:
            layouts.append(_with_evidence(InputLayout.plain(kind, spots, named=named), evidence))
        except OracleError as error:
            if len(kinds) == 1:
                raise
            refused.append(f"as {kind!r}: {error}")
    if named and "raw" in kinds and any(spot.feature.written for spot in spots):
        # A pipeline that reads "45 %" itself was trained on the text.
        columns = tuple(InputColumn.as_written(spot) for spot in spots)
        layouts.insert(0, _with_evidence(InputLayout("raw", columns, "frame"), evidence))
    if inputs == "category" or (named and len(kinds) > 1):
        layouts.append(_with_evidence(InputLayout.text_categories(spots), evidence))
    distinct: list[InputLayout] = []
    for layout in layouts:
        if all(layout.columns != other.columns for other in distinct):
            distinct.append(layout)
    return distinct, refused


def _members(estimators: Any) -> Iterator[Any]:
    """Yield the estimators of lists and arrays; ensembles and pipelines have a length, too."""
    if isinstance(estimators, (list, tuple, np.ndarray)):
        for part in estimators:
            yield from _members(part)
    else:
        yield estimators


def _without_refuted(
    model: Any, layouts: Sequence[InputLayout], refused: list[str]
) -> list[InputLayout]:
    """Leave out layouts whose numbers the trees of a tree or a forest were not made for."""
    splits: dict[int, set[float]] = {}
    for part in [model, *_members(getattr(model, "estimators_", ()))]:
        tree = getattr(part, "tree_", None)
        if tree is None or getattr(part, "n_features_in_", 0) != model.n_features_in_:
            continue
        inner = (tree.children_left != -1) & np.isfinite(tree.threshold)
        for column, at in zip(tree.feature[inner], tree.threshold[inner], strict=True):
            splits.setdefault(int(column), set()).add(float(at))
    kept = []
    for layout in layouts:
        try:
            for i, column in enumerate(layout.columns):
                table: Mapping[Any, Any] = column.table or {}
                if i in splits and table and not any(isinstance(c, str) for c in table.values()):
                    codes = {value: float(cell) for value, cell in table.items()}
                    check_codes(column.place.feature, codes, Splits(splits[i]))
            kept.append(layout)
        except OracleError as error:
            refused.append(f"as {layout.kind!r}: {error}")
    if not kept and layouts:
        raise OracleError(refused[-1])
    return kept


def _with_evidence(layout: InputLayout, evidence: Mapping[str, Sequence[Any]]) -> InputLayout:
    def known(column: InputColumn) -> InputColumn:
        place = column.place
        if not place.feature.has_levels or place.name not in evidence:
            return column
        spelled = InputColumn.spelled(place, evidence[place.name])
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
    inside: list[Any] = []
    if isinstance(part, (list, tuple, dict)):
        inside = list(part.values() if isinstance(part, dict) else part)
    elif not hasattr(part, "get_params") or isinstance(part, type):
        return
    elif hasattr(part, "categories_"):
        yield part
    elif hasattr(part, "steps"):
        # Samplers work while fitting only.
        steps = [step for _, step in part.steps if not hasattr(step, "fit_resample")]
        inside = [step for step in steps if step not in (None, "passthrough")][:1]
    elif hasattr(part, "transformers_") or hasattr(part, "transformer_list"):
        fitted = hasattr(part, "transformers_")
        inside = [step[1] for step in (part.transformers_ if fitted else part.transformer_list)]
    # scikit-learn's own searches, votes and calibrations hand the table on; others may not.
    elif type(part).__module__.split(".")[0] in ("sklearn", "imblearn"):
        inside = list(vars(part).values())
    for child in inside:
        yield from _encoders(child, seen, depth + 1)
