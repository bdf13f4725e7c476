"""Keras: models that take a matrix of numbers; what they predict are probabilities, not labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.domain.schema import Schema
from waysout.errors import OracleError
from waysout.oracles.adapter import Adapter
from waysout.oracles.inputs import InputLayout, Inputs
from waysout.oracles.networks import NO_HEAD, check_outputs, layouts, numbers

BATCH = 8192

_HEADS = ("sigmoid", "softmax")


def adapter(model: Any, schema: Schema, inputs: Inputs, like: InputLayout | None = None) -> Adapter:
    """Adapt a model; the activation of its last layer tells whether it gives probabilities."""
    forms, refused = layouts(schema, inputs, like)
    last = model.layers[-1] if getattr(model, "layers", None) else None
    activation = getattr(getattr(last, "activation", None), "__name__", type(last).__name__.lower())

    def ask(batch: Any) -> NDArray[Any]:
        values = model.predict(numbers(batch), batch_size=BATCH, verbose=0)
        if isinstance(values, (list, dict)):
            raise OracleError(
                f"the model has {len(values)} outputs: wrap it in a function that returns the "
                "probability of a yes"
            )
        values = np.asarray(values)
        width = values.shape[1] if values.ndim == 2 else 1
        layer = "sigmoid" if width == 1 else "softmax"
        check_outputs(values, f'keras.Sequential([model, keras.layers.Activation("{layer}")])')
        return values

    notes = () if activation in _HEADS else (NO_HEAD,)
    return Adapter(ask, forms, gives="either", refused=refused, notes=notes, like=like)
