"""The audit of a batch: who has no way out, what a yes costs whom, and which levers help most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waysout.lazy import on_first_use

if TYPE_CHECKING:
    from waysout.audit.figures import Audit as Audit
    from waysout.audit.figures import audit as audit

__getattr__, __dir__, __all__ = on_first_use(__name__, {"figures": "Audit audit"}, extra="parquet")
