"""torch: modules that take a matrix of numbers and give probabilities."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.domain.schema import Schema
from waysout.errors import OracleError
from waysout.oracles.adapter import Adapter
from waysout.oracles.inputs import InputLayout, Inputs
from waysout.oracles.networks import NO_HEAD, check_outputs, layouts, numbers

BATCH = 8192

_HEADS = ("Sigmoid", "Softmax", "LogSoftmax", "LogSigmoid")


def adapter(model: Any, schema: Schema, inputs: Inputs, like: InputLayout | None = None) -> Adapter:
    """Adapt a module; its last layer tells whether it gives probabilities or their logarithms."""
    forms, refused = layouts(schema, inputs, like)
    last = list(model.modules())[-1]
    head = getattr(last, "original_name", type(last).__name__)  # of a scripted module
    lock = threading.Lock()

    def ask(batch: Any) -> NDArray[Any]:
        with lock, _evaluating(model):
            values = _run(model, numbers(batch))
        if head.startswith("Log"):
            return np.asarray(np.exp(values))
        width = values.shape[1] if values.ndim == 2 else 1
        layer = "Sigmoid()" if width == 1 else "Softmax(dim=1)"
        check_outputs(values, f"torch.nn.Sequential(model, torch.nn.{layer})")
        return values

    notes = () if head in _HEADS else (NO_HEAD,)
    return Adapter(ask, forms, gives="either", refused=refused, notes=notes, like=like)


def _run(model: Any, matrix: NDArray[np.float32]) -> NDArray[Any]:
    import torch

    weights = next((p for p in model.parameters() if p.is_floating_point()), None)
    parts = []
    with torch.no_grad():
        for start in range(0, len(matrix), BATCH):
            rows = torch.from_numpy(matrix[start : start + BATCH])
            found = model(rows if weights is None else rows.to(weights.device, weights.dtype))
            if not isinstance(found, torch.Tensor):
                raise OracleError(
                    f"the module returned a {type(found).__name__}, not a tensor: wrap it in one "
                    "that returns the probabilities alone"
                )
            # numpy has no bfloat16.
            found = found.float() if found.is_floating_point() else found
            parts.append(found.cpu().numpy())
    return np.concatenate(parts)


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Put the module into evaluation mode, and each of its parts back as it was."""
    training = [part for part in model.modules() if part.training]
    model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True
