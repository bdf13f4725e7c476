from __future__ import annotations

import sys
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from oracle_data import package

from waysout.domain.distance import Distance, proximity
from waysout.domain.key import Key
from waysout.domain.oracle import Goal, Oracle
from waysout.domain.problem import Problem
from waysout.domain.rules import Rule, RuleSet, rule_from_table
from waysout.domain.schema import Feature, Row, Schema, Value
from waysout.errors import InputError, MissingExtra
from waysout.oracles.adapt import as_oracle
from waysout.oracles.cache import CachedOracle
from waysout.oracles.certify import Certificate, certify

JOBS = ("none", "part", "full")
SCHEMA = Schema(
    (
        Feature("income", "integer", range=(0, 9)),
        Feature("debt", "integer", range=(0, 6)),
        Feature("rate", "number", range=(0, 0.6), decimals=1),
        Feature("job", "category", levels=JOBS, codes={"none": 0, "part": 2, "full": 1}),
        Feature("own", "boolean"),
        Feature("hours", "integer", range=(0, 4)),
    )
)
ALL_ROWS: list[Row] = list(
    product(range(10), range(7), [i / 10 for i in range(7)], JOBS, (False, True), range(5))
)
HOURS = {"none": 0, "part": 2, "full": 4}
SETS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "single": [
        {"kind": "direction", "features": ["income"], "direction": "up"},
        {"kind": "step", "feature": "income", "step": 3, "start": 1},
        {"kind": "never", "features": ["debt"], "values": [0, 2, 3]},
        {"kind": "step", "feature": "rate", "step": 0.3},
        {"kind": "transitions", "feature": "job", "forbid": {"none": ["full"]}},
        {"kind": "immutable", "features": ["own"]},
    ],
    "states": [  # what a query may break, so that it has to move
        {"kind": "range", "feature": "debt", "max": 3},
        {"kind": "allowed", "feature": "hours", "values": [1, 4]},
        {"kind": "allowed", "feature": "job", "values": ["part", "full"]},
    ],
    "linked": [
        {"kind": "linked", "feature": "job", "sets": "hours", "map": HOURS},
        {"kind": "immutable", "features": ["income"]},
    ],
    "linear": [{"kind": "linear", "that": "debt + hours >= 3"}],
    "max-changes": [{"kind": "max-changes", "at_most": 2}],
    "implies": [{"kind": "implies", "when": {"own": True}, "then": {"job": ["part", "full"]}}],
    "stuck": [{"kind": "immutable", "features": ["income", "job", "own", "hours", "rate"]}],
}


@lru_cache
def training() -> tuple[list[Row], Any]:
    rng = np.random.default_rng(5)
    rows = [ALL_ROWS[i] for i in rng.integers(len(ALL_ROWS), size=400)]
    x = matrix(rows)
    score = x[:, 0] - x[:, 1] + 2 * (x[:, 3] == 1) + 2 * x[:, 4] - 3 * x[:, 2] + x[:, 5] * x[:, 4]
    return rows, (score + rng.normal(0, 1, len(rows)) > 6).astype(int)


def matrix(rows: list[Row]) -> Any:
    encoded = SCHEMA.encode(rows)
    encoded[:, 3] = np.array([0, 2, 1])[encoded[:, 3].astype(int)]
    return encoded


@lru_cache
def model(name: str) -> Any:
    rows, y = training()
    x = matrix(rows)
    if name == "lightgbm":
        made = package("lightgbm").LGBMClassifier(
            n_estimators=12, num_leaves=8, min_child_samples=5, n_jobs=1, verbosity=-1
        )
    elif name == "xgboost":
        made = package("xgboost").XGBClassifier(n_estimators=10, max_depth=3, n_jobs=1)
    elif name == "catboost":
        made = package("catboost").CatBoostClassifier(
            iterations=10, depth=3, verbose=False, allow_writing_files=False, thread_count=1
        )
    else:
        package("sklearn")
        from sklearn import ensemble

        options: dict[str, Any] = {"random_state": 0, "max_depth": 4}
        count = "max_iter" if name.startswith("Hist") else "n_estimators"
        made = getattr(ensemble, name)(**{count: 10}, **options)
    made.fit(x, y)
    return made


