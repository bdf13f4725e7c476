"""Methods that need a package which not everybody has."""

from __future__ import annotations

import pytest

from waysout.errors import MissingExtra
from waysout.methods import all_methods, make_method
from waysout.search.base import Method

# Those that learn first take seconds; their own tests in ``bench/methods`` are quick.
_LEARNED = ("cchvae", "tabular-diffusion")
EACH_METHOD = [
    pytest.param(name, marks=pytest.mark.slow if name in _LEARNED else ()) for name in all_methods()
]


def ready(name: str) -> Method:
    """Return a method that can run here, or skip with what it needs."""
    made = make_method(name)
    try:
        made.prepare()
    except MissingExtra as error:
        pytest.skip(str(error))
    return made
