"""What a service may spend, and how much of everything it keeps."""

from __future__ import annotations

from dataclasses import dataclass, fields

from waysout.errors import InputError, shown

SETTLING_ROWS = 300
"""The rows that a page needs, at most, to make exact what it shows."""


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Hard limits of a service.

    ``calls`` and ``oracle_rows`` bound one search, all its parts together; ``part_rows`` and
    ``seconds`` bound one part, and ``settling_rows`` what is asked after it to make exact what is
    shown, of a model in this process. ``searches`` run at once; ``kept`` are remembered, and the
    oldest ended one makes room. ``body`` is in bytes; ``subscribers`` follow events, all searches
    together.

    >>> from waysout.serve import ServiceLimits
    >>> ServiceLimits(oracle_rows=300).searches
    20
    """

    calls: int = 30
    oracle_rows: int = 3000
    part_rows: int = 150
    settling_rows: int = 0
    searches: int = 20
    kept: int = 200
    body: int = 262_144
    subscribers: int = 100
    seconds: float = 600.0

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            # All searches that run at once are kept.
            least = {"calls": 0, "settling_rows": 0, "kept": self.searches}.get(limit.name, 1)
            if not value >= least:
                raise InputError(f"limits: {limit.name} is at least {least}, not {shown(value)}")
