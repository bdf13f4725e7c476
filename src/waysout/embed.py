"""Sentence embeddings: texts in, unit vectors out, so that a dot product is a cosine.

An encoder is an ONNX file and a tokenizer, without torch. The default is all-MiniLM-L6-v2, the
encoder of the paper, with the settings that sentence-transformers has for it: at most 256 tokens,
the mean of the tokens' vectors, brought to length 1. `pull` downloads its publisher's own files
into the cache and checks their sha256; `encoder` downloads nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from waysout.errors import InputError, MissingExtra, UnavailableError, shown
from waysout.fetch import Progress, download, ignore
from waysout.files import cache_dir, file_sha256, locked

NAME = "all-MiniLM-L6-v2"
NAMES = ("", NAME, f"sentence-transformers/{NAME}")
VARIABLE = "WAYSOUT_MINILM"
MOST_TOKENS = 256
REMEMBERED = 10_000

_PAGE = f"https://huggingface.co/sentence-transformers/{NAME}"
_REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
_FILES = {
    "onnx/model.onnx": "6fd5d72fe4589f189f8ebc006442dbb529bb7ce38f8082112682524616046452",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
_ELSEWHERE = (
    f"put {' and '.join(_FILES)} of {_PAGE} into a folder, and name it in the variable {VARIABLE}"
)
_MODELS = ("model.onnx", "onnx/model.onnx")
_TOKENIZER = "tokenizer.json"


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

    By default it is all-MiniLM-L6-v2, from the cache or from the folder that ``WAYSOUT_MINILM``
    names; else any folder with an ONNX model and its ``tokenizer.json``.
    """
    if named in NAMES:
        return _load(NAME, folder())
    return _load(named, Path(named).expanduser())


@lru_cache(maxsize=4)
def _load(name: str, folder: Path) -> Encoder:
    return OnnxEncoder.load(name, *find_files(folder))


def folder() -> Path:
    """Return the folder of MiniLM's files; download nothing, or say how to get them."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    place = cache_dir() / "models" / NAME
    if not all((place / file).is_file() for file in _FILES):
        raise UnavailableError(
            f"the sentence encoder {NAME} is not in the cache ({place}).\nTo get it (91 MB): "
            f"waysout models pull {NAME};\nor {_ELSEWHERE}."
        )
    return place


def pull(progress: Progress = ignore) -> Path:
    """Download what is missing or damaged of MiniLM's files; return their folder."""
    place = cache_dir() / "models" / NAME
    with locked(place.with_name(f".{NAME}.lock")):
        for name, sha256 in _FILES.items():
            file, url = place / name, f"{_PAGE}/resolve/{_REVISION}/{name}"
            try:
                if not (file.is_file() and file_sha256(file) == sha256):
                    # It is downloaded into its folder, so that it can be moved in one step.
                    download(url, file.parent, sha256, progress=progress).replace(file)
            except UnavailableError as error:
                raise UnavailableError(f"{error}\nOr {_ELSEWHERE}.") from None
            except OSError as error:
                raise UnavailableError(f"cannot write {file}: {error.strerror or error}") from None
    return place


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
    found = [folder / name for name in _MODELS if (folder / name).is_file()]
    others = sorted([*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx")])
    if not found and len(others) != 1:
        listed = ", ".join(file.name for file in others) or "no .onnx file at all"
        raise InputError(f"the folder {folder} needs one {_MODELS[0]}; it has {listed}")
    return (found or others)[0], tokenizer


class OnnxEncoder:
    """Encodes one text at a time and remembers the last ones.

    Texts of one batch change each other's vectors in the last digits (padding), and with files
    quantised on the fly by much more. One at a time they cannot, so that a search does not depend
    on what else was encoded; and these texts are short.
    """

    def __init__(self, name: str, session: Any, tokenizer: Any) -> None:
        self.name = name
        self.session = session
        self.tokenizer = tokenizer
        self._encode = lru_cache(REMEMBERED)(self._encode_one)

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

    def _encode_one(self, text: str) -> NDArray[np.float32]:
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
        known = {"input_ids": batch, "attention_mask": np.ones_like(batch),
                 "token_type_ids": np.zeros_like(batch)}  # fmt: skip
        names = [node.name for node in self.session.get_inputs()]
        for name in names:
            if name not in known:
                raise InputError(
                    f"the ONNX model wants the input {name!r}; a sentence encoder takes input_ids, "
                    "attention_mask and token_type_ids"
                )
        try:
            result = self.session.run(None, {name: known[name] for name in names})[0]
        except Exception as error:  # onnxruntime's classes share no base
            raise InputError(f"the ONNX model cannot be run: {_first_line(error)}") from None
        if result.ndim != 3 or result.shape[:2] != batch.shape:
            raise InputError(
                f"the ONNX model's first output has the shape {result.shape} for {batch.shape} "
                "tokens; it should be one vector for each token (last_hidden_state)"
            )
        tokens: NDArray[Any] = result[0]
        return tokens


def _session(model: Path) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtra("onnxruntime", "embed") from None
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
        raise MissingExtra("tokenizers", "embed") from None
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises Exception itself
        raise InputError(f"{file} is no tokenizer: {_first_line(error)}") from None
    # The file's own settings cut and pad to 128 tokens.
    tokenizer.no_padding()
    tokenizer.enable_truncation(MOST_TOKENS)
    return tokenizer


def _first_line(error: Exception) -> str:
    return shown((str(error) or type(error).__name__).splitlines()[0], 200)
