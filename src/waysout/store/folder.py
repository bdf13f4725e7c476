"""Where the command line keeps runs, and how users name one."""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path

from waysout.errors import InputError, unknown

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


def new_run_path(label: str) -> Path:
    """Return an unused path for a new run, named after the time and a label."""
    words = re.sub(r"[^\w.-]+", "-", label)[:_LONGEST_LABEL].strip("-.") or "run"
    stem = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{words}"
    number, path = 1, runs_dir() / f"{stem}{SUFFIX}"
    while path.exists():
        number += 1
        path = path.with_name(f"{stem}-{number}{SUFFIX}")
    return path
