"""Files that would end, hang or take over the process that reads them."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import oracle_data as data
import pytest

from waysout.errors import OracleError
from waysout.oracles import file_trial
from waysout.oracles.catboost import read_model as read_catboost
from waysout.oracles.estimators import check_model as check_estimator
from waysout.oracles.file_trial import follows, try_file
from waysout.oracles.lightgbm import check_model as check_lightgbm
from waysout.oracles.load import load_model
from waysout.oracles.xgboost import check_model as check_xgboost


class Text:
    """A booster that was read from this text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def model_to_string(self, num_iteration: int) -> str:
        return self.text

    def dump_model(self) -> dict[str, Any]:
        return {}

    def save_raw(self, raw_format: str) -> bytes:
        return self.text.encode()


@pytest.fixture(scope="module")
def lightgbm_text() -> str:
    """Trees that split numbers and categories, with lines in their leaves."""
    options = {"min_data_per_group": 5, "cat_smooth": 1, "max_cat_to_onehot": 1}
    model = data.lgbm(linear_tree=True, **options).fit(data.categorical(), data.approved())
    return str(model.booster_.model_to_string())


def edited(text: str, field: str, at: int, cell: object) -> str:
    """Put another cell into an array of the first tree that has it."""
    found = re.search(rf"^{field}=(\S.*)$", text, re.MULTILINE)
    assert found is not None, field
    cells = found[1].split(" ")
    cells[at] = str(cell)
    return text[: found.start(1)] + " ".join(cells) + text[found.end(1) :]


def resized(text: str) -> str:
    """Write the sizes of the trees anew, which reading a file begins with."""
    start, end = text.index("Tree=0"), text.index("end of trees")
    trees = [t for t in re.split(r"(?=^Tree=)", text[start:end], flags=re.MULTILINE) if t]
    sizes = " ".join(str(len(tree.encode())) for tree in trees)
    return re.sub(r"tree_sizes=.*", f"tree_sizes={sizes}", text[:start]) + text[start:]


