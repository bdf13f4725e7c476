"""The damaged and hostile model files of `crafted_models.py`, each kind by its seed."""

from __future__ import annotations

import io
import json
import random
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.domain.schema import Feature, Row, Schema

NUMBERS = ("income", "debt", "age", "years")
JOBS = tuple("abcdefgh")
TRUSTED = (
    "numpy.dtype", "sklearn.tree._tree.Tree", "scipy.sparse._csr.csr_matrix",
    "sklearn.neighbors._kd_tree.KDTree", "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
)  # fmt: skip
INTEGERS = (-1, -2, 1, 7, 10**4, 10**6, 2**31 - 1, -(2**31), 0)
FLOATS = ("nan", "inf", "-inf", "1e308", "-0.0")
Edit = Callable[[bytes, random.Random], bytes]
Made = Iterator[Path]


def schema() -> Schema:
    """Return what describes the table."""
    codes = {job: i for i, job in enumerate(JOBS)}
    numbers = [Feature(name, "number", missing="keep") for name in NUMBERS]
    return Schema((*numbers, Feature("job", "category", levels=JOBS, codes=codes)))


def table(n: int = 300) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the numbers of the table, jobs as their codes, and the outcome."""
    rng = np.random.default_rng(5)
    cells = np.column_stack([rng.normal(0, 10, (n, 4)), rng.integers(0, len(JOBS), n)])
    score = cells[:, 0] - cells[:, 1] + 12 * (cells[:, 4] % 3 == 1) + rng.normal(0, 3, n)
    return cells, (score > 2).astype(np.int64)


def rows(n: int) -> list[Row]:
    """Return rows, extreme and missing values among them."""
    cells, _ = table(n)
    cells[::7, 1], cells[::11, 2], cells[::13, 0] = np.nan, 1e12, -1e12
    made = []
    for row in cells.tolist():
        numbers = [None if x != x else x for x in row[:4]]
        made.append((*numbers, JOBS[int(row[4])]))
    return made


def flip(content: bytes, rng: random.Random) -> bytes:
    """Change a few bytes."""
    made = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 32))):
        made[rng.randrange(len(made))] = rng.choice((0, 255, 0x7F, 0x80, rng.randrange(256)))
    return bytes(made)


def cut(content: bytes, rng: random.Random) -> bytes:
    """Leave the end out, or a piece."""
    at = rng.randrange(1, len(content))
    return content[:at] + (content[at + rng.randrange(1, 200) :] if rng.random() < 0.4 else b"")


def digits(content: bytes, rng: random.Random) -> bytes:
    """Put another number in the place of one."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?(e[-+]?\d+)?", content))
    at = rng.choice(found)
    new = rng.choice([str(i).encode() for i in INTEGERS] + [b"99999999999999999999", b"1e400"])
    return content[: at.start()] + new + content[at.end() :]


def words(content: bytes, rng: random.Random) -> bytes:
    """Overwrite aligned words: in a binary file these are counts, offsets and indices."""
    made = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(0, max(1, len(made) - 8)) // 4 * 4
        made[at : at + 4] = struct.pack("<i", rng.choice(INTEGERS))
    return bytes(made)


def _write(
    folder: Path, suffix: str, wholes: list[bytes], edits: list[Edit], files: int, seed: int
) -> Made:
    """Write the models as they are, then damaged, each edit in its turn."""
    for i, whole in enumerate(wholes):
        file = folder / f"whole{i}{suffix}"
        file.write_bytes(whole)
        yield file
    turns = ((whole, edit) for edit in cycle(edits) for whole in wholes)
    for i, (whole, edit) in enumerate(islice(turns, max(files, len(edits)))):
        name = getattr(edit, "__name__", "edit").strip("_")
        file = folder / f"{i:03d}-{name}{suffix}"
        file.write_bytes(edit(whole, random.Random(f"{seed} {i}")))
        yield file


# LightGBM: text, an array a line.

