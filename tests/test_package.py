from __future__ import annotations

import ast
import doctest
import inspect
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import waysout

HEAVY = {
    "numpy", "pandas", "sklearn", "lightgbm", "optuna", "xgboost", "catboost", "onnxruntime",
    "skops", "scipy", "pyarrow", "torch",
}  # fmt: skip

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PUBLIC: dict[str, ModuleType] = {
    "waysout": waysout,
    **{f"waysout.{n}": getattr(waysout, n) for n in waysout.__all__ if find_spec(f"waysout.{n}")},
}
"""The package and the modules among its public names."""


def names_with_an_example() -> list[str]:
    """Return every public name; an example of a module stands for all of its names."""
    found = []
    for path, module in PUBLIC.items():
        names = {f"{path}.{name}" for name in module.__all__} - {"waysout.__version__", *PUBLIC}
        found += [path] if ">>>" in (module.__doc__ or "") else sorted(names)
    return found


def private_names(code: str) -> list[str]:
    """Return what code uses of ours that is not public."""
    used: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            used += [(name, "") for name in (alias.name for alias in node.names)]
        elif isinstance(node, ast.ImportFrom):
            used += [(node.module or "", alias.name) for alias in node.names]
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in PUBLIC:
            used.append((ast.unparse(node.value), node.attr))
    return [
        f"{module}.{name}".rstrip(".")
        for module, name in used
        if module.partition(".")[0] == "waysout"
        and (module not in PUBLIC or (name and name not in PUBLIC[module].__all__))
    ]


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
        "from waysout import audit, errors, llm, search, serve",
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
    assert ours == {
        f"waysout.cli.{name}" for name in ("main", "find", "arguments", "output", "streams")
    }
    assert "\n0\n|" in loaded


def test_public_names_load_and_others_do_not() -> None:
    for name in waysout.__all__:
        assert getattr(waysout, name) is not None
    assert set(waysout.__all__) <= set(dir(waysout))
    with pytest.raises(AttributeError, match="no attribute 'fnd'"):
        _ = waysout.fnd


@pytest.mark.parametrize("name", names_with_an_example())
def test_a_public_name_has_an_example_that_runs_as_it_is_copied(name: str) -> None:
    # Not `inspect.getdoc`, which takes the docstring of a base class where there is none.
    examples = doctest.DocTestParser().get_examples(resolve_name(name).__doc__ or "", name)
    assert examples, f"{name} has no example in its docstring"
    assert not [thing for example in examples for thing in private_names(example.source)]
    # In an empty namespace, where the module's own names are not at hand.
    test = doctest.DocTest(examples, {"__name__": "__main__"}, name, None, None, None)
    told: list[str] = []
    assert not doctest.DocTestRunner(verbose=False).run(test, out=told.append).failed, "".join(told)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_pages_use_public_names_only(page: Path) -> None:
    snippets = re.findall(r"^( *)```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL | re.M)
    assert not [name for _, code in snippets for name in private_names(textwrap.dedent(code))]


@pytest.mark.parametrize(
    ("code", "private"),
    [
        ("import waysout.domain.card", ["waysout.domain.card"]),
        ("from waysout import find, methods", ["waysout.methods"]),
        ("from waysout.llm.base import Reply", ["waysout.llm.base.Reply"]),
        ("from waysout.llm import Reply, models", ["waysout.llm.models"]),
        ("waysout.oracles.load.load_model('m')", ["waysout.oracles"]),
        ("waysout.rules.Rule; waysout.rules.KINDS", ["waysout.rules.KINDS"]),
        ("import waysout.rules, waysoutside\nfrom waysout.errors import InputError", []),
    ],
)
def test_private_names_are_told_from_public_ones(code: str, private: list[str]) -> None:
    assert private_names(code) == private


@pytest.mark.parametrize("path", [path for path in PUBLIC if hasattr(PUBLIC[path], "__getattr__")])
def test_type_checkers_see_the_names_that_load(path: str) -> None:
    seen = [
        alias.asname
        for node in ast.walk(ast.parse(inspect.getsource(PUBLIC[path])))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    ]
    assert sorted(seen) == sorted(set(PUBLIC[path].__all__) - {"__version__"})


def test_a_name_whose_extra_is_missing_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "waysout.serve.app", raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(waysout.errors.MissingExtra, match=r"'fastapi'.*waysout\[serve\]"):
        _ = waysout.serve.create_app


def test_domain_and_adapters_do_not_load_models_libraries(tmp_path: Path) -> None:
    modules = "waysout.domain.problem, waysout.datasets.load, waysout.oracles.adapt"
    loaded = run(f"import {modules}\nimport sys; print(*sys.modules)", tmp_path)
    assert (HEAVY - {"numpy"}) & set(loaded.split()) == set()


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
DEPENDENCIES = [
    requirement
    for group in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for requirement in map(Requirement, group)
    if requirement.name != "waysout"
]


def test_every_dependency_has_a_lower_bound() -> None:
    unbounded = [str(r) for r in DEPENDENCIES if not any(s.operator == ">=" for s in r.specifier)]
    assert not unbounded


def test_every_package_that_is_imported_is_a_dependency() -> None:
    # Frames that a user has; what is used where it is there; what has no extra (pyproject.toml says
    # why); what pydantic asks for in one exact version.
    by_choice = {"polars", "truststore", "nice", "pydantic-core"}
    named = {canonicalize_name(r.name) for r in DEPENDENCIES} | by_choice | {"waysout"}
    imported = {
        name.partition(".")[0]
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else
                     [alias.name for alias in node.names])
    }  # fmt: skip
    others = imported - sys.stdlib_module_names - {"sklearn"}  # scikit-learn's name
    assert {canonicalize_name(name) for name in others} <= named


@pytest.mark.skipif("WAYSOUT_OLDEST" not in os.environ, reason="make test-oldest asks for this")
def test_the_lowest_versions_are_those_that_run() -> None:
    for requirement in DEPENDENCIES:
        with suppress(PackageNotFoundError):  # an extra that is not asked for
            found = version(requirement.name)
            floors = [Version(bound.version) for bound in requirement.specifier]
            assert Version(Version(found).public) in floors, (
                f"{requirement}: it is {found} that runs"
            )
