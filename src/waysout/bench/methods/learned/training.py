"""Models trained on the known rows: their training tables, and how they are stored.

A trained model is stored as arrays (``npz``, nothing pickled) with a manifest, under a hash of rows
and settings. The device is not part of the hash: a CPU can use what was trained on a GPU. If the
files are damaged, the model is trained again. The most recently used models stay in memory.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from threading import RLock
from typing import Any, Generic, TypeVar
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from waysout.domain.known import Known, PerData, check_lengths
from waysout.domain.schema import Schema
from waysout.errors import InputError, MissingExtra, UnavailableError, shown
from waysout.files import cache_dir, sha256, write_atomically
from waysout.search.base import OnLearning

VERSION = 1
WEIGHTS_FILE, MANIFEST_FILE = "weights.npz", "manifest.json"
MOST_IN_MEMORY = 8
FEWEST_PER_OUTCOME = 2

M = TypeVar("M")
Weights = Mapping[str, NDArray[Any]]


# PyTorch ----------------------------------------------------------------------------------------


def import_torch() -> Any:
    """Return the torch package, or raise `MissingExtra`."""
    try:
        import torch
    except ImportError:
        raise MissingExtra("torch", "torch") from None
    return torch


def choose_device(name: str) -> Any:
    """Return the device of a name; ``auto`` is a GPU where there is one."""
    torch = import_torch()
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0][:120]
        raise InputError(f"device {shown(name)} cannot be used here ({reason}): try cpu") from None
    return device


# Tables and recipes -----------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingTable:
    """Encoded rows (see `Schema.encode`), which of them were approved, and a hash of both."""

    schema: Schema
    matrix: NDArray[np.float64]
    labels: NDArray[np.bool_]
    sha256: str

    def __len__(self) -> int:
        return len(self.matrix)


@PerData
def training_table(known: Known, schema: Schema) -> TrainingTable:
    """Return the training table of some data; it is built only once."""
    check_lengths(known)
    matrix, labels = schema.encode(known.rows), np.asarray(known.labels, dtype=np.bool_)
    features = [(f.name, f.kind, f.level_texts, f.ordered, f.decimals) for f in schema]
    digest = hashlib.sha256(json.dumps(features).encode())
    digest.update(matrix.astype("<f8").tobytes())
    digest.update(labels.tobytes())
    return TrainingTable(schema, matrix, labels, digest.hexdigest())


class Recipe(ABC, Generic[M]):
    """How to train a model on a table. Equal recipes and tables give the same model."""

    name: str

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Return all settings that affect the trained weights, as JSON values."""

    @abstractmethod
    def train(
        self, table: TrainingTable, device: Any, tell: OnLearning
    ) -> tuple[Weights, dict[str, Any]]:
        """Return the weights, and details of the training for the manifest."""

    @abstractmethod
    def load(self, table: TrainingTable, weights: Weights, device: Any) -> M:
        """Return the model with these weights."""


# Trained models ---------------------------------------------------------------------------------


_in_memory: OrderedDict[tuple[str, str], Any] = OrderedDict()
_lock = RLock()  # two threads that want the same model do not both train it


def learned(recipe: Recipe[M], table: TrainingTable, device: str, tell: OnLearning) -> M:
    """Return the model of a recipe and a table: from memory, from its file, or trained now."""
    with _lock:
        place = (str(learned_dir(recipe, table)), device)
        if place not in _in_memory:
            where, weights, model = choose_device(device), _read(recipe, table), None
            if weights is not None:
                with suppress(RuntimeError):  # weights of another shape
                    model = recipe.load(table, weights, where)
            if model is None:
                model = recipe.load(table, _train(recipe, table, where, tell), where)
            _in_memory[place] = model
            while len(_in_memory) > MOST_IN_MEMORY:
                _in_memory.popitem(last=False)
        _in_memory.move_to_end(place)
        found: M = _in_memory[place]
        return found


def learned_dir(recipe: Recipe[Any], table: TrainingTable) -> Path:
    """Return the folder of a model, whether or not it exists."""
    identity = json.dumps([VERSION, recipe.settings(), table.sha256], sort_keys=True)
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return cache_dir() / "learned" / f"{recipe.name}-{digest}"


def _read(recipe: Recipe[Any], table: TrainingTable) -> Weights | None:
    """Return the stored weights, or None if missing, damaged or of another model."""
    folder = learned_dir(recipe, table)
    wanted = {
        "manifest": VERSION,
        "name": recipe.name,
        "table_sha256": table.sha256,
        "settings": json.loads(json.dumps(recipe.settings())),
    }
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_text("utf-8"))
        data = (folder / WEIGHTS_FILE).read_bytes()
        wanted["weights_sha256"] = sha256(data)
        if not isinstance(manifest, dict) or not wanted.items() <= manifest.items():
            return None
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            weights = dict(arrays)
    except (OSError, ValueError, RecursionError, EOFError, KeyError, BadZipFile):
        return None
    return weights if _all_finite(weights) else None


def _all_finite(weights: Weights) -> bool:
    return all(bool(np.isfinite(array).all()) for array in weights.values())


def _train(recipe: Recipe[Any], table: TrainingTable, device: Any, tell: OnLearning) -> Weights:
    """Train and store a model; return its weights."""
    yes = int(table.labels.sum())
    for count, outcome in ((yes, "approved"), (len(table) - yes, "rejected")):
        if count < FEWEST_PER_OUTCOME:
            raise InputError(
                f"{recipe.name} learns from rows of both outcomes, but your data has {count} "
                f"{outcome}; it needs at least {FEWEST_PER_OUTCOME} of each (data=…)"
            )
    began, what = time.perf_counter(), f"{recipe.name} learns from {len(table):,} rows ({device})"
    tell(what, 0.0)
    weights, training = recipe.train(table, device, lambda note, share: tell(
        f"{what}{note and f': {note}'}", min(share, 0.999)
    ))  # fmt: skip
    if not _all_finite(weights):
        raise InputError(
            f"{recipe.name} did not learn: its weights are not finite. Use settings closer to "
            f"the defaults (now: {shown(dict(recipe.settings()), 200)})"
        )
    seconds = time.perf_counter() - began
    file = io.BytesIO()
    np.savez(file, **weights)  # type: ignore[arg-type]  # a name of an array, not an option
    manifest = {
        "name": recipe.name,
        "table_sha256": table.sha256,
        "rows": len(table),
        "approved": yes,
        "settings": recipe.settings(),
        "training": training,
        "device": str(device),
        "seconds": round(seconds, 1),
        "versions": {package: version(package) for package in ("numpy", "torch")},
        "weights_sha256": sha256(file.getvalue()),
        "manifest": VERSION,
    }
    written = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    folder, not_stored = learned_dir(recipe, table), ""
    try:
        write_atomically(folder / WEIGHTS_FILE, file.getvalue())
        write_atomically(folder / MANIFEST_FILE, written.encode())
    except UnavailableError as error:  # do not lose minutes of training
        not_stored = f"; not stored: {error}"
    what = f"{recipe.name} learned from {len(table):,} rows in {seconds:.0f} s ({device})"
    tell(f"{what}{not_stored}", 1.0)
    return weights
