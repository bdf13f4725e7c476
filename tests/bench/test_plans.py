"""The plans that come with Waysout: all of them load, and are what the tables and the paper say."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from waysout.bench import paper
from waysout.bench.arms import Arm, ExperimentPlan
from waysout.bench.plan import load_plan, plan_names, plan_text
from waysout.bench.readings import DEFAULT, READINGS
from waysout.errors import InputError
from waysout.llm.models import MODELS
from waysout.methods import all_methods, make_method

DATASETS = ("loan", "adult", "credit", "heloc")
REWARDS = ("BASELINE", "VALIDITY", "BALANCED", "QUALITY", "DIVERSITY", "EQUAL")
SCOPES = ("global", "path", "window")
THETAS = (0.001, 0.005, 0.01, 0.02)
TAUS = (0.01, 0.03, 0.05, 0.1)
WITHOUT_LLM = ("dice", "growing-spheres", "certifai", "cchvae", "tabular-diffusion", "random")
LATS = tuple(
    f"LATS {kind}, K={k}" for k, kind in product((1, 5), ("standard", "high-temp", "diversity"))
)

# Arms of all data sets, searches, and the LLM calls they make at most.
SIZES = {
    "ablations": (76, 760, 21_600),
    "baselines": (103, 3_090, 0),
    "compressors": (3, 90, 1_800),
    "cost": (12, 360, 10_800),
    "going-on": (4, 120, 0),
    "limits": (8, 24, 0),
    "llm-budget": (56, 1_680, 43_920),
    "llm-sizes": (8, 240, 7_200),
    "methods": (44, 1_320, 25_920),
    "optimum": (24, 720, 0),
    "oracle-budget": (64, 1_920, 0),
    "oracle-budget-large": (39, 1_170, 0),
    "oracle-budget-published": (73, 2_190, 0),
    "prompts": (28, 840, 25_200),
    "pruning-heldout": (100, 3_000, 90_000),
    "pruning-sweep": (100, 3_000, 90_000),
    "quality": (630, 37_800, 0),
    "quality-ablations": (28, 420, 0),
    "quality-llm": (684, 39_420, 48_600),
    "reward-weights": (24, 720, 21_600),
    "rules": (24, 720, 21_600),
    "shared": (24, 7_200, 36_000),
    "yields": (48, 1_440, 18_000),
}
QUERIES = {
    "ablations": {10}, "limits": {3}, "shared": {300}, "quality": {60}, "quality-llm": {30, 60},
    "quality-ablations": {15},
}  # fmt: skip
NAMES: dict[str, set[str]] = {
    "compressors": {"gzip", "rlbwt", "repair"},
    "cost": {"compression", "none", "LATS K=1"},
    "llm-budget": {
        "Comp-MCTS", "Comp-MCTS, no pruning", "Comp-MCTS, embedding pruning", *LATS,
        "LATS standard, K=1, with memory", "LATS standard, K=5, with memory", "recombine",
        "recombine, 6 calls", "random",
    },
    "llm-sizes": {"comp-mcts", "recombine"},
    "oracle-budget": {
        f"{method} rows={rows}"
        for method, rows in product((*WITHOUT_LLM, "nearest", "recombine"), (150, 1000))
    },
    "prompts": {
        "comp-mcts, to the letter",
        *(
            f"{arm} template={template}"
            for arm in ("comp-mcts", "comp-mcts constrained", "recombine constrained")
            for template in ("paper", "waysout")
        ),
    },
    "pruning-sweep": {
        "none",
        *(f"compression scope={s} threshold={t}" for s, t in product(SCOPES, THETAS)),
        *(f"embedding scope={s} threshold={t}" for s, t in product(SCOPES, TAUS)),
    },
    "reward-weights": set(REWARDS),
    "rules": {
        f"{method} rules={rules}"
        for method, rules in product(
            ("comp-mcts", "lats-diversity", "recombine"), ("paper", "realistic")
        )
    },
    # Later methods are compared by what they show, in `quality`.
    "yields": set(all_methods()) - {"wayfinder", "nice", "moc"},
}  # fmt: skip


@cache
def plan(name: str) -> ExperimentPlan:
    return load_plan(name)


def of(name: str, data: str) -> dict[str, Arm]:
    return {arm.name: arm for arm in plan(name).arms if arm.data == data}


def test_these_plans_there_are() -> None:
    assert plan_names() == sorted(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_a_plan_has_its_size_and_no_search_twice(name: str) -> None:
    arms = plan(name).arms
    searches = sum(arm.queries for arm in arms)
    calls = sum(arm.queries * arm.calls for arm in arms if arm.asks_llm)
    assert (len(arms), searches, calls) == SIZES[name]
    assert len({arm.id for arm in arms}) == len(arms)
    assert plan(name).title
    assert {arm.queries for arm in arms} == QUERIES.get(name, {30})


@pytest.mark.parametrize("name", NAMES)
def test_every_data_set_has_the_arms_that_tables_ask_for(name: str) -> None:
    wanted = ("loan",) if name == "compressors" else DATASETS
    assert plan(name).datasets == wanted
    for data in wanted:
        assert of(name, data).keys() == NAMES[name]


def test_large_budgets_are_the_papers_methods_and_random() -> None:
    for data in DATASETS:
        rows = {(arm.method, arm.rows) for arm in of("oracle-budget-large", data).values()}
        wanted = {*product(WITHOUT_LLM[:4], (10_000, 100_000)), ("random", 10_000)}
        assert rows - {("tabular-diffusion", 10_000)} == wanted
    assert "tabular-diffusion rows=10000" not in of("oracle-budget-large", "credit")


def test_a_hash_is_that_of_the_content() -> None:
    hashes = {name: plan(name).hash for name in plan_names()}
    assert len(set(hashes.values())) == len(hashes)
    for name in ("llm-budget", "oracle-budget", "rules", "shared"):
        assert load_plan(name).hash == hashes[name]


def test_plans_ask_the_simulated_llm_but_for_those_of_sizes_which_can_all_be_pulled() -> None:
    assert {plan(name).llms for name in SIZES if name != "llm-sizes"} == {("simulated:1",)}
    schemes, _, models = zip(*(llm.partition(":") for llm in plan("llm-sizes").llms), strict=True)
    assert set(schemes) == {"llamacpp"}
    assert set(models) <= set(MODELS)
    sizes = [MODELS[model].size or 0 for model in models]
    assert sizes == sorted(sizes)


# What the paper's settings are -------------------------------------------------------------------


@pytest.mark.parametrize("data", DATASETS)
@pytest.mark.parametrize(
    ("arm", "kind"),
    [("Comp-MCTS", "Compression"), ("Comp-MCTS, embedding pruning", "Embedding")],
)
def test_the_selected_pruning_is_the_papers(data: str, arm: str, kind: str) -> None:
    told = paper.setting(paper.selected_row("pruning_best_all30", data, kind))
    used = of("llm-budget", data)[arm].settings
    assert (used["scope"], used["threshold"]) == told


@pytest.mark.parametrize("data", DATASETS)
def test_plans_share_the_searches_they_have_in_common(data: str) -> None:
    sweep, budget, rewards = (
        of(n, data) for n in ("pruning-sweep", "llm-budget", "reward-weights")
    )
    yields, oracle = of("yields", data), of("oracle-budget", data)
    chosen = budget["Comp-MCTS"]
    setting = "scope={scope} threshold={threshold}".format(**chosen.settings)
    assert chosen.id == sweep[f"compression {setting}"].id
    assert budget["Comp-MCTS, no pruning"].id == sweep["none"].id == rewards["BALANCED"].id
    same = (
        of("prompts", data)["comp-mcts template=paper"],
        of("rules", data)["comp-mcts rules=paper"], of("llm-sizes", data)["comp-mcts"],
        yields["comp-mcts"],
    )  # fmt: skip
    assert {arm.id for arm in same} == {chosen.id}
    asked = {
        of("prompts", data)["recombine constrained template=waysout"].id,
        of("rules", data)["recombine rules=paper"].id, of("llm-sizes", data)["recombine"].id,
        yields["recombine"].id,
    }  # fmt: skip
    assert asked == {budget["recombine"].id}
    for method in (*WITHOUT_LLM, "nearest"):
        assert yields[method].id == oracle[f"{method} rows=150"].id
    assert budget["random"].id == oracle["random rows=150"].id


def test_what_is_held_out_is_the_sweep() -> None:
    sweep, held_out = plan("pruning-sweep"), plan("pruning-heldout")
    assert [arm.id for arm in held_out.arms] == [arm.id for arm in sweep.arms]
    assert held_out.title != sweep.title


def test_what_costs_are_measured_of_runs_alone() -> None:
    cost, budget = of("cost", "loan"), of("llm-budget", "loan")
    assert plan("cost").one_by_one
    assert plan("cost").in_flight == 1
    assert cost["compression"].settings == budget["Comp-MCTS"].settings
    assert cost["compression"].id != budget["Comp-MCTS"].id


@pytest.mark.parametrize("name", sorted(set(SIZES) - {"prompts", "methods", "quality-llm"}))
def test_the_papers_methods_get_the_papers_prompt_and_recombine_ours(name: str) -> None:
    for arm in (arm for arm in plan(name).arms if arm.asks_llm):
        style = arm.style.template, arm.style.constrain, arm.style.strict
        ours = arm.method == "recombine"
        assert style == (("waysout", True, False) if ours else ("paper", False, False)), arm.name


def test_budgets_are_the_papers() -> None:
    for arm in of("llm-budget", "adult").values():
        assert arm.rows == (30 if "K=1" in arm.name else 150)
        assert arm.calls == {"recombine, 6 calls": 6, "random": 0}.get(arm.name, 30)
    for arm in of("compressors", "loan").values():
        assert (arm.calls, arm.k, arm.rows) == (20, 5, 100)
        assert (arm.settings["scope"], arm.settings["threshold"]) == ("global", 0.01)
    assert {arm.rules for arm in plan("rules").arms} == {"paper", "realistic"}


def test_every_line_of_the_paper_has_its_arm() -> None:
    for data in DATASETS:
        named = {arm.paper for arm in of("llm-budget", data).values()}
        lines = [row for row in paper.read("llm_budget") if row["dataset"] == paper.NAMES[data]]
        assert {row["setting"] for row in lines} <= named
    assert {row["compressor"] for row in paper.read("compressors")} == {
        arm.paper for arm in plan("compressors").arms
    }
    arms = (*plan("oracle-budget").arms, *plan("oracle-budget-large").arms)
    ours = {(paper.NAMES[arm.data], arm.paper, str(arm.rows)) for arm in arms}
    theirs = {(r["dataset"], r["method"], r["n_oracle"]) for r in paper.read("oracle_budget")}
    assert theirs <= ours
    published = plan("oracle-budget-published").arms
    assert all(arm.settings["published"] for arm in published)
    assert theirs == {(paper.NAMES[arm.data], arm.paper, str(arm.rows)) for arm in published}


# Readings ----------------------------------------------------------------------------------------


def test_every_plan_of_the_paper_runs_as_settled_and_as_first_read() -> None:
    papers = {name for name in SIZES if plan(name).reading}
    assert papers == {
        "compressors", "cost", "llm-budget", "llm-sizes", "methods", "oracle-budget",
        "oracle-budget-large", "oracle-budget-published", "prompts", "pruning-heldout",
        "pruning-sweep", "reward-weights", "rules", "yields",
    }  # fmt: skip
    # The searches of `methods` were run before there was another reading.
    assert {plan(name).reading for name in papers - {"methods"}} == {"settled"}
    for name in papers:
        under = [load_plan(f"{name}@{reading}") for reading in READINGS]
        assert [one.reading for one in under] == list(READINGS)
        assert [[arm.name for arm in one.arms] for one in under] == [
            [arm.name for arm in plan(name).arms]
        ] * len(under)


@pytest.mark.parametrize(
    ("reading", "history", "patience", "memory", "unchanged", "heloc"),
    [("settled", "approved", 2, 0, True, "none"), ("first", "all", 0, 10, False, "fixed")],
)
def test_what_a_reading_sets(
    reading: str, history: str, patience: int, memory: int, unchanged: bool, heloc: str
) -> None:
    arms = load_plan(f"llm-budget@{reading}").arms
    for arm in arms:
        settings = asdict(arm.made)
        if arm.method == "comp-mcts":
            assert (settings["history"], settings["patience"]) == (history, patience)
            assert settings["memory"] == 10
        if arm.method.startswith("lats"):
            told = 10 if arm.name.endswith("with memory") else memory
            assert settings["memory"] == told
        trees = arm.method == "comp-mcts" or arm.method.startswith("lats")
        assert arm.style.unchanged is (unchanged and trees)
        assert arm.binning == (heloc if arm.data == "heloc" else "fixed")


def test_the_defaults_of_the_methods_are_those_of_the_reproduction() -> None:
    assert DEFAULT == "settled"
    for method, settings in READINGS[DEFAULT].methods.items():
        made = asdict(make_method(method))
        assert {name: made[name] for name in settings} == dict(settings)


def test_a_reading_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown reading 'setled'.*'settled'"):
        load_plan("pruning-sweep@setled")
    with pytest.raises(InputError, match="plan quality is no plan of the paper"):
        load_plan("quality@first")
    mine = tmp_path / "mine.toml"
    mine.write_text('like = "llm-budget"\nreading = "first"\n')
    ids = [arm.id for arm in load_plan(str(mine)).arms]
    assert ids == [arm.id for arm in load_plan("llm-budget@first").arms]
    assert [arm.id for arm in load_plan(f"{mine}@settled").arms] != ids


def test_the_text_of_a_plan_has_the_reading_that_is_asked_for() -> None:
    assert 'reading = "settled"' in plan_text("pruning-sweep")
    assert 'reading = "first"' in plan_text("pruning-sweep@first")
    assert "reading" not in plan_text("quality")
