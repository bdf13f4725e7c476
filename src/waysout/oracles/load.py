"""Models by name: a file, an address or MODULE:FUNCTION (`load_model`).

The suffix alone decides what reads a file. Unpickling runs whatever code the file holds, so it
happens only for a pickle's suffix and only when the caller says so; any other file is first tried
in a process of its own (`waysout.oracles.file_trial`).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import pickle
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from waysout.errors import (
    MissingExtra,
    OracleError,
    UnavailableError,
    WaysoutError,
    is_ctrl_c,
    unknown,
)
from waysout.oracles.file_trial import try_file
from waysout.oracles.lightgbm import import_lightgbm

# The module that reads a kind of file, and the package that this stands on.
READERS = {
    ".txt": "lightgbm", ".lgb": "lightgbm", ".json": "xgboost", ".ubj": "xgboost",
    ".cbm": "catboost", ".onnx": "onnx", ".skops": "estimators",
}  # fmt: skip
_PACKAGES = {"onnx": "onnxruntime", "estimators": "skops.io"}
# How such a file begins; an ONNX file may begin with any of its fields.
_STARTS = {
    ".txt": b"tree", ".lgb": b"tree", ".json": b"{", ".ubj": b"{", ".cbm": b"CBM1", ".skops": b"PK",
}  # fmt: skip
PICKLES = (".pkl", ".pickle", ".joblib")

# The extra that brings a package which a file may ask for.
_EXTRAS = {
    "lightgbm": "lightgbm", "sklearn": "sklearn", "joblib": "sklearn", "xgboost": "xgboost",
    "catboost": "catboost", "onnxruntime": "onnx", "skops": "skops",
}  # fmt: skip


_FILES = (*READERS, *PICKLES)
_NAMED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_address(model: str) -> bool:
    """Whether a model is named by the address of a server.

    >>> is_address("http://localhost:8000/score"), is_address("model.txt")
    (True, False)
    """
    return model.lower().startswith(("http://", "https://"))


def is_code(model: str) -> bool:
    """Whether a model is named as MODULE:FUNCTION, so that opening it runs code.

    >>> is_code("my.models:score"), is_code("C:model.txt")
    (True, False)
    """
    return bool(_NAMED.fullmatch(model)) and not model.lower().endswith(_FILES)


def load_model(
    path: str | os.PathLike[str],
    *,
    trust_pickle: bool = False,
    trusted_types: Iterable[str] = (),
    folder: str | os.PathLike[str] = "",
) -> Any:
    """Read a model file: LightGBM text, XGBoost, CatBoost, ONNX, skops or a trusted pickle.

    Or open a model behind an address (``http://…``), or import one by ``module:name``, from the
    current folder (or ``folder``) as from anywhere that Python imports from: whatever the name is
    bound to is the model.

    ``trusted_types`` are the names of types a skops file may create besides those skops knows;
    ``trust_pickle`` allows a pickle or joblib file to run its code.

    Here a function stands for a fitted model:

    >>> import operator, pathlib, pickle, tempfile
    >>> import waysout
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "model.pkl")
    ...     written = file.write_bytes(pickle.dumps(operator.itemgetter("chance")))
    ...     model = waysout.load_model(file, trust_pickle=True)
    >>> model({"chance": 0.7})
    0.7
    """
    name = os.fspath(path)
    if is_address(name):
        from waysout.oracles.http import HttpModel

        return HttpModel(name)
    if is_code(name):
        return _imported(name, Path(folder))
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in _FILES:
        raise OracleError(
            f"{file}: {unknown('kind of model file', suffix or file.name, _FILES)}. A model may "
            "also be an address (http://…), or a function (module:function)"
        )
    _check_start(file, suffix, trust_pickle=trust_pickle)
    if suffix in PICKLES or trusted_types:
        _look_in(Path(folder))  # whoever trusts the file trusts the code it needs
    try:
        # Code that a pickle runs may print, and stdout may be a JSON document.
        with contextlib.redirect_stdout(sys.stderr):
            trusted = frozenset(trusted_types)
            if suffix not in PICKLES:
                try_file(file, suffix, _library(suffix), trusted)
            return read_file(file, suffix, trusted)
    except UnavailableError:
        raise
    except WaysoutError as error:
        raise OracleError(f"{file}: {error}") from None
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package in _EXTRAS:
            raise MissingExtra(package, _EXTRAS[package]) from None
        raise OracleError(
            f"{file} needs the package {package!r}, which is not installed here"
        ) from error
    except Exception as error:
        raise OracleError(f"{file}: {reason_of(error, suffix)}") from error


def _check_start(file: Path, suffix: str, *, trust_pickle: bool) -> None:
    """Raise unless this is a file of its kind by its first bytes, and may be read."""
    if file.is_dir():
        raise OracleError(f"{file} is a folder, not a model file")
    if file.exists() and not file.is_file():  # a pipe would keep us waiting, /dev/zero for ever
        raise OracleError(f"{file} is a pipe or a device, not a model file")
    try:
        with file.open("rb") as stream:
            head = stream.read(64)
    except FileNotFoundError:
        raise OracleError(f"there is no model file {file}") from None
    except OSError as error:
        raise OracleError(f"{file} cannot be opened: {error.strerror}") from error
    if not head:
        raise OracleError(f"{file} is empty: save the model again")
    if suffix in PICKLES and not trust_pickle:
        raise OracleError(
            f"{file} is a pickle: reading it runs whatever code it holds. If you trust its "
            "author, pass trust_pickle=True. Safer: save the model as .skops or .onnx, or in its "
            "library's own format (.txt, .json, .ubj, .cbm)"
        )
    if suffix not in PICKLES and head[:1] == b"\x80":
        raise OracleError(
            f"{file} is a pickle under the suffix {suffix}. It was not read: rename it and pass "
            "trust_pickle=True if you trust its author"
        )
    start = _STARTS.get(suffix, b"")
    if not head.lstrip().startswith(start):
        raise OracleError(
            f"{file} is no {suffix} model: it begins with {head[:16]!r}, not with {start!r}. Was "
            "it saved in another format?"
        )


def reason_of(error: Exception, suffix: str) -> str:
    """Say why a model file was not read."""
    if isinstance(error, WaysoutError):
        return str(error)
    reason = str(error).split("\nStack trace")[0].strip()[:400] or type(error).__name__
    return f"the file could not be read as a {suffix} model: {reason}"


def _library(suffix: str) -> Any:
    """Import what reads a kind of file, or say which extra to install."""
    kind = READERS[suffix]
    if kind == "lightgbm":
        return import_lightgbm()
    return importlib.import_module(_PACKAGES.get(kind, kind))


def _look_in(folder: Path) -> None:
    """Let modules be found in a folder."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)
        importlib.invalidate_caches()


