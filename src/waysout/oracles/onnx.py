"""ONNX: one matrix of numbers in, or one tensor a column, as skl2onnx makes them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.domain.schema import Schema
from waysout.errors import OracleError
from waysout.oracles.adapter import Adapter, Output
from waysout.oracles.file_trial import trial_rows
from waysout.oracles.inputs import InputColumn, InputLayout, Inputs, places

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

    def predict(self, batch: Any, columns: Sequence[str] = ()) -> Output:
        """Run the model; the classes come along where the file has them (ZipMap).

        ``columns`` name the columns of a matrix, for the errors.
        """
        nodes = self.session.get_inputs()
        if isinstance(batch, np.ndarray):
            feeds = {nodes[0].name: _tensor(nodes[0], batch, columns)}
        else:
            cells = {n.name: batch[n.name].to_numpy(dtype=object).reshape(-1, 1) for n in nodes}
            feeds = {node.name: _tensor(node, cells[node.name], (node.name,)) for node in nodes}
        nodes = self.session.get_outputs()
        names = [node.name for node in nodes]
        results = dict(zip(names, self.session.run(None, feeds), strict=True))
        maps = [n.name for n in nodes if n.type.startswith("seq(map(")]
        if maps:
            dicts = results[maps[0]]
            classes = tuple(dicts[0])
            return Output([[d[c] for c in classes] for d in dicts], classes)
        floats = [n.name for n in nodes if n.type in ("tensor(float)", "tensor(double)")]
        others = [n.name for n in nodes if n.name not in floats]
        if not floats:
            return Output(results[others[0]])
        scores = results[next((n for n in floats if "prob" in n.lower()), floats[0])]
        width = scores.shape[1] if scores.ndim == 2 else 1
        if not others or width == 1:
            return Output(scores)
        # The labels are the numbers of the columns, or column 1 does not mean class 1.
        labels, numbered = np.asarray(results[others[0]]).ravel(), False
        if labels.dtype.kind in "iu" and labels.min() >= 0 and labels.max() < width:
            of_label = scores[np.arange(len(labels)), labels]
            numbered = bool(np.all(of_label >= scores.max(axis=1) - 1e-6))
        return Output(scores, tuple(range(width)) if numbered else None, numbered=numbered)


def read_model(file: Path) -> Any:
    """Open an ONNX file."""
    import onnxruntime

    return OnnxModel(onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"]))


def try_rows(model: Any) -> None:
    """Ask for rows; where a tensor says nothing about its width, for one column."""
    session = model.session
    feeds: dict[str, Any] = {}
    for node in session.get_inputs():
        last = node.shape[-1] if node.shape else 1
        cells = trial_rows(min(last, 100_000) if isinstance(last, int) else 1)
        dtype = _dtype(node)
        if dtype is np.object_:
            feeds[node.name] = cells.astype(str).astype(object)
        elif np.issubdtype(dtype, np.floating):
            with np.errstate(over="ignore"):
                feeds[node.name] = cells.astype(dtype)
        else:
            whole = np.nan_to_num(cells, posinf=2.0**30, neginf=-(2.0**30))
            feeds[node.name] = whole.clip(-(2.0**30), 2.0**30).astype(dtype)
    # In pieces first: one row that a graph refuses would keep the others from it.
    for start in range(0, len(next(iter(feeds.values()))), 40):
        with contextlib.suppress(Exception):
            session.run(None, {name: cells[start : start + 40] for name, cells in feeds.items()})
    session.run(None, feeds)


def _dtype(node: Any) -> Any:
    if node.type not in _DTYPES:
        raise OracleError(
            f"the ONNX input {node.name!r} is a {node.type}; known are {', '.join(_DTYPES)}. "
            "Wrap the session in a function"
        )
    return _DTYPES[node.type]


def _tensor(node: Any, values: NDArray[Any], columns: Sequence[str]) -> NDArray[Any]:
    dtype = _dtype(node)
    if dtype in (np.float32, np.float64):
        return values.astype(dtype)
    # A cast would turn a missing value into a huge number, and cut fractions off.
    wrong = np.asarray(values != values, dtype=np.bool_)
    if dtype is not np.object_ and not wrong.any():
        wrong = np.asarray(values % 1 != 0, dtype=np.bool_)
    if wrong.any():
        row, column = map(int, np.argwhere(wrong)[0])
        name = columns[column] if columns else column
        raise OracleError(
            f"column {name!r} holds {values[row, column]!s}, and the ONNX input of type "
            f"{node.type} takes whole numbers or text, and no missing values: describe it so in "
            "the card, or wrap the session in a function"
        )
    return (values.astype(str) if dtype is np.object_ else values).astype(dtype)


def columns(model: Any) -> list[str]:
    """Return the names of the inputs, where each is a column."""
    nodes = (model.session if isinstance(model, OnnxModel) else model).get_inputs()
    return [node.name for node in nodes] if len(nodes) > 1 else []


def adapter(model: Any, schema: Schema, inputs: Inputs) -> Adapter:
    """Adapt an `OnnxModel` or a bare onnxruntime session."""
    model = model if isinstance(model, OnnxModel) else OnnxModel(model)
    nodes = model.session.get_inputs()
    ask = partial(model.predict, columns=schema.names if len(nodes) == 1 else ())
    if len(nodes) == 1:
        if _dtype(nodes[0]) is np.object_:
            raise OracleError("an ONNX model of one tensor of text needs a function around it")
        width = nodes[0].shape[-1] if isinstance(nodes[0].shape[-1], int) else None
        kind = "codes" if inputs == "auto" else inputs
        layout = InputLayout.plain(kind, places(schema, None, width), named=False)
    else:
        spots = places(schema, [node.name for node in nodes])
        # Text goes in raw, numbers as they are and categories among the numbers as codes.
        columns = tuple(
            InputColumn.raw(spot)
            if _dtype(node) is np.object_ or spot.feature.kind == "integer"
            else InputColumn.codes(spot)
            for node, spot in zip(nodes, spots, strict=True)
        )
        layout = InputLayout("raw", columns, "frame")
        if inputs != "auto":
            layout = InputLayout.plain(inputs, spots)
    scores = any("float" in n.type or "double" in n.type for n in model.session.get_outputs())
    return Adapter(ask, (layout,), gives="scores" if scores else "labels")
