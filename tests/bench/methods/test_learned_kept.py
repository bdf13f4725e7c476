"""What was learned is kept, found again, and never taken for something else."""

from __future__ import annotations

import io
import json
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copytree
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from waysout.bench.methods.learned import training
from waysout.bench.methods.learned.training import (
    MANIFEST_FILE,
    WEIGHTS_FILE,
    Recipe,
    TrainingTable,
    Weights,
    choose_device,
    import_torch,
    learned,
    learned_dir,
    training_table,
)
from waysout.cli.doctor import cached_learning
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import InputError, MissingExtra
from waysout.files import sha256
from waysout.search.base import OnLearning, ignore_progress

SCHEMA = Schema((Feature("income", "number"), Feature("owns", "boolean")))


@dataclass(frozen=True)
class People:
    rows: tuple[Row, ...]
    labels: tuple[bool, ...]


PEOPLE = People(
    ((1.0, False), (2.0, True), (3.0, True), (6.0, True)), (False, False, True, True)
)  # fmt: skip


@dataclass(frozen=True)
class Mean(Recipe[float]):
    """Learns the mean income, and counts how often it had to."""

    times: float = 1.0
    trained: list[str] = field(default_factory=list, compare=False)

    name = "mean"

    def settings(self) -> Mapping[str, Any]:
        return {"times": self.times}

    def train(
        self, table: TrainingTable, device: Any, tell: OnLearning
    ) -> tuple[Weights, dict[str, Any]]:
        tell("halfway", 0.5)
        self.trained.append(str(device))
        return {"mean": np.array([table.matrix[:, 0].mean() * self.times])}, {"rounds": 1}

    def load(self, table: TrainingTable, weights: Weights, device: Any) -> float:
        return float(weights["mean"][0])


def table(people: People = PEOPLE) -> TrainingTable:
    return training_table(people, SCHEMA)


Forget = Callable[[], None]


@pytest.fixture
def forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Forget:
    """Give a cache of its own; calling it forgets what is in memory, as a new process does."""
    pytest.importorskip("torch", reason="what is learned is learned with PyTorch")

    def clear() -> None:
        monkeypatch.setattr(training, "_in_memory", OrderedDict())

    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path))
    clear()
    return clear


# Kept -------------------------------------------------------------------------------------------


def test_it_is_learned_once(forget: Forget) -> None:
    recipe = Mean()
    assert [learned(recipe, table(), "cpu", ignore_progress) for _ in range(3)] == [3.0] * 3
    forget()
    assert learned(recipe, table(), "cpu", ignore_progress) == 3.0
    assert recipe.trained == ["cpu"]


def test_several_threads_learn_it_once(forget: Forget) -> None:
    recipe, together = Mean(), Barrier(4)

    def ask(_: int) -> float:
        together.wait(timeout=30)
        return learned(recipe, table(), "cpu", ignore_progress)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [3.0] * 4
    assert recipe.trained == ["cpu"]


@pytest.mark.parametrize("file", [WEIGHTS_FILE, MANIFEST_FILE])
@pytest.mark.parametrize("damage", ["gone", "cut", "other"])
def test_what_is_damaged_is_learned_anew(forget: Forget, file: str, damage: str) -> None:
    recipe = Mean()
    learned(recipe, table(), "cpu", ignore_progress)
    path = learned_dir(recipe, table()) / file
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-20] if damage == "cut" else b"{}")
    for _ in range(2):
        forget()
        assert learned(recipe, table(), "cpu", ignore_progress) == 3.0
    assert len(recipe.trained) == 2


def test_weights_of_another_recipe_are_not_taken_for_ones_own(forget: Forget) -> None:
    learned(Mean(), table(), "cpu", ignore_progress)
    theirs, ours = learned_dir(Mean(), table()), learned_dir(Mean(times=2.0), table())
    copytree(theirs, ours)
    forget()
    assert learned(Mean(times=2.0), table(), "cpu", ignore_progress) == 6.0


@pytest.mark.parametrize("what", ["no array", "no numbers", "nothing"])
def test_weights_that_are_none_are_learned_anew(forget: Forget, what: str) -> None:
    learned(Mean(), table(), "cpu", ignore_progress)
    folder, file = learned_dir(Mean(), table()), io.BytesIO()
    if what != "nothing":
        value = np.array([{}], dtype=object) if what == "no array" else np.array([np.nan])
        np.savez(file, mean=value)
    told = json.loads((folder / MANIFEST_FILE).read_text("utf-8"))
    (folder / WEIGHTS_FILE).write_bytes(file.getvalue())
    sealed = {**told, "weights_sha256": sha256(file.getvalue())}
    (folder / MANIFEST_FILE).write_text(json.dumps(sealed), "utf-8")
    forget()
    assert learned(Mean(), table(), "cpu", ignore_progress) == 3.0


def test_what_did_not_learn_is_not_kept(forget: Forget) -> None:
    with pytest.raises(InputError, match="mean did not learn: its weights are not finite"):
        learned(Mean(times=float("inf")), table(), "cpu", ignore_progress)
    assert cached_learning() == []


