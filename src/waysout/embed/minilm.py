"""all-MiniLM-L6-v2: where its files lie, and how to have them here.

It is the encoder of the paper. `pull` downloads the publisher's own files into the cache and checks
their sha256; `folder` only looks.
"""

from __future__ import annotations

import os
from pathlib import Path

from waysout.errors import UnavailableError
from waysout.fetch import Progress, download, ignore
from waysout.files import cache_dir, file_sha256, locked

NAME = "all-MiniLM-L6-v2"
NAMES = ("", NAME, f"sentence-transformers/{NAME}")
VARIABLE = "WAYSOUT_MINILM"

_PAGE = f"https://huggingface.co/sentence-transformers/{NAME}"
_REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
_FILES = {
    "onnx/model.onnx": "6fd5d72fe4589f189f8ebc006442dbb529bb7ce38f8082112682524616046452",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
_ELSEWHERE = (
    f"put {' and '.join(_FILES)} of {_PAGE} into a folder, and name it in the variable {VARIABLE}"
)


def folder() -> Path:
    """Return the folder of the model's files; download nothing, or say how to get them."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    place = _place()
    if not all((place / file).is_file() for file in _FILES):
        raise UnavailableError(
            f"the sentence encoder {NAME} is not in the cache ({place}).\nTo have it (91 MB): "
            f"waysout models pull {NAME};\nor {_ELSEWHERE}."
        )
    return place


def pull(progress: Progress = ignore) -> Path:
    """Have the model on this machine, downloading what is missing or spoilt; return its folder."""
    place = _place()
    with locked(place.with_name(f".{NAME}.lock")):
        for file, sha256 in _FILES.items():
            _have(place / file, f"{_PAGE}/resolve/{_REVISION}/{file}", sha256, progress)
    return place


def _place() -> Path:
    return cache_dir() / "models" / NAME


def _have(file: Path, url: str, sha256: str, progress: Progress) -> None:
    try:
        if file.is_file() and file_sha256(file) == sha256:
            return
        # It is downloaded beside its place, so that it can be moved there in one step.
        download(url, file.parent, sha256, progress=progress).replace(file)
    except UnavailableError as error:
        raise UnavailableError(f"{error}\nOr {_ELSEWHERE}.") from None
    except OSError as error:
        raise UnavailableError(f"cannot write {file}: {error.strerror or error}") from None
