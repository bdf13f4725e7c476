"""Who does the work: processes of this machine, or actors of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from waysout.batch.job import BatchTally, PartReport, PartTask


class Executor(Protocol):
    """Takes parts and hands back what became of them; used by one thread alone.

    A worker that dies is replaced, and its parts come back as lost: whoever handed them in decides
    what to do with them.
    """

    @property
    def room(self) -> int:
        """How many more parts may be handed in now, so that nobody waits for work."""
        ...

    def submit(self, task: PartTask) -> None:
        """Hand a part in."""
        ...

    def wait(self, seconds: float) -> Sequence[PartReport]:
        """Return what has ended, waiting for it so long at most."""
        ...

    def tally(self) -> BatchTally:
        """Return what is known by now of the people in parts under way; it may be a little old."""
        ...

    def stop(self, reason: str) -> None:
        """End every search with what it has; the parts under way still come back."""
        ...

    def close(self) -> None:
        """Let all workers go. Whatever is under way is in its store."""
        ...