TREE_INTS = (
    "split_feature", "left_child", "right_child", "decision_type", "cat_boundaries",
    "cat_threshold", "num_leaves", "num_cat", "leaf_count", "num_features", "leaf_features",
)  # fmt: skip
HEAD_INTS = ("num_class", "num_tree_per_iteration", "label_index", "max_feature_idx")


def _sized(text: str) -> bytes:
    """Return a text model whose tree_sizes are those of its trees."""
    start, end = text.index("Tree=0"), text.index("end of trees")
    trees = re.split(r"(?=^Tree=)", text[start:end], flags=re.MULTILINE)
    sizes = " ".join(str(len(tree.encode())) for tree in trees if tree)
    head = re.sub(r"tree_sizes=.*", f"tree_sizes={sizes}", text[:start])
    return (head + text[start:]).encode()


def _line_edit(names: tuple[str, ...], values: tuple[Any, ...]) -> Edit:
    def field(content: bytes, rng: random.Random) -> bytes:
        text = content.decode()
        found = [m for n in names for m in re.finditer(rf"^{n}=(\S.*)$", text, re.MULTILINE)]
        if not found:
            return flip(content, rng)
        at = rng.choice(found)
        cells = at[1].split(" ")
        cells[rng.randrange(len(cells))] = str(rng.choice(values))
        return _sized(text[: at.start(1)] + " ".join(cells) + text[at.end(1) :])

    return field


def _cyclic(content: bytes, rng: random.Random) -> bytes:
    """Let a child be the root, or its parent."""
    text = content.decode()
    at = rng.choice(list(re.finditer(r"^(left|right)_child=(.+)$", text, re.MULTILINE)))
    cells = at[2].split(" ")
    i = rng.randrange(len(cells))
    cells[i] = str(rng.choice((0, i)))
    return _sized(text[: at.start(2)] + " ".join(cells) + text[at.end(2) :])


def _all_cats(content: bytes, rng: random.Random) -> bytes:
    """Call every split categorical, though there are no sets of categories."""
    made = re.sub(
        r"^decision_type=(.+)$",
        lambda m: "decision_type=" + " ".join("1" for _ in m[1].split()),
        content.decode(), flags=re.MULTILINE,
    )  # fmt: skip
    made = re.sub(r"^threshold=(\S+)", f"threshold={rng.choice(INTEGERS)}", made, flags=re.M)
    return _sized(made)


def lightgbm(folder: Path, files: int, seed: int, canary: Path) -> Made:
    """Yield LightGBM text models."""
    import lightgbm as lgb

    cells, outcome = table()
    wholes = []
    for options in ({}, {"linear_tree": True}, {"num_leaves": 4}):
        data = lgb.Dataset(
            cells, outcome, feature_name=[*NUMBERS, "job"],
            categorical_feature=[] if options.get("num_leaves") else [4],
            params={"verbose": -1, "min_data_per_group": 5, "cat_smooth": 1, **options},
        )  # fmt: skip
        fixed = {"objective": "binary", "verbose": -1, "num_threads": 1, "max_cat_to_onehot": 1}
        booster = lgb.train({**fixed, **options}, data, 5)
        wholes.append(booster.model_to_string().encode())
    edits = [
        _line_edit(("left_child", "right_child"), INTEGERS), _cyclic,
        _line_edit(("split_feature",), INTEGERS), _all_cats,
        _line_edit(TREE_INTS, INTEGERS), _line_edit(("cat_boundaries", "num_cat"), INTEGERS),
        _line_edit(HEAD_INTS, INTEGERS), _line_edit(("threshold", "leaf_value"), FLOATS),
        _line_edit(("leaf_features", "num_features"), INTEGERS), flip, cut, digits,
        _line_edit(("feature_infos", "feature_names", "objective"), ("none", "[1:", "x" * 99)),
    ]  # fmt: skip
    return _write(folder, ".txt", wholes, edits, files, seed)


# XGBoost: JSON, and the same as UBJSON.

