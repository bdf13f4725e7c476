"""Where the command line keeps runs, and how users name one."""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from waysout.errors import InputError, UnavailableError, WaysoutError, unknown
from waysout.files import expanded
from waysout.store.lock import WriterLock, is_locked
from waysout.store.tables import draft_path, is_run, remove

SUFFIX = ".db"
_LONGEST_LABEL = 60
# What is made of a run; a kill may leave the hidden draft of a file, and a repair's hides twice.
_MADE_OF = r"\.{{0,2}}({name})(\.repaired|\.damaged(-\d+)?)?(\.new)?(-wal|-shm|-journal|\.lock)?"
_ANY_RUN = re.compile(_MADE_OF.format(name=rf"[^.].*?{re.escape(SUFFIX)}"), re.DOTALL)


def runs_dir() -> Path:
    """Return the folder of runs: ``WAYSOUT_RUNS``, else one in the user's state folder.

    The folder need not exist yet.
    """
    named = os.environ.get("WAYSOUT_RUNS")
    if named:
        return expanded(named)
    import platformdirs

    return platformdirs.user_state_path("waysout", appauthor=False) / "runs"


def list_runs(folder: Path) -> list[Path]:
    """Return the runs in a folder, the most recently written first.

    Others may delete runs meanwhile: those are left out.
    """
    found = {run: _written(run) for run in folder.glob(f"*{SUFFIX}")}
    there = [(when, run.name, run) for run, when in found.items() if when is not None]
    return [run for *_, run in sorted(there, reverse=True)]


def _written(run: Path) -> float | None:
    """Return when a run was last written, or None where it is gone."""
    log = run.with_name(f"{run.name}-wal")  # what changes while a run is under way
    try:
        when = run.stat().st_mtime
    except OSError:
        return None
    with suppress(OSError):  # asked once: between two questions it may go
        when = max(when, log.stat().st_mtime)
    return when


def find_run(name_or_path: str) -> Path:
    """Return the run that a user means: a path, a name in `runs_dir`, or ``last``."""
    runs = runs_dir()
    if name_or_path == "last":
        if known := list_runs(runs):
            return known[0]
        raise InputError(f"there are no runs in {runs} yet")
    path = expanded(name_or_path)
    for place in (path, runs / path.name, runs / f"{path.name}{SUFFIX}"):
        # A path that leads elsewhere must not find a run of the same name.
        if _is_file(place) and (place == path or path.name == name_or_path):
            return place
    names = [run.stem for run in list_runs(runs)]
    raise InputError(f"{unknown('run', name_or_path, names)} (in {runs})")


def _is_file(place: Path) -> bool:
    try:
        return place.is_file()
    except OSError:  # the name is too long for a file, or the folder may not be searched
        return False


def runs_on_file(folder: Path) -> list[Path]:
    """Return the runs of which anything is left in a folder, be it a draft or a repair's copy.

    `delete_run` takes each of them, also where there is no such file.
    """
    found = (_ANY_RUN.fullmatch(file.name) for file in folder.glob("*"))
    return sorted(folder / name for name in {match[1] for match in found if match})


def remove_drafts(folder: Path) -> None:
    """Remove what kills have left of runs that were being made, which hold rows about people."""
    for draft in folder.glob(".*.new"):
        path = folder / draft.name.removeprefix(".").removesuffix(".new")
        # Whatever is in the way must not stop the run that is about to be made.
        with suppress(OSError, WaysoutError):
            if is_locked(path) or not _is_ours(path):
                continue
            with WriterLock.take(path):  # nobody may begin to fill it now
                remove(draft)


def delete_run(path: Path) -> list[Path]:
    """Delete a run and all that was ever made of it: copies that a repair kept hold it as well.

    Returns the files that are gone. A run that a process is writing is refused, and so is a file
    that is none; one in the folder of runs may be damaged beyond recognition. Of a run whose making
    was killed there is nothing but a draft.
    """
    if path.is_symlink():
        raise InputError(
            f"{path} is a link, and was not deleted: the run is {os.path.realpath(path)}; delete "
            "that"
        )
    if not _is_ours(path):
        raise InputError(f"{path} is not a Waysout run, and was not deleted")
    lock = WriterLock.take(path)
    try:
        made = re.compile(_MADE_OF.format(name=re.escape(path.name)))
        found = sorted(file for file in path.parent.iterdir() if made.fullmatch(file.name))
        for file in found:
            file.unlink(missing_ok=True)
    except OSError as error:
        raise UnavailableError(f"cannot delete {error.filename}: {error.strerror}") from None
    finally:
        lock.release()
    return [file for file in found if not file.exists()]


def _is_ours(path: Path) -> bool:
    """Whether a run's files are where runs are kept, under a name of theirs, or say what they are.

    Elsewhere a file of such a name may be anybody's.
    """
    if path.suffix == SUFFIX and path.absolute().parent == runs_dir().absolute():
        return True
    draft = draft_path(path)
    return is_run(draft if draft.is_file() and not path.exists() else path)


def new_run_path(label: str) -> Path:
    """Return a path for a new run, named after the time and a label.

    Nobody else has it or is given it, though many processes may ask in the same second.
    """
    words = re.sub(r"[^\w.-]+", "-", label)[:_LONGEST_LABEL].strip("-.") or "run"
    time, own = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}", secrets.token_hex(4)
    return runs_dir() / f"{time}-{own}-{words}{SUFFIX}"
