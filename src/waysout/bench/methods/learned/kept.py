"""What was learned is kept: weights and a manifest in the cache, and the last models in memory."""

from __future__ import annotations

import hashlib
import io
import json
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from threading import RLock
from typing import Any, Generic, TypeVar
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from waysout.bench.methods.learned.devices import choose_device
from waysout.bench.methods.learned.table import TrainingTable, check_table
from waysout.errors import InputError, UnavailableError, shown
from waysout.files import cache_dir, sha256, write_atomically
from waysout.search.base import Tell

VERSION = 1
WEIGHTS_FILE, MANIFEST_FILE = "weights.npz", "manifest.json"
MOST_IN_MEMORY = 8

M = TypeVar("M")
Weights = Mapping[str, NDArray[Any]]


class Recipe(ABC, Generic[M]):
    """How a model is made of a table. Equal recipes and tables make the same model."""

    name: str

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Return all that decides what is learned, besides the table; it goes into JSON."""

    @abstractmethod
    def train(
        self, table: TrainingTable, device: Any, tell: Tell
    ) -> tuple[Weights, dict[str, Any]]:
        """Return the weights, and what a manifest should say of how it went."""

    @abstractmethod
    def load(self, table: TrainingTable, weights: Weights, device: Any) -> M:
        """Return the model of some weights."""


@dataclass(frozen=True)
class LearnedManifest:
    """What is told of a model that was learned, and what it takes to learn it again."""

    name: str
    table_sha256: str
    rows: int
    approved: int
    settings: Mapping[str, Any]
    training: Mapping[str, Any]
    device: str
    seconds: float
    versions: Mapping[str, str]
    weights_sha256: str
    manifest: int = VERSION

    def to_json(self) -> str:
        """Write the manifest as JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"


_in_memory: OrderedDict[tuple[str, str], Any] = OrderedDict()
_lock = RLock()  # two threads that want the same model do not both learn it


def learned(recipe: Recipe[M], table: TrainingTable, device: str, tell: Tell) -> M:
    """Return the model of a recipe and a table: remembered, kept on file, or learned now."""
    with _lock:
        place = (str(learned_dir(recipe, table)), device)
        if place not in _in_memory:
            _in_memory[place] = _load_or_learn(recipe, table, choose_device(device), tell)
            while len(_in_memory) > MOST_IN_MEMORY:
                _in_memory.popitem(last=False)
        _in_memory.move_to_end(place)
        model: M = _in_memory[place]
        return model


def learned_dir(recipe: Recipe[Any], table: TrainingTable) -> Path:
    """Return where a model is kept, whether or not it is there."""
    told = json.dumps([VERSION, recipe.settings(), table.sha256], sort_keys=True)
    digest = hashlib.sha256(told.encode()).hexdigest()[:16]
    return cache_dir() / "learned" / f"{recipe.name}-{digest}"


def _load_or_learn(recipe: Recipe[M], table: TrainingTable, device: Any, tell: Tell) -> M:
    kept = _kept(recipe, table)
    if kept is not None:
        try:
            return recipe.load(table, kept, device)
        except RuntimeError:  # weights of another shape
            pass
    check_table(recipe.name, table)
    weights = _learn(recipe, table, device, tell)
    return recipe.load(table, weights, device)


def _kept(recipe: Recipe[Any], table: TrainingTable) -> Weights | None:
    """Return the weights on file; those that are damaged, or of another, are as good as none."""
    folder = learned_dir(recipe, table)
    told = _read_json(folder / MANIFEST_FILE) or {}
    wanted = {
        "name": recipe.name,
        "table_sha256": table.sha256,
        "settings": json.loads(json.dumps(recipe.settings())),
    }
    try:
        data = (folder / WEIGHTS_FILE).read_bytes()
        if not wanted.items() <= told.items() or told.get("weights_sha256") != sha256(data):
            return None
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            weights = dict(arrays)
    except (OSError, ValueError, EOFError, KeyError, BadZipFile):
        return None
    return weights if _all_finite(weights) else None


def _all_finite(weights: Weights) -> bool:
    return all(bool(np.isfinite(array).all()) for array in weights.values())


def _learn(recipe: Recipe[Any], table: TrainingTable, device: Any, tell: Tell) -> Weights:
    began, what = time.perf_counter(), f"{recipe.name} learns from {len(table):,} rows ({device})"
    tell(what, 0.0)
    weights, training = recipe.train(table, device, lambda note, share: tell(
        f"{what}{note and f': {note}'}", min(share, 0.999)
    ))  # fmt: skip
    if not _all_finite(weights):
        raise InputError(
            f"{recipe.name} did not learn: its weights are no numbers any more. Use settings "
            f"nearer to the usual ones (now: {shown(dict(recipe.settings()), 200)})"
        )
    seconds = time.perf_counter() - began
    file = io.BytesIO()
    np.savez(file, **weights)  # type: ignore[arg-type]  # a name of an array, not an option
    manifest = LearnedManifest(
        name=recipe.name,
        table_sha256=table.sha256,
        rows=len(table),
        approved=int(table.labels.sum()),
        settings=recipe.settings(),
        training=training,
        device=str(device),
        seconds=round(seconds, 1),
        versions={package: version(package) for package in ("numpy", "torch")},
        weights_sha256=sha256(file.getvalue()),
    )
    did = f"{recipe.name} learned from {len(table):,} rows in {seconds:.0f} s ({device})"
    tell(did + _keep(learned_dir(recipe, table), file.getvalue(), manifest), 1.0)
    return weights


def _keep(folder: Path, weights: bytes, manifest: LearnedManifest) -> str:
    """Write both, the manifest last; minutes of learning are not lost where that cannot be."""
    try:
        write_atomically(folder / WEIGHTS_FILE, weights)
        write_atomically(folder / MANIFEST_FILE, manifest.to_json().encode())
    except UnavailableError as error:
        return f"; not kept: {error}"
    return ""


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        told = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) and told.get("manifest") == VERSION else None
