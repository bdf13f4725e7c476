"""Where the command line keeps runs, and how users name one."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from waysout.errors import InputError, UnavailableError, unknown
from waysout.files import expanded
from waysout.store.lock import WriterLock
from waysout.store.tables import is_run

SUFFIX = ".db"
_LONGEST_LABEL = 60


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


def delete_run(path: Path) -> list[Path]:
    """Delete a run and all that was ever made of it: copies that a repair kept hold it as well.

    Returns the files that are gone. A run that a process is writing is refused, and so is a file
    that is none; one in the folder of runs may be damaged beyond recognition.
    """
    if not _is_kept(path) and not is_run(path):
        raise InputError(f"{path} is not a Waysout run, and was not deleted")
    lock = WriterLock.take(path)
    try:
        # A kill may have left the hidden draft of a file, and that of a repair hides twice.
        copies, beside = r"(\.repaired|\.damaged(-\d+)?)?(\.new)?", r"(-wal|-shm|-journal|\.lock)?"
        made = rf"\.{{0,2}}{re.escape(path.name)}{copies}{beside}"
        found = sorted(file for file in path.parent.iterdir() if re.fullmatch(made, file.name))
        for file in found:
            file.unlink(missing_ok=True)
    except OSError as error:
        raise UnavailableError(f"cannot delete {error.filename}: {error.strerror}") from None
    finally:
        lock.release()
    return [file for file in found if not file.exists()]


def _is_kept(path: Path) -> bool:
    """Whether a file is where runs are kept, under a name of theirs."""
    return path.suffix == SUFFIX and path.absolute().parent == runs_dir().absolute()


def new_run_path(label: str) -> Path:
    """Return an unused path for a new run, named after the time and a label."""
    words = re.sub(r"[^\w.-]+", "-", label)[:_LONGEST_LABEL].strip("-.") or "run"
    stem = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{words}"
    number, path = 1, runs_dir() / f"{stem}{SUFFIX}"
    while path.exists():
        number += 1
        path = path.with_name(f"{stem}-{number}{SUFFIX}")
    return path
