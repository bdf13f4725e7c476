from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace

import oracle_data as data
import pytest

from waysout.errors import MissingExtra, UnavailableError
from waysout.oracles import lightgbm


def importing(monkeypatch: pytest.MonkeyPatch, *outcomes: object) -> None:
    """Let each import of LightGBM end in turn as told: an error, or a module."""
    left = list(outcomes)

    def import_module(name: str) -> object:
        outcome = left.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr(importlib, "import_module", import_module)


NO_OPENMP = OSError("libgomp.so.1: cannot open shared object file")


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    importing(monkeypatch, ImportError("no"))
    with pytest.raises(MissingExtra, match=r"waysout\[train\]"):
        lightgbm.import_lightgbm("train")


def test_without_openmp_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    importing(monkeypatch, NO_OPENMP)
    monkeypatch.setattr(lightgbm, "_lend_openmp", lambda: False)
    with pytest.raises(UnavailableError, match="apt-get install libgomp1"):
        lightgbm.import_lightgbm()


def test_a_lent_openmp_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(__name__="lightgbm")
    importing(monkeypatch, NO_OPENMP, module)
    monkeypatch.setattr(lightgbm, "_lend_openmp", lambda: True)
    assert lightgbm.import_lightgbm() is module


@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
def test_lines_end_where_lightgbm_ends_them(ends: bytes, tmp_path: Path) -> None:
    """To Python a name may hold ends of lines; on its way a file may get those of Windows."""
    table = data.coded()[["income", "grade"]].rename(columns={"income": "in\u2028come\x85"})
    model = data.lgbm().fit(table, data.approved())
    text = model.booster_.model_to_string().encode()
    (tmp_path / "m.txt").write_bytes(text.replace(b"\n", ends))
    read = lightgbm.read_model(tmp_path / "m.txt")
    lightgbm.check_model(read)
    assert read.feature_name() == model.booster_.feature_name()
    assert read.predict(table).tolist() == model.booster_.predict(table).tolist()
