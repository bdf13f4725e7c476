"""Small files of a batch that are taken at their word: JSON with a digest of what it says.

A flipped bit often leaves JSON that can be read and says something else: another size of parts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from waysout.domain.result import plain
from waysout.errors import IntegrityError, UnavailableError
from waysout.files import sha256

SEAL = "sha256"


def sealed(table: Mapping[str, Any]) -> bytes:
    """Return a table as JSON, with the digest of the rest as its last entry."""
    told = plain(table)
    return json.dumps({**told, SEAL: _digest(told)}, ensure_ascii=False, indent=2).encode()


def read_sealed(path: Path, remedy: str, *, earlier: bool = True) -> dict[str, Any]:
    """Return what `sealed` wrote to a file, which must exist; raise `IntegrityError` otherwise.

    With ``earlier``, a table without a digest is of an earlier release, and taken as it is.
    """
    try:
        found = json.loads(path.read_bytes().decode())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnavailableError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{path} is damaged ({error}): {remedy}") from None
    if not isinstance(found, dict):
        raise IntegrityError(f"{path} is damaged (it holds no table): {remedy}")
    seal = found.pop(SEAL, None)
    if seal != _digest(found) and not (earlier and seal is None):
        raise IntegrityError(f"{path} is damaged (it says other than was written): {remedy}")
    return found


def _digest(table: Mapping[str, Any]) -> str:
    return sha256(json.dumps(table, sort_keys=True).encode())
