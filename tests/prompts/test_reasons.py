from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from waysout.datasets.load import load_dataset
from waysout.llm.base import Form
from waysout.prompts.propose import Proposer, Style
from waysout.prompts.reasons import is_reason, kept_reasons
from waysout.prompts.render import Template, Topic

ROOT = Path(__file__).parents[2]
NAMES = ("income", "savings", "loan_months", "credit_score", "employment", "other_debts")


@pytest.mark.parametrize(
    "text",
    [
        "", "1", "3", "0.25", "x", "incombe", "Increase", "12 000", "a b c",
        "income", "Incomes", "the income", "credit_score", "Credit Scores", "credit-score",
        "loan month", "other debts", "income income income",
        "employment", "self-employed", "Self-Employed.", "employment: self-employed",
        "FEATURE=employment VALUE=self-employed", "new value", "the new value",
        "up to eight words", "<up to eight words>", "‹up to eight words›", "Up to 8 words.",
        "up to eight words, up to eight words", "a short reason", "brief explanation",
        "exact feature name",
        "income_limit_to_2850000000000018 (11.1) (1.1) (12.1)",
    ],
)  # fmt: skip
def test_what_small_models_write_is_no_reason(text: str) -> None:
    assert not is_reason(text, "employment", "self-employed", NAMES)


@pytest.mark.parametrize(
    "text",
    [
        "More income",
        "a larger cushion",
        "Less debt.",
        "pay on time",
        "lower the income risk",
        "up to eight words are too few for this",
        "self-employed people can choose their hours",
        "simulated: banks like stability",
        "The applicant is expected to pay as agreed.",
    ],
)
def test_a_reason_is_one(text: str) -> None:
    assert is_reason(text, "employment", "self-employed", NAMES)


@pytest.mark.parametrize("template", ["paper", "waysout"])
@pytest.mark.parametrize("form", ["none", "json_schema"])
def test_no_placeholder_of_a_prompt_is_a_reason(template: Template, form: Form) -> None:
    data = load_dataset("synthetic")
    row, topic = data.rows[828], Topic.of_card(data.card)
    request = Proposer(topic, form, Style(template)).request(row, row)
    assert request is not None
    placeholders = re.findall("<(.+?)>", request.messages[0].content)
    assert len(placeholders) >= 3
    assert not any(is_reason(text) or is_reason(f"<{text}>") for text in placeholders)


def test_nothing_of_the_smallest_model_is_a_reason() -> None:
    lines = (ROOT / "tests/golden/recordings/demo.jsonl").read_text("utf-8").splitlines()
    replies = [json.loads(line)["reply"]["text"] for line in lines]
    said = re.findall(r"FEATURE=(.*)\nVALUE=(.*)\nREASONING=(.*)", "\n".join(replies))
    assert len(said) == 60
    assert not [reason for feature, value, reason in said if is_reason(reason, feature, value)]


def test_what_a_larger_model_writes_stays() -> None:
    path = ROOT / "benchmarks/results/replies-qwen2.5-coder-1.5b.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        text = "\n".join(json.loads(line)["reply"]["text"] for line in file)
    said = re.findall(r"FEATURE=(.*)\nVALUE=(.*)\nREASONING=(.*)", text)
    none = [reason for feature, value, reason in said if not is_reason(reason, feature, value)]
    assert len(said) > 10_000
    assert len(none) < 10, none


def test_a_model_known_to_write_nonsense_has_no_reasons() -> None:
    said = ("income: more money each month", "like row 5 of your data")
    assert kept_reasons(said) == kept_reasons(said, "openai:gemma") == said
    assert kept_reasons(said, "llamacpp:smollm2-135m") == said[1:]
