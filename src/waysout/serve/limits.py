"""What the service puts up with, and what one search may spend."""

from __future__ import annotations

from dataclasses import dataclass, fields

from waysout.errors import InputError, shown


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Hard limits of a service.

    ``calls`` and ``oracle_rows`` bound one search, all its parts together; ``part_rows`` and
    ``seconds`` bound one part. ``searches`` run at once; ``kept`` are remembered, and the oldest
    ended one makes room. ``body`` is in bytes; ``subscribers`` follow events, all searches
    together.
    """

    calls: int = 30
    oracle_rows: int = 1000
    part_rows: int = 150
    searches: int = 20
    kept: int = 200
    body: int = 262_144
    subscribers: int = 100
    seconds: float = 600.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value, least = getattr(self, field.name), 0 if field.name == "calls" else 1
            kinds = (int, float) if field.name == "seconds" else (int,)
            if isinstance(value, bool) or not isinstance(value, kinds) or not value >= least:
                what = "number" if field.name == "seconds" else "whole number"
                raise InputError(
                    f"limits: {field.name} is a {what} of at least {least}, not {shown(value)}"
                )
        if self.kept < self.searches:
            raise InputError(
                f"limits: {self.searches} searches may run at once, so at least as many are kept, "
                f"not {self.kept}"
            )
