"""The audit of a batch: who has no way out, what a yes costs whom, and which levers help most."""

from __future__ import annotations

from waysout.audit.figures import Audit, audit

__all__ = ["Audit", "audit"]
