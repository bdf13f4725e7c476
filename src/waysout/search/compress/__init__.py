"""Compressors, and what one more key adds to a compressed history of keys.

`COMPRESSORS` is the one table of compressors, `compressor` looks one up; `History` measures the
gain ΔC that compression-guided pruning decides by. The package loads only when a search prunes.

The paper states no encoding for `rlbwt` and `repair`: those here are our own, chosen with the order
of the paper's pruning rates on Loan in sight, so that this order is no independent finding.
"""

from __future__ import annotations

from collections.abc import Mapping

from waysout.errors import InputError, unknown
from waysout.search.compress.base import Compressor, History
from waysout.search.compress.gzip import Gzip
from waysout.search.compress.repair import RePair
from waysout.search.compress.rlbwt import RLBWT

COMPRESSORS: Mapping[str, Compressor] = {c.name: c for c in (Gzip(), RLBWT(), RePair())}


def compressor(name: str) -> Compressor:
    """Return a compressor by its name; an unknown name lists the known ones."""
    if name not in COMPRESSORS:
        raise InputError(unknown("compressor", name, COMPRESSORS))
    return COMPRESSORS[name]


__all__ = ["COMPRESSORS", "Compressor", "History", "compressor"]
