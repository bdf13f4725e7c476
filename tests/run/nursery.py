"""Starts runs and kills them: ``nursery.py FOLDER KILLS``, one file for each kill and method."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from run_world import PEOPLE, Watched, problem

import waysout
from waysout.search.base import Method
from waysout.search.comp_mcts import CompMCTS

METHODS: dict[str, Method] = {
    "one-by-one": CompMCTS(),
    "three-in-flight": CompMCTS(in_flight=3, reward="1,1,1,0"),
}
CALLS = 6
ROWS = PEOPLE[:3]


class Mortal(Watched):
    """A slow LLM that ends the whole process as it is asked for the ``last`` time."""

    def __init__(self, last: int | None) -> None:
        super().__init__(self.wait)
        self.last = last

    async def wait(self, request: Any, attempt: int) -> None:
        if self.requests == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(0.004)


def options(method: str, path: Path) -> dict[str, Any]:
    most = {"calls": CALLS, "k": 3, "oracle_rows": 18}
    return {"method": METHODS[method], "run": path, "in_flight": 2, **most}


def begin(method: str, path: Path, last: int | None) -> NoReturn:
    try:
        list(waysout.find_many(problem(), ROWS, llm=Mortal(last), **options(method, path)))
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def sitting(
    method: str, path: Path, longest: float | None = None, last: int | None = None
) -> float:
    """Let a run go on, at most so long or up to its ``last`` request; return how long it took."""
    start = time.monotonic()
    child = os.fork() or begin(method, path, last)
    if longest is not None:
        time.sleep(longest)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), status
    return time.monotonic() - start


def moments(i: int) -> list[int]:
    """Return the requests at which a run is killed; none where it is killed anywhere."""
    # Midway for certain: of seven requests at most six are in flight, so one is on file. Some runs
    # are killed again after they went on.
    return [7 + i // 2, 3][: 2 if i % 4 == 3 else 1] if i % 2 else []


def main(folder: Path, kills: int) -> None:
    # Whatever is loaded on first use is loaded now, so that kills meet the run itself.
    first = options("one-by-one", folder / "warm.db")
    list(waysout.find_many(problem(), ROWS, llm=Watched(), **first))
    for method, i in itertools.product(METHODS, range(kills)):
        path = folder / f"{method}-{i}.db"
        for last in moments(i):
            sitting(method, path, last=last)
        if not moments(i):
            # Anywhere. Timed anew for each: how long a run takes depends on what else goes on.
            moment = sitting(method, folder / f"{method}-{i}-timed.db") * (i + 0.2) / kills
            sitting(method, path, moment)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