XGB_ARRAYS = (
    "left_children", "right_children", "parents", "split_indices", "split_type", "categories",
    "categories_nodes", "categories_segments", "categories_sizes", "default_left", "tree_info",
    "iteration_indptr", "offsets",
)  # fmt: skip
XGB_PARAMS = ("num_nodes", "num_feature", "num_class", "num_trees", "size_leaf_vector",
              "num_target", "num_parallel_tree", "base_score")  # fmt: skip


def _xgb_models() -> list[Any]:
    import pandas as pd
    import xgboost as xgb

    cells, outcome = table()
    frame = pd.DataFrame(cells, columns=[*NUMBERS, "job"])
    codes = pd.DataFrame(cells, columns=[*NUMBERS, "job"])
    frame["job"] = pd.Categorical([JOBS[int(i)] for i in cells[:, 4]], categories=JOBS)
    made = []
    for data, options in ((frame, {"max_cat_to_onehot": 1}), (codes, {}),
                          (codes, {"booster": "dart", "rate_drop": 0.3}),
                          (codes, {"booster": "gblinear"})):  # fmt: skip
        matrix = xgb.DMatrix(data, outcome, enable_categorical=True)
        fixed = {"objective": "binary:logistic", "max_depth": 3, "nthread": 1}
        made.append(xgb.train({**fixed, **options}, matrix, 5))
    return made


def _places(value: Any, names: tuple[str, ...], found: list[tuple[Any, Any]]) -> None:
    """Find the fields of these names, however deep."""
    if isinstance(value, dict):
        found += [(value, name) for name in names if name in value]
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, (dict, list)):
            _places(part, names, found)


def _json_edit(names: tuple[str, ...], values: tuple[Any, ...]) -> Edit:
    def field(content: bytes, rng: random.Random) -> bytes:
        model = json.loads(content)
        found: list[tuple[Any, Any]] = []
        _places(model, names, found)
        if not found:
            return digits(content, rng)
        owner, name = rng.choice(found)
        new = rng.choice(values)
        if isinstance(owner[name], list) and owner[name] and rng.random() < 0.9:
            owner[name][rng.randrange(len(owner[name]))] = new
        elif isinstance(owner[name], list):
            owner[name] = owner[name][: rng.randrange(len(owner[name]) + 1)]
        else:
            owner[name] = str(new) if isinstance(owner[name], str) else new
        return json.dumps(model).encode()

    return field


def xgboost_json(folder: Path, files: int, seed: int, canary: Path) -> Made:
    """Yield XGBoost models as JSON."""
    wholes = [bytes(m.save_raw(raw_format="json")) for m in _xgb_models()]
    children = ("left_children", "right_children")
    edits = [
        _json_edit(children, INTEGERS), _json_edit(children, (0, 1, 2, 3)),
        _json_edit(("split_indices",), INTEGERS), _json_edit(XGB_ARRAYS, INTEGERS),
        _json_edit(XGB_PARAMS, INTEGERS), _json_edit(("weights", "weight_drop"), (1e300, "x")),
        _json_edit(XGB_ARRAYS[5:9], INTEGERS), _json_edit(("tree_info",), INTEGERS),
        _json_edit(("split_conditions", "base_weights"), (float("nan"), 1e300, 10**30)),
        _json_edit(("id", "name", "version", "objective"), (-1, 99, 10**6)),
        _json_edit(("feature_names", "feature_types", "cats", "enc"), ("c", 5, None)),
        flip, cut, digits,
    ]  # fmt: skip
    return _write(folder, ".json", wholes, edits, files, seed)


def _ubj_edit(names: tuple[str, ...]) -> Edit:
    """Change a cell of a typed array, or its length."""

    def field(content: bytes, rng: random.Random) -> bytes:
        found = [
            m for n in names for m in re.finditer(rb"%s\[\$([lLUdDi])#L(.{8})" % n.encode(),
                                                  content, re.DOTALL)
        ]  # fmt: skip
        if not found:
            return words(content, rng)
        at, made = rng.choice(found), bytearray(content)
        size = {b"l": 4, b"L": 8, b"U": 1, b"d": 4, b"D": 8, b"i": 1}[at[1]]
        (length,) = struct.unpack(">q", at[2])
        if not length or rng.random() < 0.15:
            made[at.start(2) : at.end(2)] = struct.pack(">q", rng.choice((0, 2**40, -1, 2**62)))
            return bytes(made)
        start = at.end() + size * rng.randrange(length)
        value = rng.choice(INTEGERS) & (256**size - 1)
        made[start : start + size] = value.to_bytes(size, "big")
        return bytes(made)

    return field


