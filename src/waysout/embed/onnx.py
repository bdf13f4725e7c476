"""A sentence encoder from an ONNX file and a tokenizer, without torch.

The settings are those sentence-transformers has for all-MiniLM-L6-v2: at most 256 tokens, the mean
of the tokens' vectors, brought to length 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.errors import InputError, MissingExtra, shown

MOST_TOKENS = 256
REMEMBERED = 10_000

_EXTRA = "embed"
_MODELS = ("model.onnx", "onnx/model.onnx")
_TOKENIZER = "tokenizer.json"


def find_files(folder: Path) -> tuple[Path, Path]:
    """Return the ONNX model and the tokenizer of a folder, or say what is missing."""
    if not folder.is_dir():
        raise InputError(
            f"there is no folder {folder}: a sentence encoder is a folder with {_MODELS[0]} and "
            f"{_TOKENIZER}, or left out for the default one"
        )
    tokenizer = folder / _TOKENIZER
    if not tokenizer.is_file():
        raise InputError(f"the folder {folder} has no {_TOKENIZER}: put the model's own there")
    return _find_model(folder), tokenizer


def _find_model(folder: Path) -> Path:
    found = [folder / name for name in _MODELS if (folder / name).is_file()]
    others = sorted([*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx")])
    if not found and len(others) != 1:
        listed = ", ".join(file.name for file in others) or "no .onnx file at all"
        raise InputError(f"the folder {folder} needs one {_MODELS[0]}; it has {listed}")
    return (found or others)[0]


class OnnxEncoder:
    """Encodes one text at a time and remembers the last ones.

    Texts of one batch change each other's vectors in the last digits (padding), and with files
    quantised on the fly in much more than these. One at a time they cannot, so that a search does
    not depend on what else was encoded; and these texts are short.
    """

    def __init__(self, name: str, session: Any, tokenizer: Any) -> None:
        self.name = name
        self.session = session
        self.tokenizer = tokenizer
        self._encode = lru_cache(REMEMBERED)(self._fresh)

    @classmethod
    def load(cls, name: str, model: Path, tokenizer: Path) -> OnnxEncoder:
        """Load the two files, and try them on a word: what does not fit is found out now."""
        loaded = cls(name, _session(model), _tokenizer(tokenizer))
        try:
            loaded.encode(["word"])
        except InputError as error:
            raise InputError(f"{model}: {error}") from None
        return loaded

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a row of length 1 for each text."""
        rows = [self._encode(text) for text in texts]
        return np.stack(rows) if rows else np.empty((0, 0), dtype=np.float32)

    def _fresh(self, text: str) -> NDArray[np.float32]:
        tokens = self._run(self.tokenizer.encode(text).ids)
        # Without padding the mean over the attention mask is the mean over all tokens.
        mean = tokens.mean(axis=0, dtype=np.float64)
        length = np.linalg.norm(mean)
        if not 0 < length < np.inf:
            raise InputError(f"the encoder {self.name} has no direction for the text {shown(text)}")
        unit: NDArray[np.float32] = (mean / length).astype(np.float32)
        return unit

    def _run(self, ids: Sequence[int]) -> NDArray[Any]:
        """Return the model's vectors, one for each token."""
        batch = np.array([ids], dtype=np.int64)
        feeds = {node.name: _feed(node.name, batch) for node in self.session.get_inputs()}
        try:
            result = self.session.run(None, feeds)[0]
        except Exception as error:  # onnxruntime's classes share no base
            raise InputError(f"the ONNX model cannot be run: {_first_line(error)}") from None
        if result.ndim != 3 or result.shape[:2] != batch.shape:
            raise InputError(
                f"the ONNX model's first output has the shape {result.shape} for {batch.shape} "
                "tokens; it should be one vector for each token (last_hidden_state)"
            )
        tokens: NDArray[Any] = result[0]
        return tokens


def _feed(name: str, batch: NDArray[np.int64]) -> NDArray[np.int64]:
    if name == "input_ids":
        return batch
    if name == "attention_mask":
        return np.ones_like(batch)
    if name == "token_type_ids":
        return np.zeros_like(batch)
    raise InputError(
        f"the ONNX model wants the input {name!r}; a sentence encoder takes input_ids, "
        "attention_mask and token_type_ids"
    )


def _session(model: Path) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtra("onnxruntime", _EXTRA) from None
    options = onnxruntime.SessionOptions()
    # One short text does not keep two threads busy, and waking them costs more than it takes.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's classes share no base
        raise InputError(f"{model} is no ONNX model: {_first_line(error)}") from None


def _tokenizer(file: Path) -> Any:
    try:
        import tokenizers
    except ImportError:
        raise MissingExtra("tokenizers", _EXTRA) from None
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises Exception itself
        raise InputError(f"{file} is no tokenizer: {_first_line(error)}") from None
    # The file's own settings cut and fill up to 128 tokens.
    tokenizer.no_padding()
    tokenizer.enable_truncation(MOST_TOKENS)
    return tokenizer


def _first_line(error: Exception) -> str:
    return shown((str(error) or type(error).__name__).splitlines()[0], 200)
