"""Sentence embeddings: texts in, unit vectors out, so that a dot product is a cosine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from waysout.embed import minilm
from waysout.embed.minilm import pull
from waysout.embed.onnx import OnnxEncoder, find_files

__all__ = ["Encoder", "encoder", "pull"]


class Encoder(Protocol):
    """Turns texts into vectors. A text's vector depends on that text alone."""

    @property
    def name(self) -> str:
        """What it is called in results."""
        ...

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a row of length 1 for each text."""
        ...


def encoder(named: str = "") -> Encoder:
    """Return a sentence encoder; each is loaded once.

    By default it is all-MiniLM-L6-v2, as it was pulled, or out of the folder that
    ``WAYSOUT_MINILM`` names; else any folder with an ONNX model and its ``tokenizer.json``.
    """
    if named in minilm.NAMES:
        return _load(minilm.NAME, minilm.folder())
    return _load(named, Path(named).expanduser())


@lru_cache(maxsize=4)
def _load(name: str, folder: Path) -> Encoder:
    return OnnxEncoder.load(name, *find_files(folder))
