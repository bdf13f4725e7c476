"""CatBoost: reading its files, and asking its models."""

from __future__ import annotations

import contextlib
import struct
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from waysout.domain.schema import Feature, Schema
from waysout.errors import OracleError
from waysout.oracles.adapter import Adapter, classes_of, no_classes
from waysout.oracles.file_trial import trial_rows
from waysout.oracles.inputs import InputColumn, InputLayout, Inputs, Place, codes_of, places

# Where a row goes from a node: so many nodes on, or it stays at a leaf. What a node compares.
_STEP = np.dtype([("left", "<u2"), ("right", "<u2")])
_BIN = np.dtype([("column", "<u2"), ("mask", "u1"), ("value", "u1")])
_BIN_VALUES = 254
# What counts of categories are looked up by; a hash of ones is that of an empty bucket.
_BUCKET = np.dtype([("hash", "<u8"), ("index", "<u4")])
_EMPTY = 2**64 - 1
# What counts are of: the classes of the target above a border or of a bucket, means (a sum and a
# count), and rows. How many words each takes; the first two take one for each class.
_BORDERS, _BUCKETS = 0, 1
_WORDS = {2: 2, 3: 2, 4: 1, 5: 1}
_COUNTS = b"static_provider_v1"

# What a table of counts is of: columns, splits of numbers and of categories, and how it counts.
_Base = tuple[tuple[int, ...], tuple[Any, ...], tuple[Any, ...], int]


def read_model(file: Path) -> Any:
    """Read a model in CatBoost's own format, after following every index in it."""
    try:
        with file.open("rb") as stream:
            stream.seek(4)
            core = _part(stream)
            root = _Table(core, _number(core, 0, "<I"))
            parts = root.texts(3)
            counts = _counts(stream) if parts[:1] == [_COUNTS] else {}
        sound = _is_sound(root.table(1), counts)
    except (IndexError, ValueError, struct.error):
        sound = False
    if not sound:
        raise OracleError(
            "the CatBoost model is damaged: it is cut short, or leads to nodes, leaves, columns or "
            "counts of categories that are not there"
        )
    if set(parts) - {_COUNTS} or len(parts) > 1:
        raise OracleError(
            "the CatBoost model takes texts or embeddings, and what its file holds for them cannot "
            "be checked before CatBoost reads it: if you trust the file, read it with CatBoost and "
            "pass the model, or a function of your own (module:function)"
        )
    import catboost

    return catboost.CatBoost().load_model(str(file))


def _part(stream: IO[bytes]) -> bytes:
    """Read the next flatbuffer of a file."""
    size = _number(stream.read(4), 0, "<I")
    part = stream.read(size)
    if len(part) < size or size == 2**32 - 1:  # in the place of which a longer size would follow
        raise ValueError
    return part


