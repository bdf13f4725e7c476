from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dataset_helpers import REAL, real_table

from waysout.bench.choose_queries import choose_queries
from waysout.datasets.load import Dataset, indices_sha256, load_dataset, split, training_rows
from waysout.datasets.manifest import (
    MANIFEST_FILE,
    MODEL_FILE,
    Manifest,
    level_codes,
    load_oracle,
    load_oracle_model,
    oracle_dir,
)
from waysout.datasets.queries import query_list
from waysout.datasets.train import model_matrix, retrain, train_oracle
from waysout.domain.schema import Feature, Schema
from waysout.errors import InputError, IntegrityError, OracleError, TableError, UnavailableError

lightgbm = pytest.importorskip("lightgbm")
pytest.importorskip("optuna")
pytest.importorskip("sklearn")

FLOORS = {"loan": 0.97, "adult": 0.865, "credit": 0.81, "heloc": 0.71}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAYSOUT_CACHE", str(tmp_path_factory.mktemp("cache")))
        return load_dataset("synthetic", fetch=False)


@pytest.fixture(scope="module")
def trained(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("oracle")
    train_oracle(dataset, out=folder, trials=2, threads=2)
    return folder


def test_second_training_and_other_threads_give_the_same_model(
    dataset: Dataset, trained: Path, tmp_path: Path
) -> None:
    first = (trained / MODEL_FILE).read_bytes()
    for threads in (2, 1):
        train_oracle(dataset, out=tmp_path, trials=2, threads=threads)
        assert (tmp_path / MODEL_FILE).read_bytes() == first


def test_an_oracle_is_trained_again_on_other_draws_of_its_rows(
    dataset: Dataset, trained: Path
) -> None:
    path, manifest = load_oracle_model(trained)
    one, two = retrain(dataset, manifest, (1, 2), threads=2)
    assert retrain(dataset, manifest, (2,)) == [two]
    assert len({one, two, path.read_text("utf-8")}) == 3
    held_out = [dataset.rows[i] for i in split(dataset)[1]]
    matrix = model_matrix(dataset.card.schema, held_out)
    labels = np.array(dataset.labels)[split(dataset)[1]]
    for text in (one, two):
        yes = lightgbm.Booster(model_str=text).predict(matrix) >= 0.5
        assert (yes == labels).mean() > 0.85


def test_manifest_tells_how_the_oracle_came_to_be(dataset: Dataset, trained: Path) -> None:
    path, manifest = load_oracle_model(trained)
    assert path == trained / MODEL_FILE
    assert manifest.dataset == "synthetic"
    assert manifest.data_sha256 == dataset.sha256
    assert manifest.inputs == level_codes(dataset.card.schema)
    assert manifest.positive == "approved"
    assert manifest.search["trials"] == 2
    assert manifest.split["rows"] == {"train": 1600, "held_out": 400}
    assert manifest.split["sha256"]["held_out"] == indices_sha256(split(dataset)[1])
    assert set(manifest.metrics["held_out"]) == {"accuracy", "auc", "log_loss"}
    assert manifest.accuracy > 0.85
    assert {"lightgbm", "optuna", "scikit-learn", "numpy", "python"} <= set(manifest.versions)
    assert any("optimistic" in note for note in manifest.notes)
    assert Manifest.from_json(manifest.to_json()) == manifest


def test_metrics_are_those_of_the_saved_file(dataset: Dataset, trained: Path) -> None:
    path, manifest = load_oracle_model(trained)
    _, held_out = split(dataset)
    matrix = model_matrix(dataset.card.schema, [dataset.rows[i] for i in held_out])
    booster = lightgbm.Booster(model_file=path)
    said = booster.predict(matrix) >= 0.5
    truth = np.array(dataset.labels)[held_out]
    assert float(np.mean(said == truth)) == manifest.accuracy
    assert booster.num_trees() == manifest.rounds
    assert booster.feature_name() == list(manifest.inputs)


def test_saved_oracle_answers_as_it_was_trained(dataset: Dataset, trained: Path) -> None:
    rows = dataset.rows[:200]
    answers = load_oracle(dataset.card, trained).ask(rows)
    booster = lightgbm.Booster(model_file=trained / MODEL_FILE)
    expected = booster.predict(model_matrix(dataset.card.schema, rows))
    assert answers.probability == pytest.approx(expected, abs=1e-12)
    assert answers.decision.tolist() == (expected >= 0.5).tolist()


def test_zero_can_be_the_yes(dataset: Dataset, trained: Path, tmp_path: Path) -> None:
    outcome = replace(dataset.card.outcome, positive=0)
    zero = replace(dataset, card=replace(dataset.card, outcome=outcome))
    train_oracle(zero, out=tmp_path, trials=1)
    answers = load_oracle(zero.card, tmp_path).ask(zero.rows)
    assert np.mean(answers.decision == np.array(zero.labels)) > 0.9


def test_oracle_of_another_card_is_refused(dataset: Dataset, trained: Path) -> None:
    schema = dataset.card.schema
    turned = Schema(schema.features[::-1])
    recoded = Schema(
        tuple(replace(f, codes={t: float(i) for i, t in enumerate(f.level_texts)}) for f in schema)
    )
    for other in (turned, recoded):
        with pytest.raises(OracleError, match="train it again"):
            load_oracle(replace(dataset.card, schema=other), trained)


def test_progress_is_told_after_every_trial(dataset: Dataset, tmp_path: Path) -> None:
    told: list[tuple[int, int, float]] = []
    train_oracle(dataset, out=tmp_path, trials=2, progress=lambda *news: told.append(news))
    assert [news[:2] for news in told] == [(1, 2), (2, 2)]
    assert told[0][2] >= told[1][2] > 0


def test_usual_place_is_the_cache(
    dataset: Dataset, trained: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path))
    with pytest.raises(UnavailableError, match="waysout oracle train synthetic"):
        load_oracle_model("synthetic")
    shutil.copytree(trained, oracle_dir("synthetic"))
    assert load_oracle_model("synthetic")[0] == tmp_path / "oracles" / "synthetic" / MODEL_FILE


