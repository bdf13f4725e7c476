from __future__ import annotations

import csv
from functools import cache

import numpy as np
import pytest
from dataset_helpers import real_dataset as dataset
from dataset_helpers import real_table

from waysout.datasets import registry
from waysout.datasets.infer import outer_range
from waysout.datasets.load import training_rows
from waysout.domain.card import Card
from waysout.domain.distance import scale_of
from waysout.domain.key import bin_edges, rounded
from waysout.domain.rules import Immutable, Linked
from waysout.domain.schema import Row, Value

SETS = ("loan", "adult", "credit", "heloc")
# Numerical and categorical features, and what may not change, as the paper gives them.
PAPER: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "loan": (9, 2, ()),
    "adult": (6, 8, ("sex", "race", "native-country")),
    "credit": (20, 3, ("SEX",)),
    "heloc": (23, 0, ()),
}


@cache
def card(name: str) -> Card:
    return registry.card(name)


def column(name: str, feature: str) -> list[Value]:
    i = card(name).schema.index(feature)
    return [row[i] for row in dataset(name).rows]


def refused(name: str) -> list[Row]:
    data = dataset(name)
    return [row for row, label in zip(data.rows, data.labels, strict=True) if not label]


# --- what every card has ---


@pytest.mark.parametrize("name", SETS)
def test_the_features_are_those_of_the_paper(name: str) -> None:
    numeric = [f for f in card(name).schema if f.is_numeric]
    others = [f for f in card(name).schema if not f.is_numeric]
    assert (len(numeric), len(others)) == PAPER[name][:2]
    assert {f.kind for f in numeric} == {"integer"}
    assert {f.kind for f in others} <= {"category"}


@pytest.mark.parametrize("name", SETS)
def test_the_paper_set_is_the_default_and_fixes_what_the_paper_fixes(name: str) -> None:
    rules = card(name).rules()
    assert rules is card(name).rules("paper")
    fixed = [f for rule in rules.rules if isinstance(rule, Immutable) for f in rule.features]
    assert tuple(fixed) == PAPER[name][2]
    assert all(isinstance(rule, Immutable) for rule in rules.rules)


@pytest.mark.parametrize("name", SETS)
def test_the_realistic_set_begins_with_the_paper_s_and_gives_its_reasons(name: str) -> None:
    paper, realistic = card(name).rules("paper").rules, card(name).rules("realistic").rules
    assert realistic[: len(paper)] == paper
    assert len(realistic) > len(paper)
    assert all(rule.why for rule in realistic)


@pytest.mark.parametrize("name", SETS)
def test_nothing_is_left_to_say(name: str) -> None:
    assert card(name).advice() == []
    assert card(name).title
    assert all(len(f.about) > 5 for f in card(name).schema)


@pytest.mark.parametrize("name", SETS)
def test_codes_are_positions_in_sorted_order(name: str) -> None:
    for feature in card(name).schema:
        if feature.kind == "category":
            numbers = all(isinstance(level, int) for level in feature.levels)
            texts = sorted(feature.level_texts, key=int if numbers else str)
            assert feature.codes == {text: float(i) for i, text in enumerate(texts)}


@pytest.mark.parametrize("name", SETS)
def test_every_number_has_a_range_and_a_scale_and_few_bins(name: str) -> None:
    for feature in card(name).schema:
        if feature.is_numeric:
            assert feature.range is not None
            assert card(name).scales[feature.name] > 0
            edges = card(name).bins.get(feature.name, ())
            assert list(edges) == sorted(set(edges))
            assert len(edges) <= 9
            assert all(feature.range[0] <= edge < feature.range[1] for edge in edges)


def test_coded_levels_have_words() -> None:
    for name in ("SEX", "EDUCATION", "MARRIAGE"):
        feature = card("credit").schema[name]
        assert all(isinstance(level, int) for level in feature.levels)
        assert set(feature.words) == set(feature.level_texts)


