"""Model files, by suffix: `load_model`.

The suffix alone decides what reads a file. Unpickling runs whatever code the file holds, so it
happens only for a pickle's suffix and only when the caller says so.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from waysout.errors import MissingExtra, OracleError, UnavailableError, WaysoutError, unknown
from waysout.oracles.files import check_lightgbm_text, check_ubjson
from waysout.oracles.lightgbm import import_lightgbm
from waysout.oracles.onnx import OnnxModel

PICKLES = (".pkl", ".pickle", ".joblib")

# The extra that brings a package which a pickle or skops file may ask for.
_EXTRAS = {
    "lightgbm": "lightgbm",
    "sklearn": "sklearn",
    "joblib": "sklearn",
    "xgboost": "xgboost",
    "catboost": "catboost",
    "onnxruntime": "onnx",
    "skops": "skops",
}


def load_model(
    path: str | os.PathLike[str], *, trust_pickle: bool = False, trusted_types: Iterable[str] = ()
) -> Any:
    """Read a model file: LightGBM text, XGBoost, CatBoost, ONNX, skops or a trusted pickle.

    ``trusted_types`` are the names of types a skops file may create besides those skops knows;
    ``trust_pickle`` allows a pickle or joblib file to run its code.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in (*_LOADERS, *PICKLES, ".skops"):
        known = (*_LOADERS, ".skops", *PICKLES)
        raise OracleError(f"{file}: {unknown('kind of model file', suffix or file.name, known)}")
    head = _head(file)
    if suffix in PICKLES and not trust_pickle:
        raise _untrusted_pickle(file)
    if suffix not in PICKLES and head[:1] == b"\x80":
        raise OracleError(
            f"{file} is a pickle under the suffix {suffix}. It was not read: rename it and pass "
            "--trust-pickle (trust_pickle=True) if you trust whoever made it"
        )
    try:
        # Code that a pickle runs may print, and stdout may be a JSON document.
        with contextlib.redirect_stdout(sys.stderr):
            if suffix in PICKLES:
                return _unpickle(file)
            if suffix == ".skops":
                return _skops(file, frozenset(trusted_types))
            return _LOADERS[suffix](file)
    except UnavailableError:
        raise
    except WaysoutError as error:
        raise OracleError(f"{file}: {error}") from None
    except ModuleNotFoundError as error:
        raise _missing(file, error) from error
    except Exception as error:
        reason = str(error).split("\nStack trace")[0].strip()[:400] or type(error).__name__
        raise OracleError(f"{file} could not be read as a {suffix} model: {reason}") from error


def _head(file: Path) -> bytes:
    if file.is_dir():
        raise OracleError(f"{file} is a folder, not a model file")
    try:
        with file.open("rb") as stream:
            head = stream.read(64)
    except FileNotFoundError:
        raise OracleError(f"there is no model file {file}") from None
    except OSError as error:
        raise OracleError(f"{file} cannot be opened: {error.strerror}") from error
    if not head:
        raise OracleError(f"{file} is empty: save the model again")
    return head


def _missing(file: Path, error: ModuleNotFoundError) -> WaysoutError:
    package = (error.name or "").split(".")[0]
    if package in _EXTRAS:
        return MissingExtra(package, _EXTRAS[package])
    return OracleError(f"{file} needs the package {package!r}, which is not installed here")


def _untrusted_pickle(file: Path) -> OracleError:
    return OracleError(
        f"{file} is a pickle: reading it runs whatever code it holds. If you trust whoever made "
        "it, pass --trust-pickle (trust_pickle=True). Safer: save the model as .skops or .onnx, "
        "or in its library's own format (.txt, .json, .ubj, .cbm)"
    )


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        top = name.split(".")[0]
        if error.name != top:
            raise
        raise MissingExtra(top, _EXTRAS[top]) from None


def _lightgbm(file: Path) -> Any:
    text = file.read_bytes()
    check_lightgbm_text(text)
    return import_lightgbm().Booster(model_str=text.decode("utf-8"))


def _xgboost(file: Path) -> Any:
    content = file.read_bytes()
    if file.suffix.lower() == ".ubj":
        check_ubjson(content)
    if b"learner" not in content[:4096]:
        raise OracleError("this is no XGBoost model: it has no 'learner' at its start")
    return _package("xgboost").Booster(model_file=bytearray(content))


def _catboost(file: Path) -> Any:
    return _package("catboost").CatBoost().load_model(str(file))


def _onnx(file: Path) -> Any:
    runtime = _package("onnxruntime")
    return OnnxModel(runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"]))


def _skops(file: Path, trusted: frozenset[str]) -> Any:
    io = _package("skops.io")
    asked = set(io.get_untrusted_types(file=file))
    if asked - trusted:
        raise OracleError(
            f"the file wants to create types that skops does not know: "
            f"{', '.join(sorted(asked - trusted))}. If you trust them, name them with "
            "--trust-types (trusted_types=[…])"
        )
    return io.load(file, trusted=sorted(asked))


def _unpickle(file: Path) -> Any:
    # joblib reads plain pickles too, and people call its files .pkl.
    if file.suffix.lower() == ".joblib" or importlib.util.find_spec("joblib"):
        return _package("joblib").load(file)
    import pickle

    with file.open("rb") as stream:
        return pickle.load(stream)


_LOADERS: dict[str, Callable[[Path], Any]] = {
    ".txt": _lightgbm,
    ".lgb": _lightgbm,
    ".json": _xgboost,
    ".ubj": _xgboost,
    ".cbm": _catboost,
    ".onnx": _onnx,
}
