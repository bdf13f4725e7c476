from __future__ import annotations

import importlib
from types import SimpleNamespace

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
