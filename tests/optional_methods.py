"""Methods that need a package which not everybody has."""

from __future__ import annotations

import pytest

from waysout.errors import MissingExtra
from waysout.methods import make_method
from waysout.search.base import Method


def ready(name: str) -> Method:
    """Return a method that can run here, or skip with what it needs."""
    made = make_method(name)
    try:
        made.prepare()
    except MissingExtra as error:
        pytest.skip(str(error))
    return made