def xgboost_ubj(folder: Path, files: int, seed: int, canary: Path) -> Made:
    """Yield XGBoost models as UBJSON."""
    wholes = [bytes(m.save_raw(raw_format="ubj")) for m in _xgb_models()]
    edits = [
        _ubj_edit(("left_children", "right_children")), _ubj_edit(XGB_ARRAYS),
        _ubj_edit(("split_indices", "split_type")), _ubj_edit(XGB_ARRAYS[5:9]), flip, cut, words,
        _ubj_edit(("split_conditions", "base_weights", "weights")), digits,
    ]  # fmt: skip
    return _write(folder, ".ubj", wholes, edits, files, seed)


# CatBoost: a flatbuffer behind 8 bytes.


def catboost(folder: Path, files: int, seed: int, canary: Path) -> Made:
    """Yield CatBoost models, of symmetric and other trees, with and without categories."""
    import catboost as cb
    import pandas as pd

    cells, outcome = table()
    frame = pd.DataFrame(cells, columns=[*NUMBERS, "job"])
    texts = frame.assign(job=[JOBS[int(i)] for i in cells[:, 4]])
    wholes = []
    for data, options in ((texts, {"cat_features": ["job"]}), (frame, {}),
                          (frame, {"grow_policy": "Lossguide"})):  # fmt: skip
        model = cb.CatBoostClassifier(
            iterations=5, depth=3, verbose=0, allow_writing_files=False, thread_count=1,
            random_seed=1, **options,
        ).fit(data, outcome)  # fmt: skip
        model.save_model(str(folder / "made.cbm"))
        wholes.append((folder / "made.cbm").read_bytes())
    return _write(folder, ".cbm", wholes, [words, words, words, flip, cut, words], files, seed)


def _behind_core(edit: Edit) -> Edit:
    """Edit what stands behind the trees: the counts of categories."""

    def counts(content: bytes, rng: random.Random) -> bytes:
        behind = 8 + int(struct.unpack_from("<I", content, 4)[0])
        return content[:behind] + edit(content[behind:], rng)

    return counts


def _far_counts(content: bytes, rng: random.Random) -> bytes:
    """Let buckets of categories, a hash of 8 bytes and an index each, lead to other counts."""
    made, empty = bytearray(content), content.find(b"\xff" * 8)
    for at in range(empty % 12 + 8, len(made) - 4, 12):
        if abs(at - empty) < 100 and rng.random() < 0.5:
            made[at : at + 4] = struct.pack("<i", rng.choice((*INTEGERS, 2**29, 2**30)))
    return bytes(made)


def catboost_counts(folder: Path, files: int, seed: int, canary: Path) -> Made:
    """Yield CatBoost models that count categories in every way."""
    import catboost as cb
    import pandas as pd

    cells, _ = table()
    frame = pd.DataFrame(cells, columns=[*NUMBERS, "job"])
    frame["job"] = [JOBS[int(i)] for i in cells[:, 4]]
    outcome = (cells[:, 4] % 3 == 1).astype(np.int64)
    wholes = []
    for kind in ("Borders", "Buckets", "BinarizedTargetMeanValue", "Counter"):
        model = cb.CatBoostClassifier(
            iterations=5, depth=3, verbose=0, allow_writing_files=False, thread_count=1,
            random_seed=1, cat_features=["job"], one_hot_max_size=1, simple_ctr=[kind],
            combinations_ctr=[kind],
        ).fit(frame, outcome)  # fmt: skip
        model.save_model(str(folder / "made.cbm"))
        wholes.append((folder / "made.cbm").read_bytes())
    edits = [_behind_core(edit) for edit in (_far_counts, words, _far_counts, words, flip, cut)]
    return _write(folder, ".cbm", wholes, edits, files, seed)