def test_a_question_mark_is_missing_and_may_be_filled_in() -> None:
    fillable = [f.name for f in card("adult").schema if f.missing == "fill"]
    assert fillable == ["workclass", "occupation", "native-country"]
    assert card("adult").schema["workclass"].parse("?") is None


# --- against the data ---


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_every_row_of_the_table_is_read(name: str) -> None:
    known = registry.info(name)
    assert (len(dataset(name)), dataset(name).positives) == (known.rows, known.positives)


@pytest.mark.parametrize("name", SETS)
def test_the_features_stand_in_the_order_of_the_table(name: str) -> None:
    with real_table(name).open(encoding="utf-8", newline="") as file:
        columns = next(csv.reader(file))
    outside = (card(name).outcome.target, *card(name).outcome.ignore)
    assert card(name).schema.names == tuple(c for c in columns if c not in outside)


@pytest.mark.parametrize("name", SETS)
def test_every_level_occurs(name: str) -> None:
    for i, feature in enumerate(card(name).schema):
        if feature.kind == "category":
            seen = {row[i] for row in dataset(name).rows} - {None}
            assert seen == set(feature.level_texts)


@pytest.mark.parametrize("name", SETS)
def test_ranges_bins_and_scales_are_those_of_the_training_rows(name: str) -> None:
    pytest.importorskip("sklearn", reason="the split is scikit-learn's")
    rows = training_rows(dataset(name))
    for i, feature in enumerate(card(name).schema):
        if feature.is_numeric:
            values = np.array([row[i] for row in rows], dtype=float)
            assert card(name).bins.get(feature.name, ()) == bin_edges(values)
            assert card(name).scales[feature.name] == rounded(scale_of(values).value, 3)
            low, high = outer_range(values)
            assert feature.range is not None
            assert feature.range[0] == low
            # A PAY status may reach 8 in every month, whether or not the training rows do.
            assert feature.range[1] == high or feature.name.startswith("PAY_")


