"""Runs on disk: every answer on file before the search is told, so that a dead process can go on.

One SQLite file per run. `Store` writes and reads it, `repair` saves what is left of a damaged one,
and the rest knows where runs lie.
"""

from __future__ import annotations

from waysout.store.folder import find_run, list_runs, new_run_path, runs_dir
from waysout.store.records import Event, Recorded, RunSummary, check_same
from waysout.store.repair import RepairCounts, RepairReport, repair
from waysout.store.store import Store

__all__ = [
    "Event",
    "Recorded",
    "RepairCounts",
    "RepairReport",
    "RunSummary",
    "Store",
    "check_same",
    "find_run",
    "list_runs",
    "new_run_path",
    "repair",
    "runs_dir",
]
