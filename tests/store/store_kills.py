"""Kills writers at their most delicate: ``store_kills.py FOLDER KILLS``, a file for each kill."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from store_samples import MANIFEST

from waysout.store import Store, add_event

LONGEST = 0.012  # seconds: some openings and closings, or about one beginning


def begin(path: Path) -> None:
    Store.create(path, MANIFEST).close()


def open_and_close(path: Path) -> None:
    while True:
        with Store.open(path) as store:
            store.event("hello", {})


def file_events(path: Path) -> None:
    while True:
        add_event(path, "pins", {"rows": [[1] * 2000]})  # more than a page


def killed(work: Callable[[Path], None], path: Path, seconds: float) -> None:
    child = os.fork()
    if child == 0:
        work(path)
        os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), status


def main(folder: Path, kills: int) -> None:
    for i in range(kills):
        killed(begin, folder / f"begun-{i}.db", LONGEST * i / kills)
        begin(folder / f"opened-{i}.db")
        killed(open_and_close, folder / f"opened-{i}.db", LONGEST * (1 + i / kills))
        begin(folder / f"filed-{i}.db")
        killed(file_events, folder / f"filed-{i}.db", LONGEST * (1 + i / kills))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
