"""ONNX models: one matrix of numbers in, or one tensor a column, as skl2onnx makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.domain.schema import Schema
from waysout.errors import OracleError
from waysout.oracles.adapter import Adapter, Output
from waysout.oracles.inputs import (
    InputColumn,
    InputLayout,
    Inputs,
    Place,
    code_column,
    places,
    plain_layout,
    raw_column,
)

_DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.object_,
}


@dataclass(frozen=True)
class OnnxModel:
    """An onnxruntime session that takes a matrix or a DataFrame."""

    session: Any

    @property
    def takes_matrix(self) -> bool:
        """Whether all columns go in as one tensor."""
        return len(self.session.get_inputs()) == 1

    def predict(self, batch: Any, columns: Sequence[str] = ()) -> Output:
        """Run the model; the classes come along where the file has them (ZipMap).

        ``columns`` name the columns of a matrix, for the errors.
        """
        nodes = self.session.get_inputs()
        if isinstance(batch, np.ndarray):
            feeds = {nodes[0].name: _matrix(nodes[0], batch, columns)}
        else:
            feeds = {node.name: _tensor(node, batch[node.name]) for node in nodes}
        names = [node.name for node in self.session.get_outputs()]
        return self._read(dict(zip(names, self.session.run(None, feeds), strict=True)))

    def _read(self, results: dict[str, Any]) -> Output:
        nodes = self.session.get_outputs()
        maps = [n.name for n in nodes if n.type.startswith("seq(map(")]
        if maps:
            dicts = results[maps[0]]
            classes = tuple(dicts[0])
            return Output([[d[c] for c in classes] for d in dicts], classes)
        floats = [n.name for n in nodes if n.type in ("tensor(float)", "tensor(double)")]
        labels = [n.name for n in nodes if n.name not in floats]
        if not floats:
            return Output(results[labels[0]])
        scores = results[next((n for n in floats if "prob" in n.lower()), floats[0])]
        if labels and _numbered(scores, results[labels[0]]) and scores.ndim == 2:
            return Output(scores, tuple(range(scores.shape[1])) if scores.shape[1] > 1 else None)
        return Output(scores, None, numbered=not labels or scores.ndim != 2)


def _numbered(scores: NDArray[Any], labels: Any) -> bool:
    """Whether the labels are the numbers of the columns, so that column 1 means class 1."""
    labels = np.asarray(labels).ravel()
    if scores.ndim != 2 or scores.shape[1] < 2:
        return True
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= scores.shape[1]:
        return False
    of_label = scores[np.arange(len(labels)), labels]
    return bool(np.all(of_label >= scores.max(axis=1) - 1e-6))


def _dtype(node: Any) -> Any:
    if node.type not in _DTYPES:
        raise OracleError(
            f"the ONNX input {node.name!r} is a {node.type}; known are {', '.join(_DTYPES)}. "
            "Wrap the session in a function"
        )
    return _DTYPES[node.type]


def _matrix(node: Any, batch: NDArray[Any], columns: Sequence[str]) -> NDArray[Any]:
    dtype = _dtype(node)
    if dtype not in (np.float32, np.float64):
        # A cast would turn a missing value into a huge number, and cut fractions off.
        wrong = np.argwhere(batch % 1 != 0)
        if len(wrong):
            row, column = map(int, wrong[0])
            name = columns[column] if columns else column
            raise OracleError(
                f"column {name!r} holds {batch[row, column]!s}, and the ONNX input of type "
                f"{node.type} takes whole numbers only: describe it as an integer and refuse "
                "missing values in the card, or wrap the session in a function"
            )
    return batch.astype(dtype)


def _tensor(node: Any, column: Any) -> NDArray[Any]:
    dtype = _dtype(node)
    if dtype not in (np.float32, np.float64) and column.isna().any():
        raise OracleError(
            f"column {node.name!r} has a missing value, which the ONNX input of type {node.type} "
            "cannot hold: refuse missing values in the card, or wrap the session in a function"
        )
    if dtype in (np.int64, np.int32) and (column % 1 != 0).any():
        raise OracleError(
            f"column {node.name!r} holds a fraction, and the ONNX input takes whole numbers: "
            "describe it as an integer in the card"
        )
    values = column.astype(str) if dtype is np.object_ else column
    return np.asarray(values.to_numpy(dtype=dtype)).reshape(-1, 1)


def from_onnx(model: Any, schema: Schema, inputs: Inputs) -> Adapter:
    """Adapt an `OnnxModel` or a bare onnxruntime session."""
    model = model if isinstance(model, OnnxModel) else OnnxModel(model)
    nodes = model.session.get_inputs()
    ask: Callable[[Any], Output] = model.predict
    if model.takes_matrix:
        layout = _matrix_layout(nodes[0], schema, inputs)
        ask = partial(model.predict, columns=schema.names)
    else:
        spots = places(schema, [node.name for node in nodes])
        layout = _column_layout(nodes, spots, inputs)
    scores = any("float" in n.type or "double" in n.type for n in model.session.get_outputs())
    return Adapter(ask, (layout,), gives="scores" if scores else "labels")


def _matrix_layout(node: Any, schema: Schema, inputs: Inputs) -> InputLayout:
    if _dtype(node) is np.object_:
        raise OracleError("an ONNX model that takes one tensor of text needs a function around it")
    width = node.shape[-1] if isinstance(node.shape[-1], int) else None
    kind = "codes" if inputs == "auto" else inputs
    return plain_layout(kind, places(schema, None, width), named=False)


def _column_layout(nodes: Sequence[Any], spots: Sequence[Place], inputs: Inputs) -> InputLayout:
    if inputs != "auto":
        return plain_layout(inputs, spots)
    return InputLayout("raw", tuple(map(_column, nodes, spots)), "frame")


def _column(node: Any, place: Place) -> InputColumn:
    """Text goes in raw, numbers as they are and categories among the numbers as codes."""
    if _dtype(node) is np.object_:
        return raw_column(place)
    integer = place.feature.kind == "integer"
    return raw_column(place) if integer else code_column(place)
