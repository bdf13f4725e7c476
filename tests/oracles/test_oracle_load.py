"""Model files: each kind, and every way one can be wrong."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import oracle_data as data
import pytest

from waysout.errors import MissingExtra, OracleError
from waysout.oracles.adapt import as_oracle
from waysout.oracles.file_trial import _NEEDLESS
from waysout.oracles.load import load_model
from waysout.oracles.xgboost import check_ubjson


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def own_chance(model: Any) -> Any:
    return model.predict_proba(data.frame())[:, 0]


@pytest.mark.parametrize("suffix", [".skops", ".pkl", ".pickle", ".joblib"])
def test_sklearn_files(suffix: str, tmp_path: Path) -> None:
    model = data.pipeline(data.logistic()).fit(data.frame(), data.outcome())
    path = tmp_path / f"model{suffix}"
    if suffix == ".skops":
        data.package("skops.io").dump(model, path)
    elif suffix == ".joblib":
        data.package("joblib").dump(model, path)
    else:
        path.write_bytes(pickle.dumps(model))
    # skops does not count numpy.dtype, which an imputer keeps, among the types it knows, nor the
    # list of columns left over that scikit-learn 1.6 keeps.
    trusted = ["numpy.dtype", "sklearn.compose._column_transformer._RemainderColsList"]
    loaded = load_model(path, trust_pickle=suffix != ".skops", trusted_types=trusted)
    answers = as_oracle(loaded, data.SCHEMA, positive="Approved").ask(data.rows())
    np.testing.assert_allclose(answers.probability, own_chance(model), rtol=0, atol=1e-9)


@pytest.mark.parametrize("suffix", [".pkl", ".pickle", ".joblib", ".PKL"])
def test_pickles_are_refused_without_a_word(suffix: str, tmp_path: Path) -> None:
    path, mark = tmp_path / f"model{suffix}", tmp_path / "mark"
    path.write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(OracleError, match=r"runs whatever code.*trust_pickle=True.*\.skops"):
        load_model(path)
    assert not mark.exists()


@pytest.mark.parametrize("suffix", [".txt", ".lgb", ".json", ".ubj", ".cbm", ".onnx", ".skops"])
@pytest.mark.parametrize("protocol", [0, 4])
def test_a_pickle_under_another_suffix_is_never_unpickled(
    suffix: str, protocol: int, tmp_path: Path
) -> None:
    path, mark = tmp_path / f"model{suffix}", tmp_path / "mark"
    path.write_bytes(pickle.dumps(Bomb(mark), protocol))
    with pytest.raises(OracleError):
        load_model(path, trust_pickle=True)
    assert not mark.exists()


def test_skops_types_need_trust_and_have_what_they_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    io = data.package("skops.io")
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    left_out = (name for name in reversed(_NEEDLESS) if importlib.util.find_spec(name))
    (tmp_path / "step_of_ours.py").write_text(
        f"import {next(left_out, 'json')}\ndef undo(rows):\n    return rows\n", "utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    undo = importlib.import_module("step_of_ours").undo
    model = make_pipeline(FunctionTransformer(pickle.dumps, undo), data.logistic())
    io.dump(model, tmp_path / "m.skops")
    with pytest.raises(OracleError, match=r"_pickle\.dumps.*step_of_ours\.undo.*trusted_types="):
        load_model(tmp_path / "m.skops")
    asked = io.get_untrusted_types(file=tmp_path / "m.skops")
    step = load_model(tmp_path / "m.skops", trusted_types=asked).steps[0][1]
    assert (step.func, step.inverse_func) == (pickle.dumps, undo)


@pytest.mark.parametrize("suffix", [".txt", ".json", ".ubj", ".cbm", ".onnx", ".skops", ".pkl"])
@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"{}", b"tree\n", b"CBM1", b"PK\x03\x04", b"\x00" * 99]
)
def test_damaged_files(suffix: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(content)
    with pytest.raises(OracleError, match="model"):
        load_model(path, trust_pickle=True)


@pytest.mark.parametrize("name", ["m.txt", "m.json", "m.ubj", "m.cbm"])
def test_truncated_files_do_not_end_the_process(name: str, tmp_path: Path) -> None:
    """LightGBM aborts and XGBoost reads past the end, so this runs in a process of its own."""
    maker = {"m.txt": data.lgbm, "m.cbm": data.cat}.get(name, data.xgb)
    model = maker().fit(data.coded(), data.approved())
    getattr(model, "booster_", model).save_model(str(tmp_path / name))
    whole = (tmp_path / name).read_bytes()
    for i, part in enumerate((0.05, 0.2, 0.5, 0.7, 0.9)):
        (tmp_path / f"{i}{name}").write_bytes(whole[: int(len(whole) * part)])
    code = (
        "import sys; from waysout.oracles.load import load_model\n"
        "from waysout.errors import OracleError\n"
        "for path in sys.argv[1:]:\n"
        "    try: load_model(path)\n"
        "    except OracleError: continue\n"
        "    sys.exit('read ' + path)\n"
    )
    paths = [str(tmp_path / f"{i}{name}") for i in range(5)]
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_lightgbm_file_that_was_edited(tmp_path: Path) -> None:
    model = data.lgbm().fit(data.coded(), data.approved())
    text = model.booster_.model_to_string()
    path = tmp_path / "m.txt"
    for old, new in (("leaf_value", "leaf_valu"), ("end of trees", "end")):
        path.write_bytes(text.replace(old, new).encode())
        with pytest.raises(OracleError, match=r"damaged|cut short"):
            load_model(path)


def test_lightgbm_single_leaf_and_linear_trees_are_read(tmp_path: Path) -> None:
    for options in ({"min_child_samples": 500}, {"linear_tree": True}):
        model = data.lgbm(**options).fit(data.coded(), data.approved())
        model.booster_.save_model(str(tmp_path / "m.txt"))
        answers = as_oracle(load_model(tmp_path / "m.txt"), data.SCHEMA, positive=1).ask(
            data.rows()
        )
        own = model.predict_proba(data.coded())[:, 1]
        np.testing.assert_allclose(answers.probability, own, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "content",
    [
        b"{U\x01ai\x05U\x01bT}",
        b"{U\x01a[Z SU\x02hiN]}".replace(b" ", b""),
        b"[$d#U\x02\x00\x00\x00\x00\x00\x00\x00\x00",
        b"[$S#U\x01U\x01x",
        b"[#U\x02i\x01F",
    ],
)
def test_ubjson_is_walked_to_its_end(content: bytes) -> None:
    check_ubjson(content)
    for wrong in (content[:-1], content + b"N", content.replace(b"U", b"?")):
        with pytest.raises(OracleError, match="cut short or damaged"):
            check_ubjson(wrong)
    with pytest.raises(OracleError, match="cut short or damaged"):
        check_ubjson(b"[" * 100_000)


def test_paths_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(OracleError, match="no model file"):
        load_model(tmp_path / "absent.onnx")
    with pytest.raises(OracleError, match=r"unknown kind of model file '.pt'.*\.onnx.*\.pkl"):
        load_model(tmp_path / "model.pt")
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(OracleError, match="folder"):
        load_model(tmp_path / "folder.txt")


@pytest.mark.parametrize(
    ("suffix", "content", "package", "extra"),
    [
        (".json", b'{"learner":{}}', "xgboost", "xgboost"),
        (".cbm", b"CBM1", "catboost", "catboost"),
        (".onnx", b"\x08", "onnxruntime", "onnx"),
        (".skops", b"PK", "skops", "skops"),
        (".joblib", b"\x80", "joblib", "sklearn"),
    ],
)
def test_missing_package(
    suffix: str,
    content: bytes,
    package: str,
    extra: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    (tmp_path / f"m{suffix}").write_bytes(content)
    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(MissingExtra, match=rf"waysout\[{extra}\]"):
        load_model(tmp_path / f"m{suffix}", trust_pickle=True)


def test_pickle_that_needs_a_known_package(tmp_path: Path) -> None:
    path = tmp_path / "m.pkl"
    path.write_bytes(b"cskops.absent\nModel\n.")
    with pytest.raises(MissingExtra, match=r"waysout\[skops\]"):
        load_model(path, trust_pickle=True)


def test_plain_pickle_without_joblib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.pkl").write_bytes(pickle.dumps({"a": 1}))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert load_model(tmp_path / "m.pkl", trust_pickle=True) == {"a": 1}


def test_pickle_that_needs_an_absent_package(tmp_path: Path) -> None:
    path = tmp_path / "m.pkl"
    path.write_bytes(b"cabsent_package\nModel\n.")
    with pytest.raises(OracleError, match="needs the package 'absent_package'"):
        load_model(path, trust_pickle=True)


class Chatty:
    """Prints while it is unpickled."""

    def __reduce__(self) -> Any:
        return print, ("loading…",)


def test_what_a_pickle_prints_stays_out_of_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.pkl"
    path.write_bytes(pickle.dumps(Chatty()))
    load_model(path, trust_pickle=True)
    out, err = capsys.readouterr()
    assert (out, err.strip()) == ("", "loading…")
