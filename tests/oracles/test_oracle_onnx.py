"""ONNX models of both kinds: one matrix, and one tensor a column."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import oracle_data as data
import pytest

from waysout.domain.schema import Feature, Schema
from waysout.errors import OracleError
from waysout.oracles.adapt import as_oracle
from waysout.oracles.load import load_model
from waysout.oracles.onnx import OnnxModel

pytest.importorskip("onnxruntime", reason="the optional package onnxruntime is not installed")
pytest.importorskip("skl2onnx", reason="skl2onnx, which makes the files, is not installed")

# An operator set that every onnxruntime we allow can read.
OPSET = 17
TARGETS = {"text": data.outcome, "numbers": data.approved, "bands": data.band}


def filled(table: Any) -> Any:
    return table.assign(income=table["income"].fillna(50.0))


def whole_rows() -> tuple[list[Any], Any]:
    keep = data.frame()["income"].notna().to_numpy()
    return [row for row, k in zip(data.rows(), keep, strict=True) if k], keep


def matrix_model(target: str, path: Path, **options: Any) -> Any:
    from skl2onnx import to_onnx

    table = filled(data.coded()).to_numpy(np.float32)
    model = data.forest(max_depth=4).fit(table, TARGETS[target]())
    settings = {id(model): options} if options else None
    path.write_bytes(
        to_onnx(model, table[:1], options=settings, target_opset=OPSET).SerializeToString()
    )
    return model, model.predict_proba(table)


def column_model(target: str, path: Path, **options: Any) -> Any:
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType

    types = {"f": FloatTensorType, "i": Int64TensorType}
    table = filled(data.frame())
    kinds = [(n, types.get(table[n].dtype.kind, StringTensorType)([None, 1])) for n in table]
    model = data.pipeline(data.logistic()).fit(table, TARGETS[target]())
    settings = {id(model): options} if options else None
    made = convert_sklearn(model, initial_types=kinds, options=settings, target_opset=OPSET)
    path.write_bytes(made.SerializeToString())
    return model, model.predict_proba(table)


MAKERS = {"matrix": matrix_model, "columns": column_model}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(
    ("target", "positive"), [("text", "Approved"), ("numbers", 1), ("bands", "high")]
)
def test_class_names_come_with_the_file(
    kind: str, target: str, positive: Any, tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    model, own = MAKERS[kind](target, path)
    oracle = as_oracle(load_model(path), data.SCHEMA, positive=positive)
    rows, keep = whole_rows()
    answers = oracle.ask(rows)
    column = list(model.classes_).index(positive)
    np.testing.assert_allclose(answers.probability, own[keep][:, column], rtol=0, atol=1e-5)
    assert answers.decision.any()
    assert not oracle.labels_only


def test_bare_columns_of_a_numbered_model(tmp_path: Path) -> None:
    _, own = matrix_model("numbers", tmp_path / "m.onnx", zipmap=False)
    rows, keep = whole_rows()
    oracle = as_oracle(load_model(tmp_path / "m.onnx"), data.SCHEMA, positive="Approved")
    np.testing.assert_allclose(oracle.ask(rows).probability, own[keep][:, 1], rtol=0, atol=1e-5)
    assert oracle.assumed_class


def test_bare_columns_of_a_named_model_are_not_guessed(tmp_path: Path) -> None:
    """Approved comes before Rejected: column 1 would be the wrong one."""
    _, own = matrix_model("text", tmp_path / "m.onnx", zipmap=False)
    rows, keep = whole_rows()
    loaded = load_model(tmp_path / "m.onnx")
    with pytest.raises(OracleError, match="positive_class="):
        as_oracle(loaded, data.SCHEMA, positive="Approved").ask(rows)
    named = as_oracle(loaded, data.SCHEMA, positive="Approved", positive_class=0)
    np.testing.assert_allclose(named.ask(rows).probability, own[keep][:, 0], rtol=0, atol=1e-5)


def test_model_that_gives_labels_only(tmp_path: Path) -> None:
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression

    table = filled(data.coded()).to_numpy(np.float32)
    model = LogisticRegression(max_iter=2000).fit(table, data.outcome())
    made = to_onnx(model, table[:1], options={"zipmap": False}, target_opset=OPSET)
    del made.graph.output[1]
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    rows, keep = whole_rows()
    oracle = as_oracle(load_model(tmp_path / "m.onnx"), data.SCHEMA, positive="Approved")
    expected = model.predict(table)[keep] == "Approved"
    assert oracle.ask(rows).decision.tolist() == expected.tolist()
    assert oracle.labels_only


def test_bare_session_and_missing_values(tmp_path: Path) -> None:
    import onnxruntime

    column_model("text", tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    oracle = as_oracle(session, data.SCHEMA, positive="Approved")
    assert len(oracle.ask(data.rows()[:4])) == 4
    gap = data.SCHEMA.replace(data.rows()[0], {"job": None})
    with pytest.raises(OracleError, match=r"'job' holds nan.*no missing values"):
        oracle.ask([gap])


class FakeSession:
    """Just enough of a session to be asked wrongly."""

    def __init__(self, **inputs: str) -> None:
        self.inputs = [SimpleNamespace(name=n, type=t, shape=[None, 1]) for n, t in inputs.items()]

    def get_inputs(self) -> Any:
        return self.inputs

    def get_outputs(self) -> Any:
        return [SimpleNamespace(name="probability", type="tensor(float)", shape=[None, 1])]

    def run(self, names: Any, feeds: dict[str, Any]) -> Any:
        return [np.full((len(next(iter(feeds.values()))), 1), 0.25, dtype=np.float32)]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"income": "tensor(int64)", "job": "tensor(string)"}, "'income' holds .*whole numbers"),
        (
            {"income": "tensor(float16)", "job": "tensor(string)"},
            r"'income' is a tensor\(float16\)",
        ),
        ({"x": "tensor(string)"}, "one tensor of text"),
        ({"x": "tensor(float)"}, "1 columns and the card describes 6"),
        ({"income": "tensor(float)", "jobs": "tensor(string)"}, "did you mean 'job'"),
    ],
)
def test_inputs_that_cannot_be_filled(inputs: dict[str, str], message: str) -> None:
    with pytest.raises(OracleError, match=message):
        as_oracle(OnnxModel(FakeSession(**inputs)), data.SCHEMA, positive=1).ask(whole_rows()[0])


def test_one_score_a_row_is_the_chance_of_approval() -> None:
    model = OnnxModel(FakeSession(income="tensor(double)", own="tensor(bool)"))
    for inputs in ("auto", "codes"):
        oracle = as_oracle(model, data.SCHEMA, positive="Approved", inputs=inputs)
        assert set(oracle.ask(data.rows()).probability) == {0.25}


@pytest.mark.parametrize(
    ("row", "message"),
    [((None, 3), "column 'income' holds nan"), ((2.5, 3), "column 'income' holds 2.5")],
)
def test_a_matrix_of_integers_takes_nothing_else(row: Any, message: str) -> None:
    schema = Schema((Feature("income", "number", missing="keep"), Feature("term", "integer")))
    seen: list[Any] = []
    node = SimpleNamespace(name="X", type="tensor(int64)", shape=[None, 2])

    def run(_: Any, feeds: Any) -> Any:
        seen.append(feeds["X"].tolist())
        return [np.array([0.25])]

    session = SimpleNamespace(
        get_inputs=lambda: [node],
        get_outputs=lambda: [SimpleNamespace(name="p", type="tensor(float)")],
        run=run,
    )
    oracle = as_oracle(OnnxModel(session), schema, positive=1)
    assert oracle.ask([(2.0, 3)]).probability.tolist() == [0.25]
    assert seen == [[[2, 3]]]
    with pytest.raises(OracleError, match=message):
        oracle.ask([row])
