from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from waysout.datasets import registry, synthetic
from waysout.datasets.load import Dataset, load_dataset, training_rows
from waysout.domain.distance import Distance
from waysout.domain.key import bin_edges


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path))
    monkeypatch.delenv("WAYSOUT_DATA", raising=False)
    return load_dataset("synthetic", fetch=False)


def test_is_the_same_everywhere() -> None:
    data = synthetic.make_csv()
    assert data == synthetic.make_csv()
    assert hashlib.sha256(data).hexdigest() == registry.info("synthetic").sha256


def test_says_that_it_is_synthetic(dataset: Dataset) -> None:
    card = dataset.card
    for text in (card.title, card.outcome.yes, card.outcome.no, registry.info("synthetic").title):
        assert "synthetic" in text


def test_mixes_kinds_and_has_both_outcomes(dataset: Dataset) -> None:
    assert len(dataset) == synthetic.ROWS
    assert 0.4 < dataset.positives / len(dataset) < 0.5
    assert {f.kind for f in dataset.card.schema} == {"number", "integer", "category", "boolean"}
    assert dataset.card.schema["education"].ordered


def test_rows_keep_the_rules_and_ranges_of_the_card(dataset: Dataset) -> None:
    rules = dataset.card.rules()
    assert rules.name == "realistic"
    assert not [v for row in dataset.rows for v in rules.violations(row, row)]
    for i, feature in enumerate(dataset.card.schema):
        if feature.range:
            low, high = feature.range
            assert all(low <= float(row[i] or 0) <= high for row in dataset.rows)


def test_card_needs_no_advice_and_holds_fitted_bins_and_scales(dataset: Dataset) -> None:
    pytest.importorskip("sklearn")
    card, rows = dataset.card, training_rows(dataset)
    assert card.advice() == []
    numeric = [(i, f.name) for i, f in enumerate(card.schema) if f.is_numeric]
    edges = {name: bin_edges([row[i] for row in rows]) for i, name in numeric}
    assert card.bins == {name: found for name, found in edges.items() if found}
    assert card.scales == pytest.approx(dict(Distance.fit(card.schema, rows).scales))
