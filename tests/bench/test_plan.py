"""Plans as TOML: what they stand for, what is wrong with them, and how they are cut down."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_world import HEAD, LIBRARY, RANDOM, TREE, plan, plan_file
from hypothesis import given
from hypothesis import strategies as st

from waysout.bench.arms import Arm
from waysout.bench.plan import ExperimentPlan, load_plan, plan_names, plan_text
from waysout.errors import InputError
from waysout.prompts.propose import Style

ARM = Arm(
    name="Comp-MCTS", data="loan", method="comp-mcts",
    settings={"pruning": "gzip", "history": "all", "patience": 0}, k=5, calls=30, rows=150,
    seed=0, rules="paper", style=Style("paper", False), queries=30,
)  # fmt: skip
GRID = """
[[arms]]
name = "pruned"
method = "comp-mcts"
settings = { pruning = "gzip", depth = 3 }
grid = { scope = ["global", "path"], threshold = [0.001, 0.02], strict = [true] }
"""


def named(made: ExperimentPlan) -> list[str]:
    return [arm.name for arm in made.arms]


# What decides a search, and what does not --------------------------------------------------------


def test_ids_are_those_of_the_results_that_are_kept() -> None:
    """Whoever changes these ids makes strangers of all results on file."""
    assert ARM.id == "f3ec55c4b606"
    assert replace(ARM, method="random", settings={}, calls=0).id == "9d42cb915f9f"


def test_names_decide_nothing() -> None:
    assert replace(ARM, name="other", paper="Theirs", queries=3).id == ARM.id


def test_a_default_that_is_spelled_out_or_a_number_as_text_is_the_same_arm() -> None:
    assert replace(ARM, settings={**ARM.settings, "threshold": "0.01", "depth": 5}).id == ARM.id


@pytest.mark.parametrize(
    "other",
    [
        {"data": "adult"}, {"rules": "realistic"}, {"method": "lats", "settings": {}}, {"k": 1},
        {"settings": {"pruning": "none"}}, {"calls": 6}, {"rows": 60}, {"seed": 1},
        {"style": Style("paper", True)}, {"style": Style("paper", False, unchanged=True)},
        {"alone": True}, {"binning": "none"}, {"settings": {"pruning": "gzip"}},
    ],
    ids=str,
)  # fmt: skip
def test_whatever_decides_a_search_is_in_the_id(other: dict[str, Any]) -> None:
    assert replace(ARM, **other).id != ARM.id


def test_who_asks_no_llm_is_not_told_apart_by_calls_or_prompts() -> None:
    random = replace(ARM, method="random", settings={})
    assert not random.asks_llm
    assert replace(random, calls=0, style=Style()).id == random.id
    library = replace(ARM, method="recombine", settings={})
    assert library.asks_llm
    assert not replace(library, calls=0).asks_llm


# Reading ---------------------------------------------------------------------------------------


def test_a_grid_is_an_arm_for_each_combination(tmp_path: Path) -> None:
    made = plan(tmp_path, GRID, RANDOM)
    assert named(made) == [
        "pruned scope=global threshold=0.001 strict=true",
        "pruned scope=global threshold=0.02 strict=true",
        "pruned scope=path threshold=0.001 strict=true",
        "pruned scope=path threshold=0.02 strict=true",
        "random",
    ]
    second = made.arm("synthetic", "pruned scope=global threshold=0.02 strict=true")
    assert second.settings == {
        "pruning": "gzip", "depth": 3, "scope": "global", "threshold": 0.02,
    }  # fmt: skip
    assert second.style == Style(strict=True)


def test_a_grid_may_vary_what_is_no_setting(tmp_path: Path) -> None:
    grid = 'grid = { k = [1, 5], rules = ["basic", "realistic"], template = ["paper"] }'
    made = plan(tmp_path, TREE, grid)
    assert named(made)[1] == "tree k=1 rules=realistic template=paper"
    found = [(arm.k, arm.rules, arm.style.template) for arm in made.arms]
    assert found == [(k, rules, "paper") for k in (1, 5) for rules in ("basic", "realistic")]


def test_data_sets_come_in_their_order_and_each_with_all_its_arms(tmp_path: Path) -> None:
    head = HEAD.replace('["synthetic"]', '["loan", "adult"]').replace("realistic", "paper")
    own = f'{LIBRARY}datasets = ["adult"]\n'
    made = plan(tmp_path, TREE, own, head=head)
    pairs = [(arm.data, arm.name) for arm in made.arms]
    assert pairs == [("loan", "tree"), ("adult", "tree"), ("adult", "library")]


def test_settings_may_differ_by_data_set(tmp_path: Path) -> None:
    head = HEAD.replace('["synthetic"]', '["loan", "adult"]').replace("realistic", "paper")
    own = 'settings = { scope = "path" }\n[arms.by_dataset.adult]\nscope = "window"\nwindow = 7\n'
    made = plan(tmp_path, TREE, own, head=head)
    assert made.arm("loan", "tree").settings == {"scope": "path"}
    assert made.arm("adult", "tree").settings == {"scope": "window", "window": 7}


@pytest.mark.parametrize(
    ("own", "rows"),
    [("", 8), ("calls = 1", 8), ("calls = 10", 20), ("k = 1", 4), ("rows = 5", 5),
     ("k = 3\nrows = 1", 1)],
)  # fmt: skip
def test_rows_are_those_of_the_plan_also_with_fewer_calls(
    own: str, rows: int, tmp_path: Path
) -> None:
    assert plan(tmp_path, TREE, own).arms[0].rows == rows


def test_who_needs_no_llm_makes_no_calls(tmp_path: Path) -> None:
    assert plan(tmp_path, RANDOM).arms[0].calls == 0


def test_repeated_arms_have_seeds_of_their_own(tmp_path: Path) -> None:
    made = plan(tmp_path, TREE, "repeat = 2\nseed = 5")
    assert [(arm.name, arm.seed) for arm in made.arms] == [("tree seed=5", 5), ("tree seed=6", 6)]


def test_an_arm_has_what_the_plan_says_unless_it_says_otherwise(tmp_path: Path) -> None:
    own = 'calls = 2\npaper = "Theirs"\nqueries = 2\nstyle = { strict = true }'
    style = '[style]\ntemplate = "paper"\nconstrain = false\n'
    made = plan(tmp_path, style, TREE, own, LIBRARY)
    tree, library = made.arms
    assert (tree.calls, tree.queries, tree.paper, tree.k) == (2, 2, "Theirs", 2)
    assert tree.style == Style("paper", False, strict=True)
    assert (library.calls, library.queries, library.style) == (4, 3, Style("paper", False))


def test_a_plan_like_another_has_all_of_it_and_its_own_on_top(tmp_path: Path) -> None:
    plan_file(tmp_path, TREE, RANDOM, name="first")
    path = tmp_path / "second.toml"
    path.write_text('like = "first.toml"\ntitle = "Again"\nqueries = 2\n', encoding="utf-8")
    made, first = load_plan(str(path)), load_plan(str(tmp_path / "first.toml"))
    assert (made.name, made.title, made.queries) == ("second", "Again", 2)
    assert [arm.id for arm in made.arms] == [arm.id for arm in first.arms]


def test_a_plan_like_another_may_have_more_arms(tmp_path: Path) -> None:
    plan_file(tmp_path, TREE, name="first")
    more = RANDOM.replace("[[arms]]", "[[more_arms]]")
    plan_file(tmp_path, 'like = "first.toml"', more, head="", name="second")
    third = LIBRARY.replace("[[arms]]", "[[more_arms]]")
    path = plan_file(tmp_path, 'like = "second.toml"', third, head="", name="third")
    assert [arm.name for arm in load_plan(str(path)).arms] == ["tree", "random", "library"]
    assert plan_text(str(path)) == path.read_text("utf-8")


def test_a_plan_with_searches_one_by_one_has_arms_of_its_own(tmp_path: Path) -> None:
    made = plan(tmp_path, TREE, head=HEAD + "one_by_one = true\nin_flight = 1\n")
    assert (made.one_by_one, made.in_flight, made.arms[0].alone) == (True, 1, True)
    assert made.arms[0].id != plan(tmp_path, TREE).arms[0].id


def test_a_hash_tells_contents_apart(tmp_path: Path) -> None:
    made = plan(tmp_path, TREE, RANDOM)
    assert plan(tmp_path, TREE, RANDOM, name="other").hash == made.hash
    assert made.cut(only=["tree"]).hash != made.hash != made.cut(queries=1).hash
    assert plan(tmp_path, TREE.replace("tree", "wood"), RANDOM).hash != made.hash


# What is wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (["querys = 3", TREE], "small.toml: unknown key 'querys'; did you mean 'queries'?"),
        (["queries = 0"], "queries is a whole number of at least 1, not 0"),
        (["queries = 31", TREE], "31 queries requested, but only 30 stored"),
        ([""], "has no arms"),
        (["arms = 3"], "arms must be an array of tables"),
        (["llms = []", TREE], "llms must be a list of distinct names"),
        (["in_flight = 0", TREE], "in_flight is a whole number of at least 1"),
        (["one_by_one = 1", TREE], "one_by_one must be true or false"),
        (["[style]\ntemplat = 1", TREE], "style: unknown key 'templat'"),
        (['[style]\ntemplate = "papers"', TREE], "unknown template 'papers'"),
        ([TREE, TREE], "two arms are named 'tree'"),
        ([TREE, "method2 = 1"], "arm 'tree': unknown key 'method2'"),
        (['[[arms]]\nname = "x"'], "arm 'x': `method` is required (a string)"),
        (['[[arms]]\nmethod = "lats"'], "arm 1: `name` is required (a string)"),
        (['[[arms]]\nname = "x"\nmethod = "latz"'], "arm 'x': unknown method 'latz'"),
        ([TREE, "settings = { scop = 1 }"], "unknown setting 'scop'; did you mean 'scope'?"),
        ([TREE, 'settings = { scope = "all" }'], "arm 'tree', synthetic: unknown scope 'all'"),
        ([TREE, "settings = 3"], "settings must be a table, not 3"),
        ([TREE, "grid = { scope = 3 }"], "grid: scope must be a list of values, not 3"),
        ([TREE, "grid = { scope = [] }"], "grid: scope must be a list of values, not []"),
        ([TREE, "grid = { skope = [1] }"], "grid: unknown setting or key 'skope'"),
        ([TREE, "grid = { k = [0] }"], "k is a whole number from 1 to 50, not 0"),
        ([TREE, f"grid = {{ seed = {list(range(200))}, calls = {list(range(100))} }}"],
         "the grid has 20,000 arms"),
        ([TREE, "repeat = 2\ngrid = { seed = [1] }"], "repeat already varies the seed"),
        ([TREE, 'rules = "paper"'], "unknown rule set 'paper'"),
        ([TREE, 'datasets = ["lone"]'], "unknown data set 'lone'; did you mean 'loan'?"),
        ([TREE, "[arms.by_dataset.lone]"], "by_dataset: unknown data set 'lone'"),
        (["calls = 0", RANDOM], "with calls = 0, `rows` must be set"),
        (["not toml"], "is not TOML"),
        (['like = "small.toml"'], "`like` forms a cycle"),
        (['like = "reward-weigths"'], "did you mean 'reward-weights'?"),
        (['like = "reward-weights"', TREE], "use [[more_arms]] to add to them"),
        ([TREE, TREE.replace("[[arms]]", "[[more_arms]]")], "set `like`, or use [[arms]]"),
        (['more_arms = 3\nlike = "reward-weights"'], "must be an array of tables ([[more_arms]])"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place_and_the_remedy(
    parts: list[str], said: str, tmp_path: Path
) -> None:
    own = parts[0].partition(" =")[0]
    head = "\n".join(line for line in HEAD.splitlines() if line.partition(" =")[0] != own)
    path = plan_file(tmp_path, *(f"\n{part}\n" for part in parts), head=head)
    with pytest.raises(InputError) as error:
        load_plan(str(path))
    assert said in str(error.value)
    assert str(tmp_path) in str(error.value) or "like" in parts[0]


def test_a_plan_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown plan 'reward-weight'; did you mean 'reward-w"):
        load_plan("reward-weight")
    with pytest.raises(InputError, match=r"cannot read the plan .*none.toml"):
        load_plan(str(tmp_path / "none.toml"))
    (tmp_path / "latin.toml").write_bytes(b'title = "\xe9"')
    with pytest.raises(InputError, match="is not UTF-8"):
        load_plan(str(tmp_path / "latin.toml"))


ANY = st.recursive(
    st.booleans() | st.integers(-5, 40) | st.floats(allow_nan=False) | st.text("ab =*", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", min_size=1), inner),
    max_leaves=4,
)
PLAN_KEYS = ["title", "datasets", "queries", "llms", "k", "calls", "rows", "seed", "rules",
             "in_flight", "one_by_one", "style", "arms", "like", "else"]  # fmt: skip
ARM_KEYS = ["name", "method", "settings", "paper", "by_dataset", "grid", "datasets", "style",
            "repeat", "k", "calls", "rows", "seed", "rules", "queries"]  # fmt: skip


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value)


@given(st.sampled_from(PLAN_KEYS), st.sampled_from(ARM_KEYS), ANY, ANY, st.booleans())
def test_whatever_stands_in_a_plan_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    key: str,
    arm_key: str,
    value: Any,
    arm_value: Any,
    only_arm: bool,
) -> None:
    table: dict[str, Any] = {"title": "x", "datasets": ["synthetic"], "rules": "basic"}
    arm = {"name": "x", "method": "comp-mcts", arm_key: arm_value}
    table |= {"arms": [arm]} if only_arm else {"arms": [arm], key: value}
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_text("\n".join(f"{k} = {toml(v)}" for k, v in table.items()), encoding="utf-8")
    try:
        made = load_plan(str(path))
    except InputError:
        return
    assert made.arms
    assert all(len(arm.id) == 12 for arm in made.arms)


# Cutting down ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("only", "left"),
    [
        ([], ["tree k=1", "tree k=2", "library", "random"]),
        (["tree*"], ["tree k=1", "tree k=2"]),
        (["tree k=2", "random"], ["tree k=2", "random"]),
        (["synthetic"], ["tree k=1", "tree k=2", "library", "random"]),
        (["synthetic/lib*"], ["library"]),
        (["*/random"], ["random"]),
    ],
)
def test_only_some_arms(only: list[str], left: list[str], tmp_path: Path) -> None:
    made = plan(tmp_path, TREE, "grid = { k = [1, 2] }", LIBRARY, RANDOM)
    assert named(made.cut(only=only)) == left


def test_an_arm_whose_name_looks_like_a_pattern_is_found_by_it(tmp_path: Path) -> None:
    made = plan(tmp_path, TREE.replace('"tree"', '"tree [a]"'), RANDOM)
    assert named(made.cut(only=["tree [a]"])) == ["tree [a]"]


def test_a_pattern_that_nothing_matches_is_refused(tmp_path: Path) -> None:
    made = plan(tmp_path, TREE, RANDOM)
    with pytest.raises(InputError, match="unknown data set or arm 'trie'; did you mean 'tree'"):
        made.cut(only=["random", "trie"])


def test_fewer_queries_and_other_llms(tmp_path: Path) -> None:
    made = plan(tmp_path, TREE, "queries = 2", RANDOM).cut(queries=1, llms=["simulated:7"])
    assert (made.queries, made.llms) == (1, ("simulated:7",))
    assert [arm.queries for arm in made.arms] == [1, 1]
    more = plan(tmp_path, TREE, "queries = 2", RANDOM).cut(queries=20)
    assert [arm.queries for arm in more.arms] == [2, 3]
    with pytest.raises(InputError, match="queries is a whole number of at least 1"):
        made.cut(queries=0)


def test_the_plans_that_come_along_are_found_by_name() -> None:
    assert "llm-budget" in plan_names()
    assert load_plan("llm-budget").name == "llm-budget"
