from __future__ import annotations

import doctest
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import waysout

HEAVY = {
    "numpy", "pandas", "sklearn", "lightgbm", "optuna", "xgboost", "catboost", "onnxruntime",
    "skops", "scipy", "pyarrow", "torch",
}  # fmt: skip


def run(code: str, home: Path) -> str:
    env = {**os.environ, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    env.pop("WAYSOUT_CACHE", None)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=home, env=env
    )
    return done.stdout


@pytest.mark.parametrize(
    "code",
    [
        "import waysout",
        "import waysout.cli.main",
        "import runpy, sys; sys.argv = ['waysout', '--help']\n"
        "try: import waysout.cli.main as m; m.main()\nexcept SystemExit: pass",
    ],
)
def test_starting_is_light_and_writes_nothing(code: str, tmp_path: Path) -> None:
    loaded = run(f"{code}\nimport sys; print('|', *sys.modules)", tmp_path)
    assert not HEAVY & set(loaded.split("|")[-1].split())
    assert list(tmp_path.iterdir()) == []


def test_a_command_loads_no_other_and_looks_for_no_plugin(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['waysout', 'find', '--help']\n"
        "import importlib.metadata as m; m.entry_points = None\n"
        "try: import waysout.cli.main as m; m.main()\nexcept SystemExit as left: print(left.code)"
    )
    loaded = run(f"{code}\nimport sys; print('|', *sys.modules)", tmp_path)
    ours = {name for name in loaded.split("|")[-1].split() if name.startswith("waysout.cli.")}
    assert ours == {f"waysout.cli.{name}" for name in ("main", "find", "arguments", "output")}
    assert "\n0\n|" in loaded


def test_public_names_load_and_others_do_not() -> None:
    for name in waysout.__all__:
        assert getattr(waysout, name) is not None
    assert set(waysout.__all__) <= set(dir(waysout))
    with pytest.raises(AttributeError, match="no attribute 'fnd'"):
        _ = waysout.fnd


@pytest.mark.parametrize("name", [name for name in waysout.__all__ if name != "__version__"])
def test_a_public_name_has_an_example_that_runs_as_it_is_copied(name: str) -> None:
    thing = getattr(waysout, name)
    if isinstance(thing, ModuleType):
        return
    # Not `inspect.getdoc`, which takes the docstring of a base class where there is none.
    examples = doctest.DocTestParser().get_examples(thing.__doc__ or "", name)
    assert examples, f"waysout.{name} has no example in its docstring"
    private = [line for e in examples for line in e.source.splitlines() if "from waysout" in line]
    assert not private
    # In an empty namespace, where the module's own names are not at hand.
    test = doctest.DocTest(examples, {"__name__": "__main__"}, name, None, None, None)
    told: list[str] = []
    assert not doctest.DocTestRunner(verbose=False).run(test, out=told.append).failed, "".join(told)


def test_domain_and_adapters_do_not_load_models_libraries(tmp_path: Path) -> None:
    modules = "waysout.domain.problem, waysout.datasets.load, waysout.oracles.adapt"
    loaded = run(f"import {modules}\nimport sys; print(*sys.modules)", tmp_path)
    assert (HEAVY - {"numpy"}) & set(loaded.split()) == set()
