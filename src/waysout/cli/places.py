"""Files: what a command writes must not overwrite what it reads; and how runs are named."""

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
    """Refuse files that cannot be written, or that are also read; both named by their options."""
    from waysout.errors import InputError, UnavailableError

    taken = {name: Path(place) for name, place in others.items() if place}
    for name, place in outputs.items():
        if place is None:
            continue
        folder = place.parent
        if not folder.is_dir():
            raise UnavailableError(f"cannot write {place}: there is no folder {folder}")
        if place.is_dir() or not os.access(place if place.exists() else folder, os.W_OK):
            raise UnavailableError(f"cannot write {place}: it is a folder, or not ours to write")
        for other, there in taken.items():
            both = place.exists() and there.exists()
            if place.samefile(there) if both else place.resolve() == there.resolve():
                raise InputError(f"{name} would overwrite {there}, the file of {other}")
        taken[name] = place


def run_name(path: Path) -> str:
    """Return the shortest name by which `waysout runs` finds a run."""
    return path.stem if is_ours(path) else str(path)


def is_ours(path: Path) -> bool:
    """Whether a run is in the command line's own folder; any other may come from anywhere."""
    from waysout.store import runs_dir

    return path.resolve().parent == runs_dir().resolve()


def must_confirm(path: Path, llm: str) -> bool:
    """Whether a run may be resumed only if the user names its LLM again.

    Otherwise a file from elsewhere could send our key to an address that only the file names.
    """
    return bool(llm) and llm.partition(":")[0] not in _LOCAL and not is_ours(path)


def check_confirmed(path: Path, llm: str) -> None:
    """Refuse a run that must be confirmed."""
    from waysout.errors import InputError

    if must_confirm(path, llm):
        raise InputError(
            f"{path} is outside our folder of runs, and sends rows, and your API key if you have "
            f"one, to an address that it names: to confirm that, add --llm {shlex.quote(llm)}"
        )


def resume_hint(path: Path, llm: str) -> str:
    """Say how to resume a run; ``llm`` is empty where it asks none."""
    confirmed = f" --llm {shlex.quote(llm)}" if must_confirm(path, llm) else ""
    return f"resume it with: waysout runs resume {shlex.quote(run_name(path))}{confirmed}"
