"""Searches without I/O: `ask` hands out work, `tell` takes in the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waysout.lazy import on_first_use

if TYPE_CHECKING:
    from waysout.search.base import Case as Case
    from waysout.search.base import Search as Search
    from waysout.search.base import least as least
    from waysout.search.base import within as within
    from waysout.search.batches import BatchSearch as BatchSearch
    from waysout.search.batches import Candidate as Candidate

__getattr__, __dir__, __all__ = on_first_use(
    __name__, {"base": "Case Search least within", "batches": "BatchSearch Candidate"}
)
