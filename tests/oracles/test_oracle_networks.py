"""torch modules and Keras models."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import oracle_data as data
import pandas as pd
import pytest

from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import OracleError
from waysout.oracles.adapt import as_oracle
from waysout.oracles.probe import check_oracle

torch = pytest.importorskip("torch", reason="the optional package torch is not installed")
nn = torch.nn

SCHEMA = Schema(
    (
        Feature("income", "number"),
        Feature("job", "category", levels=("cook", "clerk"), codes={"cook": 3, "clerk": 5}),
        Feature("own", "boolean", levels=("N", "Y")),
    )
)
ROWS: list[Row] = [(float(i % 7) - 3, ("cook", "clerk")[i % 2], i % 3 == 0) for i in range(40)]
MATRIX = np.array([[r[0], 3 if r[1] == "cook" else 5, float(bool(r[2]))] for r in ROWS], np.float32)


def network(*head: Any, out: int = 1) -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, out), *head)


def own(model: Any) -> Any:
    model.eval()
    with torch.no_grad():
        return model(torch.from_numpy(MATRIX)).numpy().astype(float)


def oracle(model: Any, **options: Any) -> Any:
    return as_oracle(model, SCHEMA, **{"positive": "good", **options})


def test_one_probability() -> None:
    model = network(nn.Sigmoid())
    expected = own(model)[:, 0]
    model.train()
    model[1].eval()  # One part is not training, and stays so.
    asked = oracle(model)
    assert asked.ask(ROWS).probability == pytest.approx(expected, abs=1e-6)
    assert [part.training for part in model] == [True, False, True, True]
    assert asked.notes == ()
    check_oracle(asked, ROWS, expected=expected)
    turned = oracle(model, positive_class=0).ask(ROWS).probability
    assert turned == pytest.approx(1 - expected, abs=1e-6)


@pytest.mark.parametrize("head", [nn.Softmax(dim=1), nn.LogSoftmax(dim=1)])
def test_two_columns(head: Any) -> None:
    model = network(head, out=2)
    expected = own(model) if isinstance(head, nn.Softmax) else np.exp(own(model))
    asked = oracle(model)
    assert asked.ask(ROWS).probability == pytest.approx(expected[:, 1], abs=1e-6)
    assert "column 1 was taken for a yes: pass positive_class=0" in asked.notes[0]
    named = oracle(model, positive_class=0)
    assert named.ask(ROWS).probability == pytest.approx(expected[:, 0], abs=1e-6)
    assert named.notes == ()


@pytest.mark.parametrize(("out", "layer"), [(1, r"Sigmoid\(\)"), (2, r"Softmax\(dim=1\)")])
def test_logits_are_refused_with_the_remedy(out: int, layer: str) -> None:
    remedy = rf"logits.*torch.nn.Sequential\(model, torch.nn.{layer}\).*positive_class="
    with pytest.raises(OracleError, match=remedy):
        oracle(network(out=out)).ask([(1000.0, "cook", True), (-1000.0, "cook", True)])


class Functional(nn.Module):  # type: ignore[name-defined,misc]
    """Makes probabilities without a layer for it, in another precision."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 1).double()

    def forward(self, rows: Any) -> Any:
        return torch.sigmoid(self.inner(rows))


def test_a_head_that_does_not_show_is_noted() -> None:
    model = Functional()
    asked = oracle(model)
    with torch.no_grad():
        expected = model(torch.from_numpy(MATRIX).double()).numpy()[:, 0]
    assert asked.ask(ROWS).probability == pytest.approx(expected, abs=1e-6)
    assert "taken for" in asked.notes[0]


def test_labels_and_other_things() -> None:
    class Label(nn.Module):  # type: ignore[name-defined,misc]
        def forward(self, rows: Any) -> Any:
            return (rows[:, 0] > 0).long()

    class Several(nn.Module):  # type: ignore[name-defined,misc]
        def forward(self, rows: Any) -> Any:
            return rows, rows

    labels = oracle(Label())
    assert labels.ask(ROWS).decision.tolist() == (MATRIX[:, 0] > 0).tolist()
    assert labels.labels_only
    with pytest.raises(OracleError, match="returned a tuple, not a tensor"):
        oracle(Several()).ask(ROWS)
    text = Schema((Feature("job", "category", levels=("cook", "clerk")),))
    with pytest.raises(OracleError, match="'job' holds text and has no codes"):
        as_oracle(Label(), text, positive=1)


def test_rows_look_like_the_data() -> None:
    codes = pd.DataFrame(MATRIX[:, ::-1].copy(), columns=["own", "job", "income"])
    model = network(nn.Sigmoid())
    with torch.no_grad():
        expected = model.eval()(torch.tensor(codes.to_numpy())).numpy()[:, 0]
    numbers = Schema(tuple(Feature(name, "number") for name in ("income", "job", "own")))
    rows = [tuple(map(float, row)) for row in MATRIX]
    asked = as_oracle(model, numbers, positive=1, like=codes)
    assert asked.ask(rows).probability == pytest.approx(expected, abs=1e-6)
    assert asked.inputs == "like"
    # Text is refused, and the card's codes are what a network can take.
    text = pd.DataFrame({"income": [1.0], "job": ["cook"], "own": ["N"]})
    fallen = oracle(model, like=text)
    fallen.ask(ROWS)
    assert fallen.inputs == "codes"


def test_a_module_that_knows_tables_is_an_estimator() -> None:
    class Table(nn.Module):  # type: ignore[name-defined,misc]
        def predict_proba(self, frame: Any) -> Any:
            chance = 1 / (1 + np.exp(-frame["income"].to_numpy()))
            return np.column_stack([1 - chance, chance])

    assert oracle(Table(), inputs="raw").ask(ROWS).probability[3] == pytest.approx(0.5)


@pytest.mark.slow  # Importing Keras takes seconds.
def test_keras() -> None:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras = data.package("keras")
    layers = keras.layers
    keras.utils.set_random_seed(1)
    model = keras.Sequential([layers.Input((3,)), layers.Dense(4), layers.Dense(1, "sigmoid")])
    expected = model.predict(MATRIX, verbose=0)[:, 0]
    asked = oracle(model)
    answers = asked.ask(ROWS)
    assert answers.probability == pytest.approx(expected, abs=1e-6)
    assert not asked.labels_only
    assert asked.notes == ()
    two = keras.Sequential([layers.Input((3,)), layers.Dense(2, "softmax")])
    asked = oracle(two)
    assert asked.ask(ROWS).probability == pytest.approx(two.predict(MATRIX, verbose=0)[:, 1])
    assert "column 1 was taken" in asked.notes[0]
    bare = keras.Sequential([layers.Input((3,)), layers.Dense(1)])
    with pytest.raises(OracleError, match=r'logits.*Activation\("sigmoid"\)'):
        oracle(bare).ask([(float(i - 20) * 100, "cook", True) for i in range(40)])
