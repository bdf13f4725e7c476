"""Files: what a command writes must not overwrite what it reads; and how runs are named."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from waysout.run.source import Trust

# Schemes of LLMs that send nothing to an address.
_LOCAL = ("llamacpp", "replay", "scripted", "simulated")
# Where things are, unless they are where they always are: a command works only with these.
_FOLDERS = ("WAYSOUT_RUNS", "WAYSOUT_DATA", "WAYSOUT_CACHE")

_Place = TypeVar("_Place", Path, Path | None)


def whole(place: _Place) -> _Place:
    """Return a path that stays what it is when a model changes the folder; ``-`` is no path."""
    if place is None or str(place) == "-":
        return place
    try:
        return place.absolute()
    except FileNotFoundError:  # this folder is gone; what is in others can still be named
        return place


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


def resume_hint(path: Path, llm: str, trusted: Sequence[str] = ()) -> str:
    """Say how to resume a run; ``llm`` is empty where it asks none.

    ``trusted`` are the options by which the user vouched for the run's files.
    """
    confirmed = ["--llm", llm] if must_confirm(path, llm) else []
    return f"resume it with: {command('runs', 'resume', run_argument(path), *confirmed, *trusted)}"


def run_argument(path: Path) -> str:
    """Return what names a run on a command line, from whatever folder that is typed in."""
    name = run_name(path)
    plain = is_ours(path) and name != "last" and not name.startswith("-")
    return name if plain and not Path(name).exists() else str(path.resolve())


def trust_options(trust: Trust) -> list[str]:
    """Return the options that say what the user vouches for."""
    types = [word for name in trust.types for word in ("--trust-types", name)]
    pickle, code = ["--trust-pickle"] * trust.pickle, ["--trust-code"] * trust.code
    return [*pickle, *types, *code]


def command(*words: str) -> str:
    """Return a command of ours as it can be typed: with its folders, its program and quotes."""
    set_ = {name: os.environ[name] for name in _FOLDERS if os.environ.get(name)}
    folders = {name: str(Path(place).expanduser().resolve()) for name, place in set_.items()}
    # Other shells have no such way to set a variable for one command.
    before = (
        ""
        if os.name == "nt"
        else "".join(f"{name}={shlex.quote(place)} " for name, place in folders.items())
    )
    return before + shlex.join([*_program(), *words])


def _program() -> list[str]:
    """Return how this program was started, if `waysout` alone would not start it."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return [sys.executable, "-m", "waysout"]
    found = shutil.which("waysout")
    if started.name == "waysout" and started.is_file():
        same = found is not None and started.samefile(found)
        return ["waysout" if same else str(started.absolute())]
    return ["waysout"]
