"""Files that would end, hang or take over the process that reads them."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
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


def test_a_node_that_no_row_on_trial_reaches_is_refused_too(tmp_path: Path) -> None:
    model = data.lgbm(n_estimators=1, num_leaves=3).fit(data.coded(), data.approved())
    text = str(model.booster_.model_to_string())
    feature, first = (re.search(rf"^{field}=(\S+)", text, re.MULTILINE) for field in
                      ("split_feature", "left_child"))  # fmt: skip
    assert feature is not None
    assert first is not None
    # Whoever gets to the second node went left at the first for x <= t, and goes left there for
    # x <= 1e308: its right leads to a leaf that is not there. Or all of that the other way round.
    never, edge = ("right_child", 1e308) if first[1] == "1" else ("left_child", -1e308)
    for field, cell in (
        ("split_feature", feature[1]), ("threshold", edge), ("decision_type", 2), (never, -99),
    ):  # fmt: skip
        text = edited(text, field, 1, cell)
    (tmp_path / "m.txt").write_text(resized(text), "utf-8")
    with pytest.raises(OracleError, match=r"m\.txt: .*damaged at tree 0"):
        load_model(tmp_path / "m.txt")


def onnx_file(file: Path, nodes: list[Any], initial: list[Any], **given: Any) -> Path:
    """Write a graph from a matrix of numbers to "probabilities"."""
    onnx = data.package("onnx")
    make, number = onnx.helper, onnx.TensorProto.FLOAT
    (name, shape) = next(iter(given.items()), ("X", [None, 6]))
    ends = [make.make_tensor_value_info(name, number, shape)]
    out = make.make_tensor_value_info("probabilities", number, None)
    graph = make.make_graph(nodes, "g", ends, [out], initializer=initial)
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)])
    model.ir_version = 8
    file.write_bytes(model.SerializeToString())
    return file


def onnx_filling(file: Path, cells: list[int]) -> Path:
    """Add the sum of a tensor of so many cells, which is filled when a row is asked for."""
    make = data.package("onnx").helper
    nodes = [
        make.make_node("ReduceMean", ["X"], ["one"], keepdims=0),
        make.make_node("Expand", ["one", "shape"], ["big"]),
        make.make_node("ReduceSum", ["big"], ["sum"], keepdims=0),
        make.make_node("Add", ["X", "sum"], ["probabilities"]),
    ]
    return onnx_file(file, nodes, [make.make_tensor("shape", 7, [len(cells)], cells)])


def onnx_loop(file: Path) -> Path:
    """Go round 2^62 times for each row."""
    make = data.package("onnx").helper
    ends: list[tuple[Any, ...]] = [
        ("i", 7, []), ("go", 9, []), ("v", 1, None), ("go2", 9, []), ("v2", 1, None),
    ]  # fmt: skip
    values = [make.make_tensor_value_info(*end) for end in ends]
    steps = [make.make_node("Identity", [name], [f"{name}2"]) for name in ("v", "go")]
    body = make.make_graph(steps, "body", values[:3], values[3:])
    loop = make.make_node("Loop", ["n", "yes", "X"], ["probabilities"], body=body)
    times, yes = make.make_tensor("n", 7, [], [2**62]), make.make_tensor("yes", 9, [], [True])
    return onnx_file(file, [loop], [times, yes])


def xgboost_wide_leaves(file: Path) -> Path:
    """Say that each leaf holds 2^31 - 1 numbers."""
    model = data.xgb().fit(data.coded(), data.approved())
    about = json.loads(bytes(model.get_booster().save_raw(raw_format="json")))
    trees = about["learner"]["gradient_booster"]["model"]["trees"]
    trees[0]["tree_param"]["size_leaf_vector"] = str(2**31 - 1)
    file.write_text(json.dumps(about), "utf-8")
    return file


def catboost_no_tables(file: Path) -> Path:
    """Overwrite what is counted of categories behind the trees, but for its first two words."""
    jobs = data.frame()[["job", "income"]]
    model = data.cat(cat_features=["job"], one_hot_max_size=1)
    model.fit(jobs, (jobs["job"] == "judge").astype(int)).save_model(str(file))
    whole = file.read_bytes()
    behind = 8 + int(struct.unpack_from("<I", whole, 4)[0]) + 8
    assert len(whole) > behind + 100
    file.write_bytes(whole[:behind] + b"\xff" * (len(whole) - behind))
    return file


def skops_far_columns(file: Path) -> Path:
    """Let sparse weights be those of columns far away."""
    model = data.logistic().fit(data.coded().fillna(0), data.approved()).sparsify()
    model.coef_.indices[:] = 2**30
    data.package("skops.io").dump(model, file)
    return file


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (xgboost_wide_leaves, "m.json"),
        (catboost_no_tables, "m.cbm"),
        pytest.param(onnx_loop, "m.onnx", marks=pytest.mark.slow),
        pytest.param(skops_far_columns, "m.skops", marks=pytest.mark.slow),
    ],
)
def test_crafted_files_of_other_kinds_are_refused_by_name(
    make: Callable[[Path], Path], name: str, tmp_path: Path
) -> None:
    """Again in a process that would be lost to each without the trial; the loop has no end."""
    if name == "m.onnx":
        data.package("onnxruntime")
    file = make(tmp_path / name)
    code = (
        "import sys\nimport numpy as np\nfrom waysout.errors import OracleError\n"
        "from waysout.oracles import file_trial\nfrom waysout.oracles.load import load_model\n"
        "file_trial.SECONDS = 3\nfile, *types = sys.argv[1:]\n"
        "try: load_model(file, trusted_types=types).predict(np.ones((9, 6)))\n"
        "except OracleError as error: print(error)\n"
    )
    types = ["numpy.dtype", "scipy.sparse._csr.csr_matrix"] if name == "m.skops" else []
    done = subprocess.run(
        [sys.executable, "-c", code, str(file), *types],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{file}: ")


def test_rows_on_trial_find_what_reading_does_not(tmp_path: Path) -> None:
    """More than any machine has, so that nothing is taken where the rows are left out."""
    data.package("onnxruntime")
    with pytest.raises(OracleError, match=r"m\.onnx: .* wanted more memory than the 4\.0 GB"):
        load_model(onnx_filling(tmp_path / "m.onnx", [10**9, 10**5]))


def test_a_file_that_wants_more_memory_than_it_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more than any machine has: nothing but the limit is against it."""
    data.package("onnxruntime")
    file = onnx_filling(tmp_path / "m.onnx", [25, 10**7])
    with monkeypatch.context() as less:
        less.setattr(file_trial, "MEMORY", 2**30)
        with pytest.raises(OracleError, match=r"m\.onnx: .* wanted more memory than the 1\.0 GB"):
            load_model(file)
    load_model(file)


