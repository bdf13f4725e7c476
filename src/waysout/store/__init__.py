"""Runs on disk: every answer is on file before the search is told, so a dead process can resume.

One SQLite file per run. `Store` writes and reads it, `waysout.store.repair` saves what is left of a
damaged one, and `waysout.store.folder` knows where runs are kept.
"""

from __future__ import annotations

from waysout.store.folder import (
    delete_run,
    find_run,
    list_runs,
    new_run_path,
    runs_dir,
    runs_on_file,
)
from waysout.store.records import Event, Recorded, RunSummary, check_same
from waysout.store.store import Store, add_event

__all__ = [
    "Event",
    "Recorded",
    "RunSummary",
    "Store",
    "add_event",
    "check_same",
    "delete_run",
    "find_run",
    "list_runs",
    "new_run_path",
    "runs_dir",
    "runs_on_file",
]
