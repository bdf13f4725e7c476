"""Where the command line keeps runs, and how users name one."""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path

from waysout.errors import InputError, UnavailableError, unknown
from waysout.store.lock import WriterLock

SUFFIX = ".db"
_LONGEST_LABEL = 60


def runs_dir() -> Path:
    """Return the folder of runs: ``WAYSOUT_RUNS``, else one in the user's state folder.

    The folder need not exist yet.
    """
    named = os.environ.get("WAYSOUT_RUNS")
    if named:
        return Path(named).expanduser()
    import platformdirs

    return platformdirs.user_state_path("waysout", appauthor=False) / "runs"


def list_runs(folder: Path) -> list[Path]:
    """Return the runs in a folder, the most recently written first."""

    def written(run: Path) -> tuple[float, str]:
        log = run.with_name(f"{run.name}-wal")  # what changes while a run is under way
        return max(file.stat().st_mtime for file in (run, log) if file.exists()), run.name

    return sorted(folder.glob(f"*{SUFFIX}"), key=written, reverse=True)


def find_run(name_or_path: str) -> Path:
    """Return the run that a user means: a path, a name in `runs_dir`, or ``last``."""
    runs = runs_dir()
    known = list_runs(runs)
    if name_or_path == "last":
        if not known:
            raise InputError(f"there are no runs in {runs} yet")
        return known[0]
    path = Path(name_or_path).expanduser()
    for place in (path, runs / path.name, runs / f"{path.name}{SUFFIX}"):
        # A path that leads elsewhere must not find a run of the same name.
        if place.is_file() and (place == path or path.name == name_or_path):
            return place
    raise InputError(f"{unknown('run', name_or_path, [run.stem for run in known])} (in {runs})")


def delete_run(path: Path) -> list[Path]:
    """Delete a run and all that was ever made of it: copies that a repair kept hold it as well.

    Returns the files that are gone. A run that a process is writing is refused.
    """
    lock = WriterLock.take(path)
    try:
        copies, beside = r"(\.(new|repaired|damaged(-\d+)?))?", r"(-wal|-shm|-journal|\.lock)?"
        made = rf"\.?{re.escape(path.name)}{copies}{beside}"
        found = sorted(file for file in path.parent.iterdir() if re.fullmatch(made, file.name))
        for file in found:
            file.unlink(missing_ok=True)
    except OSError as error:
        raise UnavailableError(f"cannot delete {error.filename}: {error.strerror}") from None
    finally:
        lock.release()
    return [file for file in found if not file.exists()]


def new_run_path(label: str) -> Path:
    """Return an unused path for a new run, named after the time and a label."""
    words = re.sub(r"[^\w.-]+", "-", label)[:_LONGEST_LABEL].strip("-.") or "run"
    stem = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{words}"
    number, path = 1, runs_dir() / f"{stem}{SUFFIX}"
    while path.exists():
        number += 1
        path = path.with_name(f"{stem}-{number}{SUFFIX}")
    return path