def test_memory_that_runs_out_while_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_trial, "MEMORY", 2**30)
    model = data.xgb().fit(data.coded(), data.approved())
    about = json.loads(bytes(model.get_booster().save_raw(raw_format="json")))
    about["learner"]["learner_model_param"]["num_class"] = str(10**8)
    (tmp_path / "m.json").write_text(json.dumps(about), "utf-8")
    with pytest.raises(OracleError, match=r"m\.json: .* wanted more memory than the 1\.0 GB"):
        load_model(tmp_path / "m.json")


@pytest.mark.parametrize("name", ["features", "allocation", "std::bad_alloc"])
def test_a_row_on_trial_that_is_refused_is_no_want_of_memory(name: str, tmp_path: Path) -> None:
    """The model takes one row at a time, and says so by the name of its input."""
    data.package("onnxruntime")
    make = data.package("onnx").helper
    weights = make.make_tensor("w", 1, [6, 2], [0.1] * 12)
    nodes = [
        make.make_node("MatMul", [name, "w"], ["sums"]),
        make.make_node("Softmax", ["sums"], ["probabilities"]),
    ]
    file = onnx_file(tmp_path / "m.onnx", nodes, [weights], **{name: [1, 6]})
    assert load_model(file).predict(np.ones((1, 6))).values[0] == pytest.approx([0.5, 0.5])


ONNX = "[ONNXRuntimeError] :"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (ValueError("std::bad_alloc"), True),
        (RuntimeError(f"{ONNX} 1 : FAIL : Exception during loading: std::bad_alloc"), True),
        (RuntimeError(f"{ONNX} 1 : FAIL : Non-zero status code returned while running Loop node. "
                      "Name:'' Status Message: arena.cc:360 void* Allocate(size_t) Failed to "
                      "allocate memory for requested buffer of size 40000000000\n"), True),
        (RuntimeError(f"{ONNX} 2 : INVALID_ARGUMENT : Got invalid dimensions for input: "
                      "std::bad_alloc for the following indices\n index: 0 Got: 341"), False),
        (ValueError("unknown column 'bad_alloc'"), False),
    ],
)  # fmt: skip
def test_what_libraries_say_where_memory_ran_out(error: Exception, expected: bool) -> None:
    assert file_trial._is_memory(error) == expected


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


