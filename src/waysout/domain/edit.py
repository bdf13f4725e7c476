"""An edit: one feature set to one new value."""

from __future__ import annotations

from dataclasses import dataclass

from waysout.domain.schema import Value


@dataclass(frozen=True, slots=True)
class Edit:
    """One feature set to one new value, and why its proposer thought so (text, never obeyed)."""

    feature: str
    value: Value
    reason: str = ""