# Rules about a state can be broken by the table itself; those about a move cannot.
OBEYED = {"loan": 1.0, "adult": 0.988, "credit": 0.979, "heloc": 0.998}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_nearly_all_rows_obey_each_realistic_rule(name: str) -> None:
    rules, rows = card(name).rules("realistic"), dataset(name).rows
    counts: dict[str, int] = {}
    breaking = 0
    for row in rows:
        found = {violation.rule for violation in rules.violations(row, row)}
        breaking += bool(found)
        for rule in found:
            counts[rule] = counts.get(rule, 0) + 1
    assert all(count <= 0.01 * len(rows) for count in counts.values()), counts
    assert 1 - breaking / len(rows) >= OBEYED[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_no_refused_row_is_shut_in_by_the_realistic_rules(name: str) -> None:
    rules = card(name).rules("realistic")
    for row in refused(name)[::7]:
        assert rules.obstacles(row) == ()
        assert len(rules.actionable(row)) >= 5


def test_the_education_link_is_right_for_every_row() -> None:
    rules = card("adult").rules("realistic").rules
    (link,) = [rule for rule in rules if isinstance(rule, Linked)]
    table = link.table(card("adult").schema)
    pairs = set(zip(column("adult", "education"), column("adult", "education-num"), strict=True))
    assert pairs == set(table.items())
    assert list(table) == list(card("adult").schema["education"].level_texts)


# --- what the realistic sets say ---

LOAN: dict[str, object] = {
    "no_of_dependents": 2, "education": "Graduate", "self_employed": "No",
    "income_annum": 4_000_000, "loan_amount": 12_000_000, "loan_term": 8, "cibil_score": 400,
    "residential_assets_value": -100_000, "commercial_assets_value": 2_000_000,
    "luxury_assets_value": 8_000_000, "bank_asset_value": 3_000_000,
}  # fmt: skip
ADULT: dict[str, object] = {
    "age": 39, "workclass": "?", "fnlwgt": 77516, "education": "Bachelors", "education-num": 13,
    "marital-status": "Never-married", "occupation": "?", "relationship": "Not-in-family",
    "race": "White", "sex": "Male", "capital-gain": 0, "capital-loss": 1000,
    "hours-per-week": 40, "native-country": "?",
}  # fmt: skip
CREDIT: dict[str, object] = {
    "LIMIT_BAL": 20000, "SEX": 2, "EDUCATION": 2, "MARRIAGE": 1, "AGE": 24,
    "PAY_0": 2, "PAY_2": 2, "PAY_3": -1, "PAY_4": -1, "PAY_5": -2, "PAY_6": -2,
    "BILL_AMT1": 3913, "BILL_AMT2": 3102, "BILL_AMT3": 689, "BILL_AMT4": -20, "BILL_AMT5": 0,
    "BILL_AMT6": 0, "PAY_AMT1": 0, "PAY_AMT2": 689, "PAY_AMT3": 0, "PAY_AMT4": 20, "PAY_AMT5": 0,
    "PAY_AMT6": 0,
}  # fmt: skip
HELOC: dict[str, object] = {
    "ExternalRiskEstimate": 61, "MSinceOldestTradeOpen": 58, "MSinceMostRecentTradeOpen": 5,
    "AverageMInFile": 41, "NumSatisfactoryTrades": 2, "NumTrades60Ever2DerogPubRec": 4,
    "NumTrades90Ever2DerogPubRec": 4, "PercentTradesNeverDelq": 100, "MSinceMostRecentDelq": -7,
    "MaxDelq2PublicRecLast12M": 0, "MaxDelqEver": 8, "NumTotalTrades": 7,
    "NumTradesOpeninLast12M": 1, "PercentInstallTrades": 67, "MSinceMostRecentInqexcl7days": -7,
    "NumInqLast6M": 3, "NumInqLast6Mexcl7days": 3, "NetFractionRevolvingBurden": 70,
    "NetFractionInstallBurden": -8, "NumRevolvingTradesWBalance": 4,
    "NumInstallTradesWBalance": -8, "NumBank2NatlTradesWHighUtilization": 2,
    "PercentTradesWBalance": 60,
}  # fmt: skip
START: dict[str, dict[str, object]] = {
    "loan": LOAN,
    "adult": ADULT,
    "credit": CREDIT,
    "heloc": HELOC,
}

CASES: list[tuple[str, dict[str, object], bool]] = [
    ("loan", {}, True),
    ("loan", {"cibil_score": 700}, True),
    ("loan", {"cibil_score": 350}, False),
    ("loan", {"cibil_score": 901}, False),
    ("loan", {"loan_amount": 9_000_000, "loan_term": 6}, True),
    ("loan", {"loan_amount": 13_000_000}, False),
    ("loan", {"loan_amount": 9_050_000}, False),
    ("loan", {"loan_term": 7}, False),
    ("loan", {"education": "Not Graduate"}, False),
    ("loan", {"no_of_dependents": 1}, False),
    ("loan", {"residential_assets_value": 0}, True),
    ("loan", {"bank_asset_value": 6_000_000}, True),
    ("loan", {"bank_asset_value": 6_100_000}, False),
    ("loan", {"bank_asset_value": 6_100_000, "income_annum": 4_100_000}, True),
    ("adult", {}, True),
    ("adult", {"age": 45}, True),
    ("adult", {"age": 30}, False),
    ("adult", {"education": "Masters"}, True),
    ("adult", {"education": "HS-grad"}, False),
    ("adult", {"education-num": 14}, False),
    ("adult", {"workclass": "Private", "occupation": "Sales"}, True),
    ("adult", {"workclass": "Without-pay"}, False),
    ("adult", {"native-country": "Cuba"}, False),
    ("adult", {"sex": "Female"}, False),
    ("adult", {"marital-status": "Married-civ-spouse"}, False),
    ("adult", {"relationship": "Husband"}, False),
    ("adult", {"fnlwgt": 80000}, False),
    ("adult", {"hours-per-week": 81}, False),
    ("adult", {"capital-gain": 5000}, False),
    ("adult", {"capital-gain": 5000, "capital-loss": 0}, True),
    ("adult", {"capital-loss": 2000}, False),
    ("credit", {}, True),
    ("credit", {"PAY_0": -1}, True),
    ("credit", {"PAY_0": -2}, False),
    ("credit", {"PAY_3": 1}, False),
    ("credit", {"EDUCATION": 1}, True),
    ("credit", {"EDUCATION": 3}, False),
    ("credit", {"EDUCATION": 5}, False),
    ("credit", {"MARRIAGE": 2}, False),
    ("credit", {"LIMIT_BAL": 90000}, False),
    ("credit", {"AGE": 20}, False),
    ("credit", {"BILL_AMT1": 2000}, False),
    ("credit", {"BILL_AMT1": 2000, "PAY_AMT1": 1200}, True),
    ("credit", {"BILL_AMT1": 5000}, False),
    ("credit", {"PAY_AMT2": 0}, False),
    ("credit", {"PAY_AMT2": 2050}, False),
    ("heloc", {}, True),
    ("heloc", {"ExternalRiskEstimate": 80}, True),
    ("heloc", {"NetFractionRevolvingBurden": 20}, True),
    ("heloc", {"NetFractionRevolvingBurden": -8}, False),
    ("heloc", {"NetFractionRevolvingBurden": 80}, False),
    ("heloc", {"NetFractionInstallBurden": 0}, False),
    ("heloc", {"MSinceMostRecentDelq": 40}, False),
    ("heloc", {"MSinceMostRecentInqexcl7days": 12}, False),
    ("heloc", {"MaxDelqEver": 7}, False),
    ("heloc", {"MaxDelq2PublicRecLast12M": 6}, True),
    ("heloc", {"MaxDelq2PublicRecLast12M": 7}, False),
    ("heloc", {"NumInqLast6Mexcl7days": 1}, True),
    ("heloc", {"NumInqLast6M": 1}, False),
    ("heloc", {"NumInqLast6M": 1, "NumInqLast6Mexcl7days": 1}, True),
    ("heloc", {"MSinceMostRecentTradeOpen": 14}, False),
    ("heloc", {"MSinceMostRecentTradeOpen": 14, "NumTradesOpeninLast12M": 0}, True),
    ("heloc", {"NumRevolvingTradesWBalance": 1}, False),
    ("heloc", {"NumTrades60Ever2DerogPubRec": 3}, False),
]


@pytest.mark.parametrize(("name", "changes", "fine"), CASES)
def test_what_a_lender_would_accept(name: str, changes: dict[str, object], fine: bool) -> None:
    schema, rules = card(name).schema, card(name).rules("realistic")
    query = schema.parse(START[name])
    edits = {feature: schema[feature].parse(value) for feature, value in changes.items()}
    found = rules.violations(query, rules.apply(query, edits))
    assert (found == ()) == fine, [str(violation) for violation in found]


@pytest.mark.parametrize("name", ["loan", "heloc"])
def test_without_rules_everything_in_range_may_be_proposed(name: str) -> None:
    schema, rules = card(name).schema, card(name).rules("paper")
    query = schema.parse(START[name])
    assert set(rules.actionable(query)) == set(schema.names)
    special = {"heloc": ("NumInqLast6M", -9), "loan": ("cibil_score", 300)}[name]
    assert rules.violations(query, rules.apply(query, dict([special]))) == ()


def test_special_values_of_heloc_are_never_proposed() -> None:
    rules = card("heloc").rules("realistic")
    for lever in rules.levers(card("heloc").schema.parse(HELOC)).values():
        assert not any(lever.admits(value) for value in range(-9, 0))