@pytest.fixture(scope="module")
def catboost_counts(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A model that counts categories of its own, in tables behind its trees."""
    jobs = data.frame()[["job", "income"]]
    model = data.cat(cat_features=["job"], one_hot_max_size=1)
    file = tmp_path_factory.mktemp("counts") / "m.cbm"
    model.fit(jobs, (jobs["job"] == "judge").astype(int)).save_model(str(file))
    return file.read_bytes()


def far_count(tables: bytes) -> bytes:
    """Let each category lead to a count far away: behind its hash is 0, 1 or 2, one table each."""
    empty = tables.index(b"\xff" * 8)
    taken = next(at for at in (empty - 12, empty + 12) if tables[at : at + 8] != b"\xff" * 8)
    return tables[: taken + 8] + struct.pack("<I", 2**30) + tables[taken + 12 :]


def no_empty_bucket(tables: bytes) -> bytes:
    """Let the search for a category that is not among them never end."""
    return tables.replace(b"\xff" * 8, b"\1" * 8)


@pytest.mark.parametrize("edit", [far_count, no_empty_bucket, lambda tables: tables[:-1]])
def test_catboost_counts_that_lead_nowhere(
    edit: Callable[[bytes], bytes], catboost_counts: bytes, tmp_path: Path
) -> None:
    """A row on trial need not have the category, and one that has would end the process."""
    behind = 8 + int(struct.unpack_from("<I", catboost_counts, 4)[0])
    (tmp_path / "m.cbm").write_bytes(catboost_counts)
    read_catboost(tmp_path / "m.cbm")
    edited = catboost_counts[:behind] + edit(catboost_counts[behind:])
    (tmp_path / "m.cbm").write_bytes(edited)
    with pytest.raises(OracleError, match="counts of categories that are not there"):
        read_catboost(tmp_path / "m.cbm")


@pytest.mark.parametrize(
    "options",
    [
        {"simple_ctr": ["Borders", "Buckets", "BinarizedTargetMeanValue", "Counter"]},
        {"max_ctr_complexity": 3, "counter_calc_method": "Full", "store_all_simple_ctr": True},
        {"grow_policy": "Lossguide", "one_hot_max_size": 2},
        {"loss_function": "MultiClass", "simple_ctr": ["Buckets", "Borders:TargetBorderCount=2"]},
    ],
)
def test_catboost_counts_of_every_kind_are_read(options: dict[str, Any], tmp_path: Path) -> None:
    table = data.frame().drop(columns="income")
    model = data.cat(**{"cat_features": data.CATEGORIES, "one_hot_max_size": 1, **options})
    many = options.get("loss_function") == "MultiClass"
    model.fit(table, data.band() if many else data.approved()).save_model(str(tmp_path / "m.cbm"))
    answers = read_catboost(tmp_path / "m.cbm").predict(table, prediction_type="Probability")
    np.testing.assert_array_equal(answers, model.predict_proba(table))


def test_catboost_files_with_texts_are_refused_for_what_they_are(tmp_path: Path) -> None:
    model = data.cat(text_features=["about"])
    table = data.frame()[["income"]].assign(about=data.frame()["job"] + " by trade")
    model.fit(table, data.approved()).save_model(str(tmp_path / "m.cbm"))
    with pytest.raises(OracleError, match=r"takes texts or embeddings.*module:function"):
        load_model(tmp_path / "m.cbm")


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


def numbers() -> Any:
    return data.coded().fillna(0).to_numpy()


def neighbours(**options: Any) -> Any:
    model = data.package("sklearn.neighbors").KNeighborsClassifier(3, leaf_size=5, **options)
    return model.fit(numbers(), data.approved())


def histograms() -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    jobs = [False, False, True, False, False, False]
    model = HistGradientBoostingClassifier(max_iter=8, categorical_features=jobs)
    return model.fit(numbers(), numbers()[:, 2] == 1)


def boosting() -> Any:
    model = data.package("sklearn.ensemble").GradientBoostingClassifier(n_estimators=4)
    return model.fit(numbers(), data.approved())


def machine(**options: Any) -> Any:
    return data.package("sklearn.svm").SVC(**options).fit(numbers(), data.band())


def words() -> Any:
    texts = data.package("sklearn.feature_extraction.text")
    return texts.CountVectorizer().fit(data.frame()["job"])


def encoder(**options: Any) -> Any:
    return data.package("sklearn.preprocessing").OneHotEncoder(**options).fit(data.frame()[["job"]])


def splines(**options: Any) -> Any:
    made = data.package("sklearn.preprocessing").SplineTransformer(**options)
    return made.fit(numbers()[:, :2])


def put(field: str, at: Any, cell: Any) -> Callable[[Any], None]:
    """Put another cell into an array of a model."""

    def edit(model: Any) -> None:
        for name in field.split("."):
            model = model[int(name)] if name.isdigit() else getattr(model, name)
        if isinstance(at, str) and isinstance(model, np.ndarray):
            model[at][:] = cell
        else:
            model[at] = cell

    return edit


def let(field: str, value: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Put something else in the place of what a model has."""
    return lambda model: setattr(model, field, value(getattr(model, field)))


def regrown(field: str, cell: int) -> Callable[[Any], None]:
    """Change a field of the nodes of a tree of neighbours, or the order of its rows."""

    def edit(model: Any) -> None:
        state = list(model._tree.__getstate__())
        nodes, order = state[2].copy(), state[1].copy()
        if field == "order":
            order[0] = cell
        else:
            nodes[field][-1] = cell
        model._tree.__setstate__((state[0], order, nodes, *state[3:]))

    return edit


@pytest.mark.parametrize(
    ("make", "edit"),
    [
        (lambda: neighbours(algorithm="kd_tree"), regrown("idx_end", 2**40)),
        (lambda: neighbours(algorithm="kd_tree"), regrown("idx_start", -5)),
        (lambda: neighbours(algorithm="kd_tree"), regrown("is_leaf", 0)),
        (lambda: neighbours(algorithm="ball_tree"), regrown("order", 10**6)),
        (lambda: neighbours(algorithm="brute"), put("_y", 3, 2**30)),
        (lambda: neighbours(algorithm="brute"), let("_y", lambda labels: labels[:9])),
        (histograms, put("_predictors.0.0.nodes", "feature_idx", 99)),
        (histograms, put("_bin_mapper.is_categorical_", 0, 0)),
        (histograms, put("_predictors.0.0.nodes", "bitset_idx", 99)),
        (boosting, let("estimators_", lambda trees: trees.reshape(1, 4))),
        (boosting, let("n_features_in_", lambda width: width + 1)),
        (lambda: boosting().estimators_[0, 0], let("n_features_in_", lambda width: width - 1)),
        (machine, let("_dual_coef_", lambda weights: weights[:, :9])),
        (machine, let("_intercept_", lambda all_: all_[:1])),
        (machine, let("support_vectors_", lambda vectors: vectors[:9])),
        (words, put("vocabulary_", "judge", 2**30)),
        (lambda: splines().bsplines_[0], let("c", lambda weights: weights[:3])),
        (lambda: splines().bsplines_[0], let("t", lambda knots: knots[::-1])),
        (encoder, put("_n_features_outs", 0, 1)),
        (
            lambda: encoder(min_frequency=70, sparse_output=False),
            put("_default_to_infrequent_mappings.0", 0, 2**30),
        ),
    ],
)
def test_parts_of_estimators_that_lead_nowhere(
    make: Callable[[], Any], edit: Callable[[Any], None]
) -> None:
    """A row on trial may never get there, and others would end the process."""
    data.package("sklearn")
    model = make()
    check_estimator(model)
    edit(model)
    with pytest.raises((OracleError, ValueError), match=r"does not have|ind(ices|ex)"):
        check_estimator(model)


def test_sound_estimators_pass_also_where_columns_become_more() -> None:
    """Behind an encoder a tree has more columns than the pipeline; a subset has fewer."""
    data.package("sklearn")
    from sklearn.ensemble import (
        BaggingClassifier,
        GradientBoostingClassifier,
        HistGradientBoostingClassifier,
    )
    from sklearn.model_selection import GridSearchCV
    from sklearn.preprocessing import KBinsDiscretizer
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    final = HistGradientBoostingClassifier(max_iter=3)
    check_estimator(data.pipeline(final, sparse_output=False).fit(data.frame(), data.approved()))
    subsets = BaggingClassifier(DecisionTreeClassifier(), n_estimators=3, max_features=2)
    check_estimator(subsets.fit(numbers(), data.band()))
    check_estimator(KBinsDiscretizer(3).fit(numbers()[:, :2]))
    # These keep an estimator that was never fitted beside those that were.
    boosting = GradientBoostingClassifier(n_estimators=2)
    search = GridSearchCV(boosting, {"max_depth": [1, 2]}, cv=2)
    check_estimator(search.fit(numbers(), data.approved()))
    for beyond in ("constant", "linear", "continue", "periodic"):
        check_estimator(splines(extrapolation=beyond))
    rows = numbers()
    check_estimator(SVC(kernel="precomputed").fit(rows @ rows.T, data.band()))
    check_estimator(encoder(drop="first", min_frequency=70, handle_unknown="ignore"))


def test_sparse_weights_of_columns_that_are_not_there() -> None:
    model = data.logistic().fit(data.coded().fillna(0), data.approved()).sparsify()
    check_estimator(model)
    model.coef_.indices[0] = 10**6
    with pytest.raises(ValueError, match=r"ind(ices|ex)"):
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
