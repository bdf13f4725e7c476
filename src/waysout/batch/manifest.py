"""The manifest of a batch's folder: only the same batch may resume in it, none is ever mixed."""

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
# What may differ when a batch is resumed.
_FREE = ("version", "limit", "about")


def read_manifest(out: Path) -> dict[str, Any] | None:
    """Return the manifest of a batch's folder, or None if there is none."""
    path = out / MANIFEST
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise IntegrityError(f"{path} cannot be read ({error}): is the folder a batch's?") from None
    if not isinstance(found, dict) or found.get("waysout_batch") != VERSION:
        raise InputError(f"{path} is not of a batch that this release can read")
    return found


def begin(out: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Start a batch in a folder, or resume the one in it; return its manifest.

    ``part_rows`` stays as it was when the batch was started.
    """
    wanted = plain({"waysout_batch": VERSION, **manifest})
    found = read_manifest(out)
    if found is None:
        names = sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
        # The lock, and what a kill has left of a manifest, are ours.
        if others := [name for name in names if not name.startswith(("_batch", MANIFEST))]:
            raise InputError(
                f"{out} is not empty ({', '.join(others[:3])}), and holds no batch: give a new "
                "folder"
            )
        found = wanted
    free = {name: wanted.get(name) for name in _FREE}
    changed = differences({**found, **free}, {**wanted, "part_rows": found["part_rows"]})
    if changed:
        raise InputError(
            f"{out} holds another batch ({'; '.join(changed[:5])}): give the same settings to "
            "resume it, or another folder"
        )
    now: dict[str, Any] = {**found, **free}
    write_atomically(out / MANIFEST, json.dumps(now, ensure_ascii=False, indent=2).encode())
    return now
