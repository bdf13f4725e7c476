"""A model file is tried in a process of its own before it is read in ours.

Model files are untrusted, and the libraries that read them are native code which believes what a
file says: a child that is not there, a circle among the nodes or a size of 2^31 ends the process,
or hangs it, or takes all of its memory, when the file is read or at the first row that gets there.
So another process, with little memory and time, does three things first:

1. it reads the file as we would;
2. it follows every index of the trees (``check_model`` in the module of each kind that lets us look
   at what the library made of the file, so that nothing hangs on both reading it alike; `catboost`
   looks at the file), because rows on trial need not reach a damaged node, and others would;
3. it asks for rows with extreme, missing and ordinary values (``try_rows``).

Only if that process ends well is the file read here. An ONNX graph and an estimator of
scikit-learn are programs: what they do with rows that were not tried is not known.

A file that ended well is remembered by its digest, in this process and in the cache, so that
neither the workers of a batch nor the next command try it again.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.errors import OracleError
from waysout.files import cache_dir, file_sha256, sha256

SECONDS, SECONDS_A_MB = 60, 1
"""How long the trial may take: far more than reading takes on a busy machine."""
MEMORY, MEMORY_A_BYTE = 4 * 1024**3, 16
"""What the trial may take of the address space: four gigabytes and many times the file."""

VERSION = 2
"""Of what is tried: a file that an earlier one found sound is tried again."""

# Packages that the libraries import for what the trial does not do; without them it starts in half
# a second instead of two.
_NEEDLESS = ("torch", "matplotlib", "graphviz", "plotly", "dask", "pyarrow")
_TABLES = ("pandas", "sklearn")
_NEED_TABLES = (".cbm", ".skops")
_START = (
    "import json, sys; given = json.load(sys.stdin); sys.path[:] = given.pop('path'); "
    "from waysout.oracles.file_trial import main; main(**given)"
)
# What native code says where memory ran out, in its own words from end to end: names that the file
# holds are quoted before them, and one of them may well be "allocation".
_NO_MEMORY = re.compile(
    r"std::bad_alloc"  # XGBoost, LightGBM and CatBoost pass on what C++ says
    r"|\[ONNXRuntimeError\] : \d+ : (FAIL|RUNTIME_EXCEPTION) : .*"
    r"(std::bad_alloc|Failed to allocate memory for requested buffer of size \d+)",
    re.DOTALL,
)
_sound: set[str] = set()


def try_file(file: Path, suffix: str, library: Any, trusted: Collection[str] = ()) -> None:
    """Raise unless the file can be read and asked without harm; ``library`` is what reads it.

    Types of the running script cannot be had in another process; whoever trusts a file with them
    has it read untried.
    """
    if any(name.startswith("__main__.") for name in trusted):
        return
    size = file.stat().st_size
    known = _key(file, suffix, library, trusted)
    mark = cache_dir() / "models-tried" / known
    if known in _sound or mark.exists():
        return
    _run(file, suffix, trusted, size)
    if not _has_other_files(file, suffix):
        _sound.add(known)
        with contextlib.suppress(OSError):  # a cache that cannot be written costs time alone
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()


def _key(file: Path, suffix: str, library: Any, trusted: Collection[str]) -> str:
    about = [VERSION, suffix, library.__name__, str(getattr(library, "__version__", ""))]
    return sha256(json.dumps([*about, sorted(trusted), file_sha256(file)]).encode())


def _has_other_files(file: Path, suffix: str) -> bool:
    """Whether an ONNX file may keep weights in files beside it, which its digest does not cover."""
    return suffix == ".onnx" and b"location" in file.read_bytes()


def _run(file: Path, suffix: str, trusted: Collection[str], size: int) -> None:
    memory, limit = MEMORY + MEMORY_A_BYTE * size, SECONDS + SECONDS_A_MB * (size >> 20)
    given = {
        "path": sys.path, "file": str(file), "suffix": suffix, "trusted": sorted(trusted),
        "memory": memory,
    }  # fmt: skip
    # Threads of their own would each reserve memory, and gain nothing on a few rows.
    few = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX"), "1")
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _START],
            input=json.dumps(given).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **few},
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _harm(f"took more than {limit} s and was stopped") from None
    except OSError as error:
        raise OracleError(
            f"the process in which model files are tried could not be started: {error}"
        ) from error
    if done.returncode:
        raise _harm(f"was ended by it ({_ending(done.returncode)})")
    reason = done.stdout.decode("utf-8", "replace")
    if reason == "memory":
        raise _harm(f"wanted more memory than the {memory / 1024**3:.1f} GB that it may have")
    if reason:
        raise OracleError(reason)


def _harm(what: str) -> OracleError:
    return OracleError(
        f"the process that read it on trial, and asked it for a few rows, {what}. The file is "
        "damaged, or made to do harm, and was not read here: save the model again. One that "
        "needs more can be read by a function of your own (module:function)"
    )


def _ending(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"exit code {code}"


def main(file: str, suffix: str, trusted: list[str], memory: int) -> None:
    """Try a file, in the process that was started for that; say on standard output what is wrong.

    What only a row on trial raises is said by nobody: it may be no row that the model expects.
    """
    out = os.dup(1)
    os.dup2(2, 1)  # what the libraries print is no answer
    _limit_memory(memory)
    if not trusted:  # the modules of trusted types may import anything
        tables = () if suffix in _NEED_TABLES else _TABLES
        sys.meta_path.insert(0, _Without((*_NEEDLESS, *tables)))
    load = importlib.import_module("waysout.oracles.load")
    try:
        model = load.read_file(Path(file), suffix, frozenset(trusted))
        kind = importlib.import_module(f"waysout.oracles.{load.READERS[suffix]}")
        if hasattr(kind, "check_model"):
            kind.check_model(model)
    except Exception as error:
        if _is_memory(error):
            os.write(out, b"memory")
        else:
            os.write(out, load.reason_of(error, suffix).encode())
        os._exit(0)
    try:
        kind.try_rows(model)
    except Exception as error:
        if _is_memory(error):
            os.write(out, b"memory")
    os._exit(0)  # what is torn down at an ordinary end is no part of the trial


class _Without(importlib.abc.MetaPathFinder):
    """Makes packages look as if they were not installed."""

    def __init__(self, packages: Collection[str]) -> None:
        self.packages = packages

    def find_spec(self, name: str, *_: object) -> None:
        if name in self.packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _limit_memory(most: int) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    with contextlib.suppress(ValueError, OSError):  # macOS refuses this limit
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a file of gigabytes for each crash


def _is_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or bool(_NO_MEMORY.fullmatch(str(error).strip()))


def trial_rows(width: int) -> NDArray[np.float64]:
    """Return rows of missing, infinite, extreme, whole and ordinary numbers."""
    rng = np.random.default_rng(0)
    odd = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e15, -1e15, 1e300, 5e-324, 2.0**31, -1.0)
    same = [np.full(width, value) for value in odd]
    whole = [np.full(width, float(i)) for i in range(70)]
    drawn = rng.normal(0, 1, (200, width)) * 10.0 ** rng.integers(-2, 6, (200, width))
    mixed = np.where(rng.random((60, width)) < 0.3, rng.choice(odd, (60, width)), drawn[:60])
    return np.vstack([*same, *whole, drawn, mixed])


def follows(children: NDArray[np.int64], leaf: NDArray[np.bool_]) -> bool:
    """Whether the way down from node 0 meets nodes that exist, and none of them twice.

    ``children`` has two columns; what they hold for a leaf does not matter.

    >>> follows(np.array([[1, 2], [0, 0], [0, 0]]), np.array([False, True, True]))
    True
    >>> follows(np.array([[1, 2], [0, 2], [0, 0]]), np.array([False, False, True]))
    False
    """
    count = len(children)
    met = np.zeros(count, dtype=np.int64)
    level = np.zeros(1, dtype=np.int64)
    while len(level):
        if level.min() < 0 or level.max() >= count:
            return False
        np.add.at(met, level, 1)
        if met.max() > 1:
            return False
        level = children[level[~leaf[level]]].ravel()
    return True
