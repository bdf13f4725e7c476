"""What a batch's folder says of the batch, so that it is only ever gone on with, never mixed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from waysout.domain.result import plain
from waysout.errors import InputError, IntegrityError
from waysout.files import write_atomically
from waysout.run.plan import differences

MANIFEST = "_manifest.json"
VERSION = 1
# What may differ when a batch is gone on with: how far it goes, and who says so.
_FREE = ("version", "limit", "about")


def read_manifest(out: Path) -> dict[str, Any] | None:
    """Return what is on file of a batch, or None where there is none."""
    path = out / MANIFEST
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise IntegrityError(f"{path} cannot be read ({error}): is the folder a batch's?") from None
    if not isinstance(found, dict) or found.get("waysout_batch") != VERSION:
        raise InputError(f"{path} is of no batch that this release knows")
    return found


def begin(out: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Begin a batch in a folder, or go on with the one that is there; returns what is on file.

    ``part_rows`` is as it was when the batch began.
    """
    wanted = plain({"waysout_batch": VERSION, **manifest})
    found = read_manifest(out)
    if found is None:
        _check_empty(out)
        found = wanted
    changed = differences(_compared(found), _compared({**wanted, "part_rows": found["part_rows"]}))
    if changed:
        raise InputError(
            f"{out} holds another batch ({'; '.join(changed[:5])}): give the same settings to go "
            "on with it, or another folder"
        )
    now: dict[str, Any] = {**found, **{name: wanted.get(name) for name in _FREE}}
    write_atomically(out / MANIFEST, json.dumps(now, ensure_ascii=False, indent=2).encode())
    return now


def _compared(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in manifest.items() if name not in _FREE}


def _check_empty(out: Path) -> None:
    there = sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
    # The lock, and what is left of a beginning that was killed.
    if there := [name for name in there if not name.startswith(("_batch", MANIFEST))]:
        raise InputError(
            f"{out} is not empty ({', '.join(there[:3])}), and holds no batch: give a new folder"
        )
