"""Where files lie: what a command writes is nothing that it reads; and how runs are named."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

# Schemes of LLMs that send nothing to an address.
_LOCAL = ("llamacpp", "replay", "simulated")


def check_places(
    outputs: Mapping[str, Path | None], others: Mapping[str, str | Path | None]
) -> None:
    """Refuse files that cannot be written, or are needed for something else.

    Both are named by their options, so that what is wrong can be said.
    """
    from waysout.errors import InputError

    taken = {name: Path(place) for name, place in others.items() if place}
    for name, place in outputs.items():
        if place is None:
            continue
        _check_writable(place)
        for other, there in taken.items():
            if _is_same(place, there):
                raise InputError(f"{name} would overwrite {there}, the file of {other}")
        taken[name] = place


def _check_writable(place: Path) -> None:
    from waysout.errors import UnavailableError

    folder = place.parent
    if not folder.is_dir():
        raise UnavailableError(f"cannot write {place}: there is no folder {folder}")
    if place.is_dir() or not os.access(place if place.exists() else folder, os.W_OK):
        raise UnavailableError(f"cannot write {place}: it is a folder, or not ours to write")


def _is_same(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.samefile(other)
    return one.resolve() == other.resolve()


def run_name(path: Path) -> str:
    """Return the shortest name that `waysout runs` finds a run by."""
    return path.stem if is_ours(path) else str(path)


def is_ours(path: Path) -> bool:
    """Whether a run lies where the command line keeps its own; any other may come from anybody."""
    from waysout.store import runs_dir

    return path.resolve().parent == runs_dir().resolve()


def must_confirm(path: Path, llm: str) -> bool:
    """Whether a run may be resumed only by who names its LLM again.

    Else a file from somebody else could have a key of ours sent to an address that only it names.
    """
    return bool(llm) and llm.partition(":")[0] not in _LOCAL and not is_ours(path)


def resume_hint(path: Path, llm: str) -> str:
    """Say how to go on with a run; ``llm`` is empty where it asks none."""
    confirmed = f" --llm {shlex.quote(llm)}" if must_confirm(path, llm) else ""
    return f"go on with: waysout runs resume {shlex.quote(run_name(path))}{confirmed}"
