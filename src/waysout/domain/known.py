"""Rows whose outcome is known: what a search may learn from and be compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from waysout.domain.schema import Row


class Known(Protocol):
    """Rows and, for each, whether its outcome was a yes. A `Dataset` is one."""

    @property
    def rows(self) -> Sequence[Row]:
        """The rows."""
        ...

    @property
    def labels(self) -> Sequence[bool]:
        """Which of them were approved."""
        ...
