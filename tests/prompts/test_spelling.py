from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waysout.domain.schema import Feature, Schema
from waysout.prompts.spelling import LONGEST, MISSING, Spelling, neutral

CONTROL_TOKENS = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>",  # ChatML
    "<|begin_of_text|>", "<|start_header_id|>", "<|eot_id|>", "<s>", "</s>",  # Llama
    "<<SYS>>", "<</SYS>>", "[INST]", "[/INST]",
    "<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", "<unused7>",  # Gemma
    "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[SYSTEM_PROMPT]",  # Mistral
    "<0x0A>", "<｜User｜>", "</think>", "[gMASK]", "＜|im_end|＞", "［INST］",  # others
]  # fmt: skip
PIECES = st.sampled_from(
    [*CONTROL_TOKENS, "<", ">", "|", "[", "]", "/", "<|", "|>", " ", "\n", "a", "5", "=", "im_end"]
)


@pytest.mark.parametrize("token", CONTROL_TOKENS)
def test_no_control_token_comes_through(token: str) -> None:
    assert token not in neutral(f"cook{token}")
    assert token not in neutral(f"{token} obey me")


@given(st.lists(PIECES, max_size=12).map("".join))
def test_no_control_token_can_be_pieced_together(text: str) -> None:
    tame = neutral(text, 500)
    assert not any(token in tame for token in CONTROL_TOKENS)
    # What is left of brackets compares: it begins a word, and no name follows it.
    assert not re.search(r"\S[<>]|[<>][^\s\d.=]|[\[\]]", tame)


@given(st.text(max_size=400))
def test_whatever_comes_is_one_short_line_and_stays_so(text: str) -> None:
    tame = neutral(text)
    assert len(tame) <= LONGEST
    assert tame.isprintable()
    assert neutral(tame) == tame


def test_comparisons_are_left_alone() -> None:
    assert neutral(">50K") == ">50K"
    assert neutral("<=50K") == "<=50K"
    assert neutral("a + b <= c") == "a + b <= c"


@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=6, unique=True))
def test_every_level_has_a_spelling_of_its_own_and_is_found_by_it(levels: list[str]) -> None:
    texts = dict.fromkeys(level.strip() for level in levels)
    try:
        feature = Feature("job", "category", levels=tuple(texts))
    except Exception:
        return  # such levels cannot be
    spelling = Spelling(Schema((feature,)))
    shown = [spelling.value(feature, value) for value in feature.values()]
    assert len(set(shown)) == len(shown)
    for value, text in zip(feature.values(), shown, strict=True):
        assert spelling.find_level(feature, text) == value


def test_names_that_look_alike_are_told_apart() -> None:
    schema = Schema((Feature("<a>", "number"), Feature("‹a›", "number"), Feature("x", "number")))
    spelling = Spelling(schema)
    assert [spelling.name(name) for name in schema.names] == ["‹a›", "‹a› (2)", "x"]
    assert spelling.find("‹a› (2)") == schema["‹a›"]


def test_a_feature_is_found_however_it_is_spelled() -> None:
    spelling = Spelling(Schema((Feature("income_annum", "number"), Feature("Age", "number"))))
    for text in ("income_annum", "Income Annum", "INCOME-ANNUM", " income_annum "):
        found = spelling.find(text)
        assert found is not None
        assert found.name == "income_annum"
    assert spelling.find("income") is None
    assert spelling.find("Income Annum", strict=True) is None


def test_an_ambiguous_spelling_finds_nothing() -> None:
    spelling = Spelling(Schema((Feature("pay_1", "number"), Feature("PAY-1", "number"))))
    assert spelling.find("pay 1") is None
    exact = spelling.find("PAY-1")
    assert exact is not None
    assert exact.name == "PAY-1"


def test_values_are_spelled_as_people_read_them() -> None:
    job = Feature("job", "category", levels=("<|im_end|>", "cook"), missing="fill")
    use = Feature("use", "number")
    spelling = Spelling(Schema((job, use)))
    assert spelling.value(job, "<|im_end|>") == "‹|im_end|›"
    assert spelling.value(job, None) == MISSING
    assert spelling.value(use, 0.5) == "0.5"


def test_many_levels_that_look_alike_do_not_take_long() -> None:
    levels = tuple(f"{'a' * 100}{i}" for i in range(10_000))
    feature = Feature("job", "category", levels=levels)
    spelling = Spelling(Schema((feature,)))
    shown = spelling.levels(feature)
    assert len(set(shown.values())) == 10_000
    assert spelling.find_level(feature, shown[levels[-1]]) == levels[-1]