def test_where_nothing_can_be_written_what_was_learned_serves(
    forget: Forget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    (tmp_path / "file").write_text("in the way", "utf-8")
    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path / "file"))
    assert learned(Mean(), table(), "cpu", lambda what, share: heard.append(what)) == 3.0
    assert "; not stored: cannot write" in heard[-1]


@pytest.mark.parametrize("odd", [{"rows": "abc"}, {"seconds": None}], ids=str)
def test_a_manifest_that_cannot_be_is_not_told_of(forget: Forget, odd: dict[str, Any]) -> None:
    learned(Mean(), table(), "cpu", ignore_progress)
    file = learned_dir(Mean(), table()) / MANIFEST_FILE
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | odd), "utf-8")
    assert cached_learning() == []


def test_recipes_and_tables_do_not_mix(forget: Forget) -> None:
    once, twice = Mean(), Mean(times=2.0)
    richer = table(People(((5.0, True), *PEOPLE.rows[1:]), PEOPLE.labels))
    for _ in range(2):
        assert learned(once, table(), "cpu", ignore_progress) == 3.0
        assert learned(twice, table(), "cpu", ignore_progress) == 6.0
        assert learned(once, richer, "cpu", ignore_progress) == 4.0
        forget()
    assert len(once.trained) == 2
    assert len(twice.trained) == 1


def test_memory_holds_only_the_last_models(forget: Forget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "MOST_IN_MEMORY", 2)
    for times in (1.0, 2.0, 1.0, 3.0):  # 1 is asked for again, so 2 is the one to go
        learned(Mean(times), table(), "cpu", ignore_progress)
    held = [place for place, _ in training._in_memory]
    assert held == [str(learned_dir(Mean(times), table())) for times in (1.0, 3.0)]


# What is told -----------------------------------------------------------------------------------


def test_the_manifest_says_how_it_was_learned(forget: Forget) -> None:
    learned(Mean(times=2.0), table(), "cpu", ignore_progress)
    [told] = cached_learning()
    folder = learned_dir(Mean(times=2.0), table())
    assert told.pop("folder") == str(folder)
    assert told == json.loads((folder / MANIFEST_FILE).read_text("utf-8"))
    assert told["seconds"] >= 0
    assert set(told["versions"]) == {"numpy", "torch"}
    assert told["weights_sha256"] == sha256((folder / WEIGHTS_FILE).read_bytes())
    plain = ("name", "rows", "approved", "settings", "training", "device", "table_sha256")
    assert {name: told[name] for name in plain} == {
        "name": "mean",
        "rows": 4,
        "approved": 2,
        "settings": {"times": 2.0},
        "training": {"rounds": 1},
        "device": "cpu",
        "table_sha256": table().sha256,
    }


def test_the_user_hears_what_is_learned_and_how_far_it_is(forget: Forget) -> None:
    heard: list[tuple[str, float]] = []
    learned(Mean(), table(), "cpu", lambda what, share: heard.append((what, share)))
    assert [share for _, share in heard] == [0.0, 0.5, 1.0]
    assert heard[1][0] == "mean learns from 4 rows (cpu): halfway"
    learned(Mean(), table(), "cpu", lambda what, share: heard.append((what, share)))
    assert len(heard) == 3


def test_who_does_not_want_to_wait_ends_it(forget: Forget) -> None:
    recipe = Mean()

    def enough(what: str, share: float) -> None:
        if share > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learned(recipe, table(), "cpu", enough)
    assert recipe.trained == []
    assert cached_learning() == []
    assert learned(recipe, table(), "cpu", ignore_progress) == 3.0


# Tables -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("labels", "said"), [
    ((False, False, False, True), "1 approved"),
    ((True, True, True, False), "1 rejected"),
])  # fmt: skip
def test_a_table_of_one_outcome_teaches_nothing(
    forget: Forget, labels: tuple[bool, ...], said: str
) -> None:
    recipe = Mean()
    with pytest.raises(InputError, match=f"mean learns from rows of both outcomes.*{said}"):
        learned(recipe, table(People(PEOPLE.rows, labels)), "cpu", ignore_progress)
    assert recipe.trained == []


def test_the_hash_tells_rows_labels_and_features_apart() -> None:
    other_rows = People(((1.5, False), *PEOPLE.rows[1:]), PEOPLE.labels)
    other_labels = People(PEOPLE.rows, (True, False, True, True))
    other_names = Schema((Feature("wealth", "number"), Feature("owns", "boolean")))
    hashes = {
        table().sha256,
        table(other_rows).sha256,
        table(other_labels).sha256,
        training_table(PEOPLE, other_names).sha256,
    }
    assert len(hashes) == 4
    assert table(People(PEOPLE.rows, PEOPLE.labels)).sha256 == table().sha256


def test_there_is_a_label_for_every_row() -> None:
    with pytest.raises(InputError, match="4 rows are known, but 3 labels"):
        table(People(PEOPLE.rows, PEOPLE.labels[:3]))


# Devices ----------------------------------------------------------------------------------------


def test_a_device_that_is_not_there_is_refused() -> None:
    torch = pytest.importorskip("torch", reason="devices are PyTorch's")
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(InputError, match=r"device 'toaster' cannot be used here .*: try cpu"):
        choose_device("toaster")


def test_without_torch_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"'torch'.*waysout\[torch\]"):
        import_torch()
