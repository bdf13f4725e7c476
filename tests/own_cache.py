"""The cache of the tests: a plugin, because fixtures of conftest.py do not reach docstrings."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the tests out of the user's cache, and the user's cache out of the tests.

    All workers share one: the model of the demo takes seconds to train, for each of them anew.
    """
    before, folder = os.environ.get("WAYSOUT_CACHE"), tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    cache = folder / "cache"
    cache.mkdir(exist_ok=True)
    os.environ["WAYSOUT_CACHE"] = str(cache)
    yield
    os.environ.pop("WAYSOUT_CACHE")
    if before is not None:
        os.environ["WAYSOUT_CACHE"] = before