class _Table:
    """A table of a flatbuffer: CatBoost uses its vectors as they are, so these are looked at."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        start = at - _number(data, at, "<i")
        slots = struct.unpack_from(f"<{_number(data, start, '<H') // 2 - 2}H", data, start + 4)
        self.places = [at + slot if slot else 0 for slot in slots]

    def _at(self, field: int) -> int:
        return self.places[field] if field < len(self.places) else 0

    def number(self, field: int, default: int = -1, form: str = "<i") -> int:
        at = self._at(field)
        return _number(self.data, at, form) if at else default

    def table(self, field: int) -> _Table:
        at = self._at(field)
        if not at:
            raise ValueError
        return _Table(self.data, at + _number(self.data, at, "<I"))

    def vector(self, field: int, dtype: Any) -> NDArray[Any]:
        at = self._at(field)
        if not at:
            return np.zeros(0, dtype)
        at += _number(self.data, at, "<I")
        return np.frombuffer(self.data, dtype, _number(self.data, at, "<I"), at + 4)

    def tables(self, field: int) -> list[_Table]:
        return [_Table(self.data, at) for at in self._ends(field)]

    def texts(self, field: int) -> list[bytes]:
        sizes = [(at + 4, _number(self.data, at, "<I")) for at in self._ends(field)]
        return [self.data[at : at + size].rstrip(b"\0") for at, size in sizes]

    def _ends(self, field: int) -> list[int]:
        """Return where a vector of tables or texts leads to."""
        at = self._at(field)
        at += _number(self.data, at, "<I") if at else 0
        steps = self.vector(field, "<u4").tolist()
        return [at + 4 * (i + 1) + step for i, step in enumerate(steps)]


def _number(data: bytes, at: int, form: str) -> int:
    if at < 0:
        raise IndexError
    return int(struct.unpack_from(form, data, at)[0])


def _counts(stream: IO[bytes]) -> dict[_Base, int]:
    """Return how many classes each table of counts tells apart, after following its indices.

    The fields are those of CatBoost's ctr_data.fbs. Among the buckets it goes on from one that is
    taken to the next until one is empty.
    """
    found: dict[_Base, int] = {}
    for _ in range(_number(stream.read(4), 0, "<I")):
        part = _part(stream)
        table = _Table(part, _number(part, 0, "<I"))
        base, classes = _base(table.table(0)), table.number(4, 0)
        buckets = table.vector(1, "u1").view(_BUCKET)
        taken = buckets["index"][buckets["hash"] != _EMPTY]
        # To CatBoost a border has two sides, whatever is said of classes.
        words = _WORDS.get(base[-1], max(classes, 2) if base[-1] == _BORDERS else classes)
        if base in found or words < 1 or len(buckets) & (len(buckets) - 1):
            raise ValueError
        if len(taken) == len(buckets) or (taken >= len(table.vector(2, "u1")) // 4 // words).any():
            raise ValueError
        found[base] = classes
    return found


def _base(table: _Table) -> _Base:
    """Return what a table of counts is of; numbers equal those that CatBoost takes for equal."""
    columns, kind = table.table(0), table.number(1, 0, "<b")
    if not _BORDERS <= kind <= max(_WORDS):
        raise ValueError
    found = (columns.vector(i, dtype) for i, dtype in enumerate(("<i4", "<i4,<f4", "<i4,<i4")))
    categories, of_numbers, of_categories = (tuple(vector.tolist()) for vector in found)
    return categories, of_numbers, of_categories, kind


def _is_sound(trees: _Table, counts: dict[_Base, int]) -> bool:
    """Whether every index of the trees is in range; the fields are those of CatBoost's model.fbs.

    Of the columns in question: categories, numbers, one for each category, counts of categories,
    and what was made of texts.
    """
    kinds = {4: -1, 5: 3, 6: 1, 7: 1, 13: 3}  # where the borders or values of each kind stand
    cats, numbers, *others = (trees.tables(field) for field in kinds)
    columns = len(cats) + len(numbers) + len(trees.tables(12)) + len(trees.tables(18))
    for among, first in ((cats, 0), (numbers, 1)):
        for column in among:
            index, flat = column.number(first), column.number(first + 1)
            if not (0 <= index < len(among) and 0 <= flat < columns):
                return False
    if not all(0 <= column.number(0) < len(cats) for column in others[0]):
        return False
    for ctr in (column.table(0) for column in trees.tables(7)):
        base, border = _base(ctr.table(0)), ctr.number(1, 0)
        if base not in counts:
            return False
        if base[-1] in (_BORDERS, _BUCKETS) and not 0 <= border < counts[base]:
            return False
    spans = [
        len(column.vector(at, "<i4"))
        for among, at in zip((numbers, *others), list(kinds.values())[1:], strict=True)
        for column in among
    ]
    splits, sizes = trees.vector(1, "<i4"), trees.vector(2, "<i4").astype(np.int64)
    starts, bins = trees.vector(3, "<i4"), trees.vector(17, _BIN)
    ends = np.cumsum(sizes)
    if (sizes < 0).any() or len(splits) != sizes.sum() or len(bins) not in (0, len(splits)):
        return False
    if len(starts) and not np.array_equal(starts, ends - sizes):
        return False
    if len(splits) and (splits.min() < 0 or splits.max() >= sum(spans)):
        return False
    if len(bins) and bins["column"].max() >= sum(-(-span // _BIN_VALUES) for span in spans):
        return False
    leaves, width = len(trees.vector(8, "<f8")), trees.number(0, 0)
    steps, leaf_of = trees.vector(10, _STEP), trees.vector(11, "<u4").astype(np.int64)
    if width < 1 or not len(steps):
        return width >= 1 and sizes.max(initial=0) < 32 and leaves == sum(width << sizes)
    if len(steps) != len(splits) or len(leaf_of) != len(splits):
        return False
    last = np.repeat(ends, sizes)
    ways = np.stack([steps["left"], steps["right"]]).astype(np.int64)
    leaf = (ways == 0).any(axis=0)
    inside = (np.arange(len(splits)) + ways.max(axis=0) < last).all()
    return bool(inside and (leaf_of[leaf] + width <= leaves).all())


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
    if embeddings := model.get_embedding_feature_indices():
        raise OracleError(
            f"the model takes embeddings (column {model.feature_names_[embeddings[0]]!r}), and a "
            "cell of a card holds one value: pass a function that makes them of the columns a card "
            "describes"
        )
    categorical, texts = set(model.get_cat_feature_indices()), set(model.get_text_feature_indices())
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
                _category(spot, "raw" if i in texts else kind)
                if i in categorical | texts
                else InputColumn.codes(spot)
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