def test_files_that_ended_or_hung_the_process_are_refused_by_name(
    lightgbm_text: str, tmp_path: Path
) -> None:
    """In a process of its own, which without the trial would be lost at the first file."""
    crafted = {
        "circle": edited(lightgbm_text, "left_child", 0, 0),
        "column": edited(lightgbm_text, "split_feature", 0, 10**6),
        "classes": edited(lightgbm_text, "num_class", 0, 2**31 - 1),
    }
    for name, text in crafted.items():
        (tmp_path / f"{name}.txt").write_text(resized(text), "utf-8")
    code = (
        "import sys\nfrom waysout.errors import OracleError\n"
        "from waysout.oracles.load import load_model\n"
        "for path in sys.argv[1:]:\n"
        "    try: load_model(path).predict([[1.0] * 6] * 99)\n"
        "    except OracleError as error: print(error)\n"
    )
    paths = [str(tmp_path / f"{name}.txt") for name in crafted]
    done = subprocess.run(
        [sys.executable, "-c", code, *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert len(told) == 3
    assert all(line.startswith(path) for path, line in zip(paths, told, strict=True))
    assert all("damaged" in line for line in told)


@pytest.mark.parametrize(
    ("field", "at", "cell"),
    [
        ("left_child", 0, 10**4), ("right_child", 0, -(10**4)), ("left_child", 0, 0),
        ("split_feature", 0, 6), ("split_feature", 0, -1), ("num_leaves", 0, 2),
        ("num_cat", 0, 7), ("cat_boundaries", -1, 10**6), ("leaf_features", 0, 99),
        ("num_features", 0, -1), ("num_class", 0, 3), ("num_tree_per_iteration", 0, 2),
        ("max_feature_idx", 0, 900), ("num_class", 0, 0),
    ],
)  # fmt: skip
def test_lightgbm_indices_that_lead_nowhere(
    lightgbm_text: str, field: str, at: int, cell: int
) -> None:
    check_lightgbm(Text(lightgbm_text))
    with pytest.raises(OracleError, match="damaged"):
        check_lightgbm(Text(edited(lightgbm_text, field, at, cell)))


def test_lightgbm_splits_by_categories_that_are_not_there(lightgbm_text: str) -> None:
    kinds = re.compile(r"^decision_type=(.+)$", re.MULTILINE)
    text = kinds.sub(
        lambda m: "decision_type=" + " ".join("1" for _ in m[1].split()), lightgbm_text
    )
    with pytest.raises(OracleError, match="damaged"):
        check_lightgbm(Text(text))


@pytest.fixture(scope="module")
def xgboost_json() -> Any:
    model = data.xgb(enable_categorical=True, max_cat_to_onehot=1)
    model.fit(data.categorical(), data.approved())
    return json.loads(bytes(model.get_booster().save_raw(raw_format="json")))


@pytest.mark.parametrize(
    ("field", "cell"),
    [
        ("left_children", 10**6), ("left_children", 0), ("right_children", -7),
        ("split_indices", 6), ("split_indices", -1), ("categories_segments", 10**6),
        ("categories_sizes", -1), ("categories_nodes", 10**6), ("split_type", None),
    ],
)  # fmt: skip
def test_xgboost_indices_that_lead_nowhere(xgboost_json: Any, field: str, cell: int | None) -> None:
    check_xgboost(Text(json.dumps(xgboost_json)))
    model = json.loads(json.dumps(xgboost_json))
    trees = model["learner"]["gradient_booster"]["model"]["trees"]
    tree = next(tree for tree in trees if tree["categories_nodes"])
    if cell is None:
        tree[field].pop()
    else:
        tree[field][0] = cell
    with pytest.raises(OracleError, match="damaged"):
        check_xgboost(Text(json.dumps(model)))


@pytest.mark.parametrize(("field", "cell"), [("tree_info", 1), ("iteration_indptr", 99)])
def test_xgboost_trees_of_classes_that_are_not_there(
    xgboost_json: Any, field: str, cell: int
) -> None:
    model = json.loads(json.dumps(xgboost_json))
    model["learner"]["gradient_booster"]["model"][field][-1] = cell
    with pytest.raises(OracleError, match="damaged"):
        check_xgboost(Text(json.dumps(model)))


@pytest.mark.parametrize("options", [{}, {"grow_policy": "Lossguide"}, {"ignored_features": [1]}])
def test_catboost_indices_that_lead_nowhere(options: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "m.cbm"
    model = data.cat(**options).fit(data.coded(), data.approved())
    model.save_model(str(file))
    whole, own = file.read_bytes(), model.predict_proba(data.coded())
    np.testing.assert_array_equal(
        read_catboost(file).predict(data.coded(), prediction_type="Probability"), own
    )
    size = len(model.get_leaf_values())
    length = whole.index(struct.pack("<I", size) + struct.pack("<d", model.get_leaf_values()[0]))
    file.write_bytes(whole[:length] + struct.pack("<I", size - 1) + whole[length + 4 :])
    with pytest.raises(OracleError, match="damaged"):
        read_catboost(file)


@pytest.mark.parametrize("field", ["left_child", "right_child", "feature"])
def test_forests_whose_trees_lead_nowhere(field: str) -> None:
    forest = data.forest().fit(data.coded().fillna(0), data.approved())
    check_estimator(forest)
    tree = forest.estimators_[0].tree_
    state = tree.__getstate__()
    state["nodes"][field][0] = 10**6
    tree.__setstate__(state)
    with pytest.raises(OracleError, match="does not have"):
        check_estimator(forest)


def test_sparse_weights_of_columns_that_are_not_there() -> None:
    model = data.logistic().fit(data.coded().fillna(0), data.approved()).sparsify()
    check_estimator(model)
    model.coef_.indices[0] = 10**6
    with pytest.raises(ValueError, match="indices"):
        check_estimator(model)


def test_ways_down() -> None:
    leaf = np.array([False, True, True])
    assert follows(np.array([[1, 2], [9, 9], [9, 9]]), leaf)
    for wrong in ([[1, 3]], [[1, -1]], [[1, 1]], [[0, 1]]):
        assert not follows(np.array([*wrong, [9, 9], [9, 9]]), leaf)


@pytest.mark.parametrize(
    ("code", "match"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", r"ended by it \(SIGSEGV\)"),
        ("import sys; sys.exit(3)", r"ended by it \(exit code 3\)"),
        ("import time; time.sleep(600)", r"took more than 1 s and was stopped"),
        ("print('memory', end='')", r"wanted more memory than the 4\.0 GB"),
        ("print('the reason', end='')", r"^the reason$"),
    ],
)
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of POSIX")
def test_how_a_trial_ends(
    code: str, match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.txt").write_bytes(b"tree")
    monkeypatch.setattr(file_trial, "_START", code)
    monkeypatch.setattr(file_trial, "SECONDS", 1 if "sleep" in code else 60)
    with pytest.raises(OracleError, match=match):
        try_file(tmp_path / "m.txt", ".txt", json)


def test_a_file_is_tried_once(
    lightgbm_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its content, and not again by the next process."""
    tried: list[Path] = []
    monkeypatch.setattr(file_trial, "_run", lambda file, *_: tried.append(file))
    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path / "cache"))
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path in paths:
        path.write_text(lightgbm_text, "utf-8")
        load_model(path)
    monkeypatch.setattr(file_trial, "_sound", set())  # as in another process
    load_model(paths[0])
    assert tried == [paths[0]]
    paths[1].write_text(lightgbm_text + "\n", "utf-8")
    load_model(paths[1])
    assert tried == paths


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_pipes_are_no_model_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.txt")
    with pytest.raises(OracleError, match="a pipe or a device"):
        load_model(tmp_path / "m.txt")