# ONNX: see crafted_onnx.py. skops: a zip of schema.json and arrays.


def onnx(folder: Path, files: int, seed: int, canary: Path) -> Made:
    """Yield ONNX models."""
    import crafted_onnx

    cells, outcome = table()
    wholes = crafted_onnx.wholes(cells, outcome)
    edits = [crafted_onnx.tree_edit, *crafted_onnx.GRAPHS, crafted_onnx.tree_edit,
             crafted_onnx.tree_edit, words, flip, cut]  # fmt: skip
    return _write(folder, ".onnx", wholes, edits, files, seed)


def _zip_edit(change: Callable[[dict[str, bytes], random.Random], None]) -> Edit:
    def archive(content: bytes, rng: random.Random) -> bytes:
        with zipfile.ZipFile(io.BytesIO(content)) as opened:
            parts = {name: opened.read(name) for name in opened.namelist()}
        change(parts, rng)
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as made:
            for name, part in parts.items():
                made.writestr(name, part)
        return stream.getvalue()

    archive.__name__ = getattr(change, "__name__", "archive")
    return archive


def _nodes(value: Any, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        if "__class__" in value:
            found.append(value)
        for part in value.values():
            _nodes(part, found)
    elif isinstance(value, list):
        for part in value:
            _nodes(part, found)
    return found


def _skops_edits(canary: Path) -> list[Edit]:
    """Return what turns a skops file against its reader."""
    import pickle

    class Touch:
        def __reduce__(self) -> Any:
            return Path.touch, (canary,)

    def types(parts: dict[str, bytes], rng: random.Random) -> None:
        tree = json.loads(parts["schema.json"])
        node = rng.choice(_nodes(tree, []))
        bad = [("os", "system"), ("builtins", "eval"), ("subprocess", "Popen"), ("pathlib", "Path"),
               ("sklearn.svm", "SVC"), ("numpy", "load"), ("builtins", "exec")]  # fmt: skip
        node["__module__"], node["__class__"] = rng.choice(bad)
        parts["schema.json"] = json.dumps(tree).encode()

    def loaders(parts: dict[str, bytes], rng: random.Random) -> None:
        tree = json.loads(parts["schema.json"])
        node, other = rng.choice(_nodes(tree, [])), rng.choice(_nodes(tree, []))
        node["__loader__"] = rng.choice([
            other["__loader__"], "ReduceNode", "MethodNode", "FunctionNode", "PartialNode",
            "OperatorFuncNode", "TypeNode", "CachedNode", "ObjectNode", 7, None,
        ])  # fmt: skip
        node["content"] = rng.choice([
            f"open({str(canary)!r}, 'w')", other.get("content"), 5, {"a": 1}, None,
            {"module_path": "os", "function": "system", "args": [f"touch {canary}"]},
        ])  # fmt: skip
        parts["schema.json"] = json.dumps(tree).encode()

    def payload(parts: dict[str, bytes], rng: random.Random) -> None:
        arrays = [name for name in parts if name.endswith(".npy")]
        stream = io.BytesIO()
        np.save(stream, np.array([Touch()], dtype=object), allow_pickle=True)
        raw = rng.choice([stream.getvalue(), pickle.dumps(Touch())])
        parts[rng.choice(arrays or ["schema.json"])] = raw

    def bomb(parts: dict[str, bytes], rng: random.Random) -> None:
        arrays = [name for name in parts if name.endswith(".npy")] or ["a.npy"]
        if rng.random() < 0.5:
            parts[rng.choice(arrays)] = b"\0" * 300_000_000
        else:
            head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }" % 10 ** rng.choice(
                (9, 10, 12, 18)
            )
            parts[rng.choice(arrays)] = (
                b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head) + 1) + head + b"\n"
            )

    def traversal(parts: dict[str, bytes], rng: random.Random) -> None:
        tree = json.loads(parts["schema.json"])
        files = [n for n in _nodes(tree, []) if "file" in n]
        if files:
            rng.choice(files)["file"] = rng.choice(["../../etc/passwd", "/etc/passwd", "x" * 5000])
        parts[f"../../{canary}"] = parts[str(canary)] = b"x"
        parts["schema.json"] = json.dumps(tree).encode()

    def deep(parts: dict[str, bytes], rng: random.Random) -> None:
        depth = rng.choice((500, 5000, 100_000))
        parts["schema.json"] = b'{"content":' * depth + b"1" + b"}" * depth

    def arrays(parts: dict[str, bytes], rng: random.Random) -> None:
        name = rng.choice([n for n in parts if n.endswith((".npy", ".npz"))] or ["schema.json"])
        edit = rng.choice((words, words, flip, cut))
        parts[name] = edit(parts[name], rng)

    def numbers(parts: dict[str, bytes], rng: random.Random) -> None:
        parts["schema.json"] = digits(parts["schema.json"], rng)

    changes = [types, loaders, payload, arrays, bomb, traversal, deep, numbers, arrays, arrays]
    return [*map(_zip_edit, changes), flip, cut]


