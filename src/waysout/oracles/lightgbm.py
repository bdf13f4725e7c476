"""Importing LightGBM, also where the system has no OpenMP runtime.

LightGBM's Linux wheel expects the system's ``libgomp.so.1``, which slim container images leave out,
while scikit-learn's wheel brings the same library under a name of its own. Lending LightGBM that
copy keeps "a machine with Python and nothing else" a machine on which everything runs.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

from waysout.errors import MissingExtra, UnavailableError

_WANTED = b"libgomp.so.1"


def import_lightgbm(extra: str = "lightgbm") -> Any:
    """Return the module, or say which extra to install."""
    try:
        return importlib.import_module("lightgbm")
    except ImportError:
        raise MissingExtra("lightgbm", extra) from None
    except OSError as error:
        if not _lend_openmp():
            raise UnavailableError(
                f"LightGBM does not load: {error}. It needs the system's OpenMP runtime "
                "(Debian, Ubuntu: apt-get install libgomp1; macOS: brew install libomp)"
            ) from None
    return importlib.import_module("lightgbm")


def _lend_openmp() -> bool:
    """Load scikit-learn's copy of the OpenMP runtime under the name that LightGBM asks for."""
    spec = importlib.util.find_spec("sklearn")
    if not sys.platform.startswith("linux") or spec is None or spec.origin is None:
        return False
    folder = Path(spec.origin).parent.parent / "scikit_learn.libs"
    for library in folder.glob("libgomp-*.so*"):
        # The loader knows a library by the name inside it, so that is what has to be changed.
        own = library.name.encode() + b"\0"
        renamed = library.read_bytes().replace(own, _WANTED.ljust(len(own), b"\0"))
        with tempfile.TemporaryDirectory() as place:
            copy = Path(place) / _WANTED.decode()
            copy.write_bytes(renamed)
            try:
                ctypes.CDLL(str(copy), mode=ctypes.RTLD_GLOBAL)
            except OSError:
                continue
        return True
    return False
