"""Small files of a batch that are taken at their word: JSON with a digest of what it says.

A flipped bit often leaves JSON that can be read and says something else: another size of parts.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from waysout.domain.result import plain
from waysout.errors import IntegrityError, UnavailableError
from waysout.files import sha256
from waysout.json_text import read_json

SEAL = "sha256"


def sealed(table: Mapping[str, Any]) -> bytes:
    """Return a table as JSON, with the digest of the rest as its last entry."""
    told = plain(table)
    return json.dumps({**told, SEAL: _digest(told)}, ensure_ascii=False, indent=2).encode()


def read_sealed(path: Path, remedy: str, *, since: str = "") -> dict[str, Any]:
    """Return what `sealed` wrote to a file, which must exist; raise `IntegrityError` otherwise.

    A table without a digest is of an earlier release, and taken as it is, unless it has the entry
    ``since``, which tables had no earlier than that.
    """
    try:
        found = read_json(read_whole(path, remedy).decode())
    except (ValueError, RecursionError) as error:
        raise damaged(path, error, remedy) from None
    if not isinstance(found, dict):
        raise damaged(path, "it holds no table", remedy)
    seal = found.pop(SEAL, None)
    if seal != _digest(found) and (seal is not None or since in found):
        raise damaged(path, "it says other than was written", remedy)
    return found


def read_whole(path: Path, remedy: str) -> bytes:
    """Return the bytes of a file of a batch, which must exist.

    What is no file is not opened: one who opens a pipe waits until somebody writes to it.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise damaged(path, "it is no file", remedy)
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnavailableError(f"cannot read {path}: {error.strerror or error}") from None


def damaged(path: Path, why: object, remedy: str) -> IntegrityError:
    """Return the error about a file that is not what was written."""
    return IntegrityError(f"{path} is damaged ({why}): {remedy}")


def _digest(table: Mapping[str, Any]) -> str:
    return sha256(json.dumps(table, sort_keys=True).encode())
