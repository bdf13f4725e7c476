"""How far a plan's searches have come, on stderr, and how a signal stops them."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from waysout.cli.output import progress_bar, say
from waysout.cli.signals import Signals

if TYPE_CHECKING:
    from waysout.bench.progress import Outcome, PlanProgress, Watch
    from waysout.bench.tasks import Queue, Task

# Where nobody watches, a line so often.
LINE_SECONDS = 30.0


@dataclass
class PlanSignals(Signals):
    """Stops all searches at a signal, and says how to go on."""

    def __post_init__(self) -> None:
        from waysout.bench.progress import StopAll

        self.stop = self.stop_all = StopAll()

    def _where(self) -> list[str]:
        return [go_on()]


def go_on() -> str:
    """Say how to go on with what was cut short."""
    return f"what is done is kept; go on with: {shlex.join(['waysout', *sys.argv[1:]])}"


@contextmanager
def watched(json: bool) -> Iterator[tuple[Watch, PlanSignals]]:
    """Show how far the searches have come, and stop them at a signal."""
    from waysout.bench.progress import PlanProgress, Watch
    from waysout.bench.results import Failure

    with PlanSignals(json) as signals, progress_bar(json) as bars:
        bar = bars.add_task("starting", total=None)

        class Shown(Watch):
            def begins(self, queue: Queue) -> None:
                self.pace, self.failed, self.said = PlanProgress(queue), 0, time.monotonic()
                bars.reset(bar, total=self.pace.total, description=_words(self.pace, 0))

            def searched(self, task: Task, outcome: Outcome) -> None:
                self.pace.add(task)
                self.failed += isinstance(outcome, Failure)
                words = _words(self.pace, self.failed)
                bars.update(bar, completed=self.pace.done, description=words)
                if bars.disable and self._is_time():
                    say(f"{words}{_left(self.pace)}")

            def _is_time(self) -> bool:
                now = time.monotonic()
                over = self.pace.searched == self.pace.searches
                if not over and now - self.said < LINE_SECONDS:
                    return False
                self.said = now
                return True

            def prepares(self, what: str, share: float = 0.0) -> None:
                bars.update(bar, description=what)
                if share >= 1.0:
                    say(what)

        yield Shown(), signals


def _words(pace: PlanProgress, failed: int) -> str:
    bad = f", {failed:,} failed" if failed else ""
    return f"{pace.searched:,} of {pace.searches:,} searches{bad}"


def _left(pace: PlanProgress) -> str:
    from waysout.report.words import duration

    seconds = pace.seconds_left
    return f", {duration(seconds)} left" if seconds else ""
