"""What torch and Keras share: numbers in, and outputs that may be no probabilities yet."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.domain.schema import Schema
from waysout.errors import OracleError
from waysout.oracles.answers import RANGE_TOLERANCE
from waysout.oracles.inputs import InputLayout, Inputs, places

NO_HEAD = (
    "the model does not end in a layer that makes probabilities; its outputs were taken for them, "
    "since all of them lay from 0 to 1 so far"
)
"""What a user should know where nothing but the outputs tells that they are probabilities."""


def layouts(
    schema: Schema, inputs: Inputs, like: InputLayout | None
) -> tuple[tuple[InputLayout, ...], tuple[str, ...]]:
    """Return the matrix a network gets where the data does not tell, or why there is none."""
    try:
        kind = "codes" if inputs == "auto" else inputs
        return (InputLayout.plain(kind, places(schema), named=False),), ()
    except OracleError as error:
        if like is None:
            raise
        return (), (str(error),)


def numbers(batch: Any) -> NDArray[np.float32]:
    """Return a filled layout as the matrix of numbers that a network takes."""
    values = batch if isinstance(batch, np.ndarray) else batch.to_numpy()
    return np.array(values, dtype=np.float32, order="C")  # a copy: torch wants to own its rows


def check_outputs(values: NDArray[Any], wrapped: str) -> None:
    """Raise where the outputs of a network that has no such layer are no probabilities.

    ``wrapped`` is the line that adds one, for each number of outputs.
    """
    if values.dtype.kind != "f" or not values.size:
        return  # labels
    wrong = ~(np.abs(values - 0.5) <= 0.5 + RANGE_TOLERANCE)
    if not wrong.any():
        return
    width = values.shape[1] if values.ndim == 2 else 1
    yes = (
        "its output is then taken for the chance of a yes (positive_class=0 if it is that of a no)"
        if width == 1
        else f"name which of its outputs 0 to {width - 1} is a yes with positive_class=…"
    )
    raise OracleError(
        f"the model returned {values[wrong].flat[0]:.6g}, which is no probability: it gives scores "
        f"(logits). Wrap it: {wrapped}; {yes}"
    )