def skops(folder: Path, files: int, seed: int, canary: Path) -> Made:
    """Yield skops files of a line, a forest, a support vector machine and sparse weights."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC
    from skops.io import dumps

    cells, outcome = table()
    line = make_pipeline(SimpleImputer(), LogisticRegression()).fit(cells, outcome)
    line[-1].sparsify()
    forest = RandomForestClassifier(5, max_depth=4, random_state=0).fit(cells, outcome)
    machine = make_pipeline(SimpleImputer(), StandardScaler(), SVC()).fit(cells, outcome)
    wholes = [dumps(model) for model in (line, forest, machine)]
    return _write(folder, ".skops", wholes, _skops_edits(canary), files, seed)


def _array_cells(parts: dict[str, bytes], rng: random.Random) -> None:
    """Put other numbers into cells of an array of whole numbers, or of their like in records."""
    found = {}
    for name in parts:
        if name.endswith(".npy"):
            array = np.load(io.BytesIO(parts[name]), allow_pickle=False)
            fields = array.dtype.names or (None,)
            for field in fields:
                cells = array if field is None else array[field]
                if cells.dtype.kind in "iu" and cells.size:
                    found[name, field] = array
    (name, field), array = rng.choice(list(found.items()))
    cells = (array if field is None else array[field]).reshape(-1)
    for _ in range(rng.choice((1, 5, 50))):
        at = rng.randrange(len(cells))
        wanted = rng.choice((-1, 0, 1, 7, 10**6, 2**40)) & (256**cells.dtype.itemsize - 1)
        cells[at] = np.frombuffer(
            wanted.to_bytes(cells.dtype.itemsize, "little"), cells.dtype
        )[0]  # fmt: skip
    if field is None:
        array = cells.reshape(array.shape)
    else:
        array[field] = cells.reshape(array.shape)
    stream = io.BytesIO()
    np.save(stream, array)
    parts[name] = stream.getvalue()


def skops_neighbours(folder: Path, files: int, seed: int, canary: Path) -> Made:
    """Yield skops files of nearest neighbours, whose trees and labels lead elsewhere."""
    from sklearn.impute import SimpleImputer
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from skops.io import dumps

    cells, outcome = table()
    wholes = []
    for kind in ("kd_tree", "ball_tree", "brute"):
        model = KNeighborsClassifier(3, algorithm=kind, metric="euclidean", leaf_size=5)
        wholes.append(dumps(make_pipeline(SimpleImputer(), model).fit(cells, outcome)))
    return _write(folder, ".skops", wholes, [_zip_edit(_array_cells)], files, seed)


KINDS: dict[str, Callable[[Path, int, int, Path], Made]] = {
    "lightgbm": lightgbm, "xgboost-json": xgboost_json, "xgboost-ubj": xgboost_ubj,
    "catboost": catboost, "catboost-counts": catboost_counts, "onnx": onnx, "skops": skops,
    "skops-neighbours": skops_neighbours,
}  # fmt: skip