def problem_of(
    oracle: Oracle | str = "lightgbm", rules: str | list[Rule] = "none", goal: Goal | None = None
) -> Problem:
    package("treecf")
    if isinstance(oracle, str):
        oracle = as_oracle(model(oracle), SCHEMA, positive=1, inputs="codes")
    made = [rule_from_table(table) for table in SETS[rules]] if isinstance(rules, str) else rules
    distance = Distance.fit(SCHEMA, training()[0])
    bound = RuleSet(SCHEMA, tuple(made))
    return Problem(SCHEMA, bound, Key(SCHEMA), distance, CachedOracle(oracle), goal or Goal())


def cheapest(problem: Problem, query: Row) -> float | None:
    """The least cost of all rows there are: what `certify` has to find."""
    answers = problem.oracle.ask(ALL_ROWS)
    goal = problem.goal.for_query(float(problem.oracle.ask([query]).probability[0]))
    yes = [row for row, met in zip(ALL_ROWS, goal.met(answers), strict=True) if met]
    paid = problem.costs(query, yes)
    for i in np.argsort(paid):
        if yes[i] != query and not problem.violations(query, yes[i]):
            return float(paid[i])
    return None


def rejected(problem: Problem, count: int) -> list[Row]:
    rows = ALL_ROWS[:: len(ALL_ROWS) // 97]
    no = [r for r, yes in zip(rows, problem.oracle.ask(rows).decision, strict=True) if not yes]
    return no[:: max(1, len(no) // count)][:count]


def check(problem: Problem, query: Row, found: Certificate) -> None:
    """Whatever a certificate says must be true of all rows there are."""
    least = cheapest(problem, query)
    if found.kind == "infeasible":
        assert least is None
        return
    assert found.bound is not None
    assert least is None or found.bound <= least + 1e-9
    if found.row is None:
        assert found.kind == "unknown"
        return
    assert least is not None
    assert found.cost is not None
    assert found.cost == pytest.approx(problem.costs(query, [found.row])[0])
    assert found.cost >= least - 1e-9
    assert not problem.violations(query, found.row)
    if found.kind == "optimal":
        assert found.cost == pytest.approx(least)


@pytest.mark.parametrize("rules", ["none", "single", "states", "linked"])
def test_the_cheapest_way_out_is_that_of_all_rows(rules: str) -> None:
    problem = problem_of(rules=rules)
    found = [certify(problem, query) for query in rejected(problem, 5)]
    assert {one.kind for one in found} <= {"optimal", "infeasible"}
    assert "optimal" in {one.kind for one in found}
    for query, one in zip(rejected(problem, 5), found, strict=True):
        check(problem, query, one)


@pytest.mark.parametrize(
    "name",
    [
        "xgboost", "catboost", "RandomForestClassifier", "GradientBoostingClassifier",
        "HistGradientBoostingClassifier",
    ],
)  # fmt: skip
def test_every_family_of_trees_can_be_read(name: str) -> None:
    problem = problem_of(name)
    for query in rejected(problem, 2):
        found = certify(problem, query)
        assert found.kind == "optimal"
        check(problem, query, found)


def categories_model(**options: Any) -> Any:
    """CatBoost on the table as it is: text, true and false, and a number that is a category."""
    catboost, pandas = package("catboost"), package("pandas")
    rows, y = training()
    frame = pandas.DataFrame([SCHEMA.as_dict(row) for row in rows])
    made = catboost.CatBoostClassifier(
        verbose=False, allow_writing_files=False, thread_count=1,
        cat_features=["job", "own", *options.pop("also", ())],
        **{"iterations": 12, "depth": 4, **options},
    )  # fmt: skip
    return made.fit(frame, y)


SINGLE = {"one_hot_max_size": 1, "max_ctr_complexity": 1}


@pytest.mark.parametrize("rules", ["none", "single", "linked"])
@pytest.mark.parametrize("options", [{"one_hot_max_size": 3}, SINGLE], ids=["one-hot", "single"])
def test_categories_of_catboost_are_proved(options: dict[str, int], rules: str) -> None:
    oracle = as_oracle(categories_model(**options), SCHEMA, positive=1)
    problem = problem_of(oracle, rules)
    queries = rejected(problem, 4)
    found = [certify(problem, query) for query in queries]
    assert {one.kind for one in found} <= {"optimal", "infeasible"}
    moved = set[str]()
    for query, one in zip(queries, found, strict=True):
        check(problem, query, one)
        if one.row is not None:
            assert problem.oracle.ask([one.row]).decision.all()
            moved.update(SCHEMA.changed(query, one.row))
    assert moved & {"job", "own"}


def test_a_number_that_is_a_category_may_stay_and_not_move() -> None:
    made = categories_model(also=["hours"], one_hot_max_size=5)
    oracle = as_oracle(made, SCHEMA, positive=1)
    held = problem_of(oracle, [rule_from_table({"kind": "immutable", "features": ["hours"]})])
    for query in rejected(held, 3):
        check(held, query, certify(held, query))
    free = problem_of(oracle)
    with pytest.raises(InputError, match="'hours' is a category to it"):
        certify(free, rejected(free, 1)[0])


def test_statistics_over_several_categories_are_refused_with_the_remedy() -> None:
    many = {"iterations": 60, "depth": 6, "max_ctr_complexity": 4, "one_hot_max_size": 1}
    oracle = as_oracle(categories_model(also=["hours"], **many), SCHEMA, positive=1)
    problem = problem_of(oracle)
    with pytest.raises(InputError, match=r"\(CTRs\).*trained with one_hot_max_size=5 it can be"):
        certify(problem, rejected(problem, 1)[0])


def test_trees_of_catboost_that_are_not_symmetric_are_refused() -> None:
    made = categories_model(one_hot_max_size=3, grow_policy="Lossguide")
    problem = problem_of(as_oracle(made, SCHEMA, positive=1))
    with pytest.raises(InputError, match="its grow_policy is not SymmetricTree"):
        certify(problem, rejected(problem, 1)[0])


def test_no_way_out_is_proved() -> None:
    problem = problem_of(rules="stuck")
    # Debt alone may move: for this row it is not enough.
    found = certify(problem, (0, 6, 0.6, "none", False, 0))
    assert (found.kind, found.row, found.option) == ("infeasible", None, None)
    assert found.proved
    assert cheapest(problem, (0, 6, 0.6, "none", False, 0)) is None


@pytest.mark.parametrize("rules", ["linear", "max-changes", "implies"])
def test_rules_left_out_make_a_bound_and_are_kept_by_the_option(rules: str) -> None:
    problem = problem_of(rules=rules)
    found = [certify(problem, query) for query in rejected(problem, 8)]
    for query, one in zip(rejected(problem, 8), found, strict=True):
        assert "left out of the proof" in one.notes[0]
        check(problem, query, one)
    assert {"optimal", "best found"} <= {one.kind for one in found}


def test_a_one_hot_group_moves_as_one() -> None:
    package("treecf")
    names = ("red", "green", "blue")
    schema = Schema(
        (*(Feature(name, "boolean") for name in names), Feature("n", "integer", range=(0, 3)))
    )
    rows: list[Row] = list(product((False, True), (False, True), (False, True), range(4)))
    x = schema.encode(rows)
    y = ((2 * x[:, 2] + x[:, 1] + x[:, 3]) > 3).astype(int)
    package("sklearn")
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(5, bootstrap=False, random_state=0).fit(x, y)
    group = rule_from_table({"kind": "one-hot", "features": list(names)})
    problem = Problem(
        schema, RuleSet(schema, (group,)), Key(schema), Distance.fit(schema, rows),
        as_oracle(forest, schema, positive=1, inputs="codes"),
    )  # fmt: skip
    query = (True, False, False, 1)
    found = certify(problem, query)
    approved = problem.oracle.ask(rows).decision
    ways = [r for r, yes in zip(rows, approved, strict=True) if yes and sum(map(bool, r[:3])) == 1]
    assert found.kind == "optimal"
    assert found.cost == pytest.approx(problem.costs(query, ways).min())


def test_a_missing_value_that_may_be_filled_in_costs_one_scale() -> None:
    package("treecf")
    schema = Schema(
        (
            Feature("income", "number", range=(0, 10), missing="fill"),
            Feature("kept", "number", range=(0, 10), missing="keep"),
        )
    )
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 10, (200, 2))
    x[::5] = np.nan
    lightgbm = package("lightgbm")
    made = lightgbm.LGBMClassifier(n_estimators=5, num_leaves=4, n_jobs=1, verbosity=-1)
    made.fit(x, (np.nan_to_num(x[:, 0]) > 6).astype(int))
    problem = Problem(
        schema, RuleSet(schema), Key(schema), Distance(schema, {"income": 2.0, "kept": 2.0}),
        as_oracle(made, schema, positive=1, inputs="codes"),
    )  # fmt: skip
    found = certify(problem, (None, None))
    assert found.kind == "optimal"
    assert found.row is not None
    assert found.row[1] is None
    assert found.cost == pytest.approx(0.5 * 1 / 2)


def test_a_goal_of_one_s_own_is_met() -> None:
    problem = problem_of(goal=Goal(rise=0.3))
    query = rejected(problem, 3)[1]
    found = certify(problem, query)
    assert found.option is not None
    assert found.option.probability >= problem.oracle.ask([query]).probability[0] + 0.3
    check(problem, query, found)


def test_yes_may_be_the_model_s_other_class() -> None:
    oracle = as_oracle(model("lightgbm"), SCHEMA, positive=0, inputs="codes")
    problem = problem_of(oracle)
    query = rejected(problem, 3)[0]
    found = certify(problem, query)
    assert found.kind == "optimal"
    check(problem, query, found)


def test_the_cost_is_never_above_the_distance() -> None:
    problem = problem_of()
    query, others = ALL_ROWS[17], ALL_ROWS[::701]
    encoded = SCHEMA.encode([query, *others])
    far = problem.distance.between(encoded[0], encoded[1:])
    paid = problem.costs(query, others)
    assert (paid <= far + 1e-12).all()
    assert (paid > 0).all()


def test_the_bound_tells_how_near_a_way_out_can_be() -> None:
    problem = problem_of()
    found = certify(problem, rejected(problem, 3)[0])
    assert found.bound is not None
    assert found.option is not None
    assert found.nearest == proximity(found.bound)
    assert found.option.proximity <= found.nearest
    assert found.as_dict()["option"]["changes"] == {
        name: list(pair) for name, pair in found.option.changes.items()
    }


def test_rows_that_need_no_proof_are_told() -> None:
    problem = problem_of()
    answers = problem.oracle.ask(ALL_ROWS)
    with pytest.raises(InputError, match="needs no way out"):
        certify(problem, ALL_ROWS[int(answers.probability.argmax())])
    locked = problem_of(rules=[rule_from_table({"kind": "immutable", "features": SCHEMA.names})])
    found = certify(locked, rejected(locked, 1)[0])
    assert found.kind == "infeasible"
    assert "fixed" in found.notes[0]


def test_no_time_is_no_proof() -> None:
    problem = problem_of()
    query = rejected(problem, 1)[0]
    assert certify(problem, query, seconds=1e-9).kind == "unknown"
    with pytest.raises(InputError, match="above 0, not 0"):
        certify(problem, query, seconds=0)


def test_what_is_no_tree_is_refused() -> None:
    package("sklearn")
    from sklearn.linear_model import LogisticRegression

    rows, y = training()
    linear = as_oracle(
        LogisticRegression().fit(matrix(rows), y), SCHEMA, positive=1, inputs="codes"
    )
    function = as_oracle(lambda frame: frame["income"] / 10, SCHEMA, positive=1)
    for oracle in (linear, function):
        problem = problem_of(oracle)
        with pytest.raises(InputError, match=r"needs a model of trees \(LightGBM, XGBoost"):
            certify(problem, ALL_ROWS[0])


def test_trees_that_answer_otherwise_than_the_oracle_are_refused() -> None:
    oracle = as_oracle(model("lightgbm"), SCHEMA, positive=1, inputs="codes")
    oracle._adapter = oracle._adapter.__class__(
        ask=lambda batch: np.full(len(batch), 0.25), layouts=oracle._adapter.layouts,
        classes=(0, 1),
    )  # fmt: skip
    with pytest.raises(InputError, match="it answers otherwise"):
        certify(problem_of(oracle), ALL_ROWS[0])


def test_a_missing_package_says_which_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of()
    query = rejected(problem, 1)[0]
    monkeypatch.setitem(sys.modules, "treecf", None)
    with pytest.raises(MissingExtra, match=r"waysout\[treecf\]"):
        certify(problem, query)


def test_one_hot_groups_that_share_a_feature_with_a_link_get_no_proof() -> None:
    tied: list[dict[str, Any]] = [
        {"kind": "one-hot", "features": ["own", "flag"]},
        {"kind": "linked", "feature": "own", "sets": "hours", "map": {"false": 0, "true": 4}},
    ]
    schema = Schema((*SCHEMA.features, Feature("flag", "boolean")))
    rules = RuleSet(schema, tuple(rule_from_table(table) for table in tied))
    asked = problem_of()
    oracle = as_oracle(lambda rows: [0.1] * len(rows), schema, positive=1, inputs="codes")
    problem = Problem(schema, rules, Key(schema), Distance.fit(schema, ()), oracle, asked.goal)
    with pytest.raises(InputError, match=r"share 'own'"):
        certify(problem, (1, 6, 0.5, "none", False, 0, True))


def test_a_row_with_a_group_in_disorder_gets_no_proof() -> None:
    schema = Schema((*SCHEMA.features, Feature("flag", "boolean")))
    rules = RuleSet(schema, (rule_from_table({"kind": "one-hot", "features": ["own", "flag"]}),))
    oracle = as_oracle(lambda rows: [0.1] * len(rows), schema, positive=1, inputs="codes")
    problem = Problem(schema, rules, Key(schema), Distance.fit(schema, ()), oracle)
    with pytest.raises(InputError, match="the row itself breaks 'one-hot own flag'"):
        certify(problem, (1, 6, 0.5, "none", True, 0, True))


def test_splits_that_only_tell_what_is_missing() -> None:
    """scikit-learn writes them as infinite ones."""
    package("treecf")
    ensemble = pytest.importorskip("sklearn.ensemble")
    schema = Schema(
        (
            Feature("income", "integer", range=(0, 9), missing="keep"),
            Feature("debt", "integer", range=(0, 9)),
        )
    )
    x = np.random.default_rng(0).integers(0, 10, (200, 2)).astype(float)
    x[::4, 0] = np.nan
    y = (np.isnan(x[:, 0]) | (x[:, 1] > 6)).astype(int)
    made = ensemble.HistGradientBoostingClassifier(max_iter=3).fit(x, y)
    oracle = as_oracle(made, schema, positive=1, inputs="codes")
    scales = {"income": 2.0, "debt": 2.0}
    problem = Problem(schema, RuleSet(schema), Key(schema), Distance(schema, scales), oracle)
    found = certify(problem, (3, 2))
    assert (found.kind, found.row) == ("optimal", (3, 7))


def test_a_cost_is_the_mean_gap_and_the_share_of_categories_changed() -> None:
    problem = problem_of()
    alpha, scales = problem.distance.alpha, problem.distance.scales
    query: Row = (3, 2, 0.1, "none", False, 1)
    edits: list[dict[str, Value]] = [{"job": "full"}, {"job": "full", "own": True}, {"income": 5}]
    paid = problem.costs(query, [SCHEMA.replace(query, edit) for edit in edits])
    # Two features have levels, four are numbers.
    by_hand = [(1 - alpha) / 2, 1 - alpha, alpha * 2 / scales["income"] / 4]
    assert paid.tolist() == pytest.approx(by_hand)
    assert 0 < alpha < 1