def _imported(name: str, folder: Path) -> Any:
    """Import a model, with the folder on the path as `python -m` has it."""
    module, _, wanted = name.partition(":")
    _look_in(folder)
    try:
        # What is imported may print, and stdout may be a JSON document.
        with contextlib.redirect_stdout(sys.stderr):
            found = importlib.import_module(module)
    except WaysoutError:
        raise
    except ModuleNotFoundError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):
            hint = f" (leave out .py: {module[:-3]}:{wanted})" if module.endswith(".py") else ""
            raise OracleError(
                f"{name}: there is no module {error.name!r} in {folder.resolve()}, nor among the "
                f"installed packages{hint}"
            ) from None
        raise OracleError(
            f"{name} needs the package {error.name!r}, which is not installed here"
        ) from error
    except BaseException as error:  # it may exit, or panic
        if is_ctrl_c(error):
            raise
        raise OracleError(
            f"{name}: importing it raised {type(error).__name__}: {str(error)[:400]}"
        ) from error
    for part in wanted.split("."):
        if not hasattr(found, part):
            public = [n for n in dir(found) if not n.startswith("_")]
            raise OracleError(f"{name}: {unknown(f'name in {module}', part, public)}")
        found = getattr(found, part)
    return found


def read_file(file: Path, suffix: str, trusted: frozenset[str]) -> Any:
    """Read a file that may be read: one that was tried, or a pickle that is trusted."""
    if suffix in READERS:
        module = importlib.import_module(f"waysout.oracles.{READERS[suffix]}")
        return module.read_model(file, trusted) if suffix == ".skops" else module.read_model(file)
    # joblib reads plain pickles too, and people call its files .pkl.
    if suffix == ".joblib" or importlib.util.find_spec("joblib"):
        return importlib.import_module("joblib").load(file)
    with file.open("rb") as stream:
        return pickle.load(stream)