def test_changed_model_or_manifest_is_refused(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder)
    model, manifest = folder / MODEL_FILE, folder / MANIFEST_FILE
    model.write_bytes(model.read_bytes() + b" ")
    with pytest.raises(IntegrityError, match="not the model its manifest describes"):
        load_oracle_model(folder)
    shutil.copy(trained / MODEL_FILE, model)
    good = json.loads(manifest.read_text())
    for bad, says in [
        ("{", "not JSON"),
        ("[]", "not a manifest of version 1"),
        (json.dumps(good | {"manifest": 2}), "not a manifest of version 1"),
        (json.dumps(good | {"extra": 1}), "'extra'"),
        (json.dumps({k: v for k, v in good.items() if k != "seed"}), "'seed'"),
        (json.dumps(good | {"model_sha256": "0" * 64}), "expected 0000"),
    ]:
        manifest.write_text(bad)
        with pytest.raises(IntegrityError, match=says):
            load_oracle_model(folder)
    manifest.write_bytes(b"\xff")
    with pytest.raises(IntegrityError, match="not UTF-8"):
        load_oracle_model(folder)


def test_split_is_stratified_and_whole(dataset: Dataset) -> None:
    train, held_out = split(dataset)
    assert sorted([*train, *held_out]) == list(range(len(dataset)))
    labels = np.array(dataset.labels)
    assert labels[train].mean() == pytest.approx(labels[held_out].mean(), abs=0.005)
    assert training_rows(dataset) == [dataset.rows[i] for i in train]


def test_too_few_rows_of_a_class(dataset: Dataset) -> None:
    yes = [i for i, label in enumerate(dataset.labels) if label][:9]
    no = [i for i, label in enumerate(dataset.labels) if not label][:99]
    few = Dataset(
        dataset.card,
        tuple(dataset.rows[i] for i in yes + no),
        tuple(dataset.labels[i] for i in yes + no),
        "few.csv",
    )
    with pytest.raises(TableError, match=r"few.csv: one outcome has only 9 rows"):
        train_oracle(few)


@pytest.mark.parametrize("wrong", [{"trials": 0}, {"threads": 0}, {"seed": -1}, {"seed": 2**31}])
def test_wrong_settings(dataset: Dataset, wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match=r"at least 1|seed is 0 to"):
        train_oracle(dataset, **wrong)  # type: ignore[arg-type]


def test_matrix_holds_codes_and_nan() -> None:
    schema = Schema(
        (
            Feature("n", "number", missing="keep"),
            Feature("c", "category", levels=("b", "a"), codes={"a": 0, "b": 7}, missing="keep"),
            Feature("plain", "category", levels=(1, 2)),
            Feature("flag", "boolean"),
        )
    )
    matrix = model_matrix(schema, [(1.5, "b", "2", True), (None, None, "1", False)])
    assert matrix[0].tolist() == [1.5, 7.0, 2.0, 1.0]
    assert math.isnan(matrix[1, 0])
    assert math.isnan(matrix[1, 1])


def test_queries_are_drawn_from_what_the_oracle_rejects(dataset: Dataset, trained: Path) -> None:
    chosen = choose_queries(dataset, trained, n=5)
    assert chosen == choose_queries(dataset, trained, n=5)
    path, manifest = load_oracle_model(trained)
    matrix = model_matrix(dataset.card.schema, [dataset.rows[i] for i in chosen.rows])
    assert (lightgbm.Booster(model_file=path).predict(matrix) < 0.5).all()
    assert set(chosen.rows) <= set(split(dataset)[1].tolist())
    assert chosen.oracle_sha256 == manifest.model_sha256
    others = choose_queries(dataset, trained, n=5, without=chosen.rows)
    assert not set(others.rows) & set(chosen.rows)
    with pytest.raises(InputError, match="fewer than 399"):
        choose_queries(dataset, trained, n=399)


def test_queries_need_the_table_the_oracle_was_trained_on(dataset: Dataset, trained: Path) -> None:
    other = Dataset(dataset.card, dataset.rows, dataset.labels, sha256="another")
    with pytest.raises(IntegrityError, match="another table"):
        choose_queries(other, trained)


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_oracles_reach_their_floor_twice_the_same(name: str, tmp_path: Path) -> None:
    real_table(name)
    dataset = load_dataset(name, fetch=False)
    first = train_oracle(dataset, out=tmp_path)
    assert first.accuracy >= FLOORS[name]
    stored = query_list(name)
    if first.model_sha256 == stored.oracle_sha256:
        assert choose_queries(dataset, tmp_path) == stored
    assert train_oracle(dataset, out=tmp_path, threads=1).model_sha256 == first.model_sha256


def test_what_is_opaque_is_not_learnt() -> None:
    schema = Schema(
        (Feature("note", "opaque"), Feature("term", "integer"), Feature("id", "opaque"))
    )
    assert model_matrix(schema, [("a b", 12, 1), (None, 24, "x")]).tolist() == [[12.0], [24.0]]
