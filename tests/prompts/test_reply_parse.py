from __future__ import annotations

import pytest
from reply_samples import BLOCK, JSON, MARKDOWN

from waysout.prompts.parse import Raw, candidates, unwrap

Said = list[tuple[str, str]]


def said(text: str, *, cut: bool = False) -> Said:
    """Return what was understood, or the flaw in the place of the value."""
    found = candidates(text, cut=cut)
    return [(unwrap(raw.feature), raw.flaw or unwrap(raw.value)) for raw in found]


INCOME: Said = [("income", "50000")]
TWO: Said = [("income", "50000"), ("savings", "9000")]

ONE_CANDIDATE = {
    "the format": "CANDIDATE=1\nFEATURE=income\nVALUE=50000\nREASONING=x",
    "change": "CANDIDATE=1\nFEATURE=income\nCHANGE=50000\nREASONING=x",
    "change and value": "FEATURE=income\nCHANGE=increase\nVALUE=50000",
    "value and change": "FEATURE=income\nVALUE=50000\nCHANGE=+10000",
    "colons": "CANDIDATE: 1\nFEATURE: income\nVALUE: 50000\nREASONING: x",
    "spaces": "  CANDIDATE = 1\n  FEATURE = income \n  VALUE = 50000\n",
    "any case": "Candidate=1\nfeature=income\nValue=50000\nReasoning=x",
    "windows": "CANDIDATE=1\r\nFEATURE=income\r\nVALUE=50000\r\nREASONING=x\r\n",
    "old mac": "CANDIDATE=1\rFEATURE=income\rVALUE=50000\rREASONING=x",
    "prose around": "Sure, here you go:\n\nFEATURE=income\nVALUE=50000\nREASONING=x\n\nGood luck!",
    "no header": "FEATURE=income\nVALUE=50000",
    "header in words": "Candidate 1:\nFEATURE=income\nVALUE=50000",
    "header with a hash": "### Candidate #1\nFEATURE=income\nVALUE=50000",
    "header with a title": "**Candidate 1: earn more**\nFEATURE=income\nVALUE=50000",
    "underscore": "CANDIDATE_1\nFEATURE=income\nVALUE=50000",
    "template kept": "CANDIDATE=<1>\nFEATURE=<income>\nVALUE=<50000>",
    "enumerated": "1. FEATURE=income\n   VALUE=50000",
    "enumerated with a bracket": "1) FEATURE=income\n   VALUE=50000",
    "fence": "```text\nFEATURE=income\nVALUE=50000\n```",
    "bold keys": "**FEATURE:** income\n**VALUE:** 50000",
    "bold lines": "**FEATURE=income**\n**VALUE=50000**",
    "code": "FEATURE=`income`\nVALUE=`50000`",
    "bullets": "- FEATURE: income\n* VALUE: 50000\n• REASONING: x",
    "quote": "> FEATURE: income\n> VALUE: 50000",
    "quotation marks": "FEATURE=\"income\"\nVALUE='50000'",
    "commas": "FEATURE=income, VALUE=50000, REASONING=more, value: high",
    "pipes": "| FEATURE: income | VALUE: 50000 | REASON: x |",
    "semicolons": "candidate 1: feature: income; value: 50000; rationale: x",
    "nothing but spaces": "CANDIDATE=1 FEATURE=income VALUE=50000 REASONING=x",
    "in a sentence": "I would set FEATURE=income, VALUE=50000, REASONING=x",
    "on the next line": "FEATURE:\nincome\nVALUE:\n\n50000\n",
    "value first": "VALUE=50000\nFEATURE=income",
    "other names": "Feature name: income\nNew value: 50000\nExplanation: x",
    "current value": "FEATURE=income\nCURRENT VALUE=40000\nVALUE=50000",
    "old value on the line": "FEATURE=income OLD_VALUE=40000 VALUE=50000",
    "thoughts": "<think>FEATURE=age\nVALUE=1</think>FEATURE=income\nVALUE=50000",
    "thoughts opened before": "FEATURE=age\nVALUE=1\n</think>\nFEATURE=income\nVALUE=50000",
    "thoughts left open": "FEATURE=income\nVALUE=50000\n<think>FEATURE=age\nVALUE=1",
    "thoughts in brackets": "[THINK]FEATURE=age\nVALUE=1[/THINK]FEATURE=income\nVALUE=50000",
    "thoughts by another name": "<thought>FEATURE=a\nVALUE=1</thought>FEATURE=income\nVALUE=50000",
    "thoughts ended but never begun": "FEATURE=income\nVALUE=50000\n</think>\n",
    "numbered fields": "FEATURE_1=income\nVALUE_1=50000",
    "numbered fields in words": "Feature 1: income\nValue 1: 50000",
    "fields in the reason": (
        "CANDIDATE=1\nFEATURE=income\nVALUE=50000\n"
        "REASONING=Setting VALUE=900 with FEATURE=age VALUE=7 helps,\nas feature: age, VALUE=8"
    ),
    "json at the end of the reason": (
        'FEATURE=income, VALUE=50000, REASONING=like {"feature": "age", "value": 7}'
    ),
    "json in the reason": (
        'FEATURE=income\nVALUE=50000\nREASONING=like {"feature": "age", "value": 7}\n'
        'or {"feature": "age", "value": 8} or {"feature": "age", "value": 9}, say'
    ),
    "long json in the reason": (
        'FEATURE=income\nVALUE=50000\nREASONING=like {\n"feature": "age",\n"value": 7}\n'
    ),
    "json under a header": 'CANDIDATE=1\n{"feature": "income", "value": 50000}',
    "json mapping under a header": 'CANDIDATE 1: {"income": 50000}',
    "json mapping named by a header": '{"candidate_1": {"income": 50000, "reasoning": "x"}}',
    "json": '{"candidates": [{"feature": "income", "value": 50000, "reasoning": "x"}]}',
    "json list": '[{"feature": "income", "value": "50000"}]',
    "json object": '{"feature": "income", "value": 50000}',
    "json keys in capitals": '{"CANDIDATE": 1, "FEATURE": "income", "VALUE": 50000}',
    "json in prose": 'Here: {"feature": "income", "value": 50000} as you {wished}.',
    "json in a fence": '```json\n{"feature": "income",\n "value": 50000}\n```',
    "json with a last comma": '[{"feature": "income", "value": 50000,},]',
    "json with a raw line end": '{"feature": "income", "value": 50000, "reasoning": "a\nb"}',
    "json mapping": '{"candidates": [{"income": 50000, "reasoning": "x"}]}',
    "json nested mapping": '{"income": {"value": 50000, "reasoning": "x"}}',
    "json by number": '{"1": {"feature": "income", "value": 50000}}',
    "json without its end": '{"candidates": [{"feature": "income", "value": 50000}',
    "python": "[{'feature': 'income', 'value': 50000, 'reasoning': 'x'}]",
    "broken json": '{\n "feature": "income",\n "value": 50000,\n "reasoning": oops\n}',
    "row before": 'Now: {"income": 40000}\nFEATURE=income\nVALUE=50000',
}


@pytest.mark.parametrize("text", ONE_CANDIDATE.values(), ids=ONE_CANDIDATE)
def test_one_candidate_in_any_dress(text: str) -> None:
    assert said(text) == INCOME


TWO_CANDIDATES = {
    "blocks": "CANDIDATE=1\nFEATURE=income\nVALUE=50000\nCANDIDATE=2\nFEATURE=savings\nVALUE=9000",
    "no headers": "FEATURE=income\nVALUE=50000\nREASONING=x\n\nFEATURE=savings\nVALUE=9000",
    "value first": "VALUE=50000\nFEATURE=income\nVALUE=9000\nFEATURE=savings",
    "one line": "CANDIDATE=1 FEATURE=income VALUE=50000 CANDIDATE=2 FEATURE=savings VALUE=9000",
    "one line, small": "feature: income, value: 50000; feature: savings, value: 9000",
    "order changes": (
        "CANDIDATE=1\nFEATURE=income\nVALUE=50000\nCANDIDATE=2\nVALUE=9000\nFEATURE=savings"
    ),
    "json": '[{"feature": "income", "value": 50000}, {"value": 9000, "feature": "savings"}]',
    "json lines": '{"feature": "income", "value": 50000}\n{"feature": "savings", "value": 9000}',
    "json pairs": '{"income": 50000, "savings": 9000}',
    "json twice the key": '{"c": {"income": 50000}, "c": {"savings": 9000}}',
    "json twice the fields": (
        '{"feature": "income", "value": 50000, "feature": "savings", "value": 9000}'
    ),
    "json, one broken": (
        '[{"feature": "income", "value": 50000},'
        ' {"feature": "savings", "value": 9000, "reason": x}]'
    ),
    "json, first unclosed": (
        '[{"feature": "income", "value": 50000, {"feature": "savings", "value": 9000}]'
    ),
    "python": "[{'feature': 'income', 'value': 50000}, {'feature': 'savings', 'value': 9000}]",
    "json, then a block": '{"feature": "income", "value": 50000}\nFEATURE=savings\nVALUE=9000',
    "a block, then json": (
        'FEATURE=income\nVALUE=50000\nREASONING=x\n{"feature": "savings", "value": 9000}'
    ),
    "headers, json and a block": (
        'CANDIDATE=1\n{"feature": "income", "value": 50000}\n'
        "CANDIDATE=2\nFEATURE=savings\nVALUE=9000"
    ),
    "headers and mappings": 'CANDIDATE 1: {"income": 50000}\n**CANDIDATE 2:** {"savings": 9000}',
    "a block, then a mapping under a header": (
        'CANDIDATE=1\nFEATURE=income\nVALUE=50000\nCANDIDATE=2\n```json\n{"savings": 9000}\n```'
    ),
}


@pytest.mark.parametrize("text", TWO_CANDIDATES.values(), ids=TWO_CANDIDATES)
def test_two_candidates(text: str) -> None:
    assert said(text) == TWO


FLAWED: dict[str, tuple[str, bool, Said]] = {
    "empty": ("", False, [("", "empty")]),
    "blank": (" \n\t", False, [("", "empty")]),
    "only thoughts": ("<think>FEATURE=a\nVALUE=1", True, [("", "empty")]),
    "prose": ("You should earn more.", False, [("", "no candidate")]),
    "a list in prose": ("1. earn more\n2. spend less", False, [("", "no candidate")]),
    "candidates in prose": ("Candidates are hard.", False, [("", "no candidate")]),
    "header alone": ("CANDIDATE=1\n\nCANDIDATE=2", False, [("", "no FEATURE")] * 2),
    "no value": ("CANDIDATE=1\nFEATURE=a\nREASONING=x", False, [("a", "no VALUE")]),
    "no feature": ("CANDIDATE=1\nVALUE=5", False, [("", "no FEATURE")]),
    "empty feature": ("FEATURE=\nVALUE=5\nFEATURE=b\nVALUE=6", False,
                      [("", "no FEATURE"), ("b", "6")]),
    "second value": ("FEATURE=a\nVALUE=5\nVALUE=6", False, [("a", "5"), ("", "no FEATURE")]),
    "a value between": ("FEATURE=a\nVALUE=5\nVALUE=6\nFEATURE=b\nVALUE=7", False,
                        [("a", "5"), ("", "no FEATURE"), ("b", "7")]),
    "a minus is no bullet": ("FEATURE=a\nVALUE:\n-5\n", False, [("a", "-5")]),
    "json without value": ('{"feature": "a"}', False, [("a", "no VALUE")]),
    "cut in the value": ("FEATURE=a\nVALUE=75", True, [("a", "cut off")]),
    "cut after the value's line": ("FEATURE=a\nVALUE=75\n", True, [("a", "75")]),
    "cut in the reasoning": ("FEATURE=a\nVALUE=75\nREASONING=bec", True, [("a", "75")]),
    "cut on one line": ("FEATURE=a, VALUE=75", True, [("a", "cut off")]),
    "cut reasoning on one line": ("FEATURE=a, VALUE=75, REASONING=b", True, [("a", "75")]),
    "cut in the feature": ("VALUE=75\nFEATURE=inc", True, [("inc", "cut off")]),
    "cut after a header": ("FEATURE=a\nVALUE=7\nCANDIDATE=2", True, [("a", "7"), ("", "cut off")]),
    "cut before the value": ("CANDIDATE=1\nFEATURE=a\n", True, [("a", "cut off")]),
    "not cut": ("FEATURE=a\nVALUE=75", False, [("a", "75")]),
    "cut json value": ('[{"feature":"a","value":1},{"feature":"b","value":75', True,
                       [("a", "1"), ("b", "cut off")]),
    "cut json text": ('[{"feature":"a","value":1},{"feature":"b","value":"75}', True,
                      [("a", "1"), ("b", "cut off")]),
    "cut json key": ('[{"feature":"a","value":1},{"fea', True, [("a", "1"), ("", "cut off")]),
    "cut json reasoning": ('[{"feature":"a","value":75,"reasoning":"be', True, [("a", "75")]),
    "cut between objects": ('[{"feature":"a","value":1},', True, [("a", "1")]),
    "cut json mapping": ('[{"a": 1}, {"b": 7', True, [("a", "1"), ("", "cut off")]),
    "cut mapping": ('{"a": 500, "b": 7', True, [("", "cut off")]),
    "cut json after a block": ('FEATURE=a\nVALUE=1\n\n{"feature":"b","value":7', True,
                               [("a", "1"), ("b", "cut off")]),
    "cut in a brace of the reasoning": ("FEATURE=a\nVALUE=1\nREASONING=see {x", True, [("a", "1")]),
    "a header between json": ('CANDIDATE=1\nCANDIDATE=2\n{"feature":"b","value":2}', False,
                              [("", "no FEATURE"), ("b", "2")]),
    "cut in prose": ("Let me think about", True, [("", "no candidate")]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "cut", "wanted"), FLAWED.values(), ids=FLAWED)
def test_what_is_no_candidate_is_still_counted(text: str, cut: bool, wanted: Said) -> None:
    assert said(text, cut=cut) == wanted


def test_what_a_cut_reply_lacks_is_truncated_and_not_unparsable() -> None:
    assert [raw.truncated for raw in candidates(BLOCK + "CANDIDATE=4\nFEA", cut=True)][-2:] == [
        False,
        True,
    ]
    assert candidates("Well,", cut=True)[0].truncated
    assert not candidates("Well,")[0].truncated


def test_reasons_run_over_lines_and_end_with_their_paragraph() -> None:
    found = candidates("FEATURE=a\nVALUE=1\nREASONING=one\ntwo\n\nBye!\nFEATURE=b\nVALUE=2\n")
    assert [raw.reason for raw in found] == ["one two", ""]
    assert [raw.reason for raw in candidates(BLOCK)][-1] == "A degree helps."


def test_a_change_beside_a_value_is_kept() -> None:
    for text in (
        "FEATURE=a\nCHANGE=up\nVALUE=5",
        "VALUE=5\nCHANGE=up\nFEATURE=a",
        '{"feature": "a", "change": "up", "value": 5}',
    ):
        assert candidates(text) == [Raw("a", "5", change="up")]
    assert candidates("FEATURE=a\nCHANGE=5") == [Raw("a", "5")]


def test_a_line_that_is_known_to_the_letter_is_not_taken_apart() -> None:
    known = {("size, value: m2", ""), ("job", "b (reason: c)"), ("job", "** d")}
    text = (
        "CANDIDATE=1\nFEATURE=size, value: m2\nVALUE=b (reason: c)\n"
        "CANDIDATE=2\nFEATURE=job\nVALUE=b (reason: c)\nCANDIDATE=3\nFEATURE=job\nCHANGE=** d\n"
    )
    found = candidates(text, knows=lambda *said: said in known)
    assert found == [
        Raw("size, value: m2", "b", "c)"),
        Raw("job", "b (reason: c)"),
        Raw("job", "** d"),
    ]


def test_json_keeps_numbers_and_words_as_written() -> None:
    found = candidates(
        '[{"feature":"a","value":1.50},{"feature":"b","value":true},{"feature":"c","value":null},'
        '{"feature":"d","value":NaN},{"feature":"e","value":[1]},{"feature":7,"value":""}]'
    )
    values = [raw.value for raw in found]
    assert values == ["1.50", "true", "null", "NaN", "(several values)", ""]
    assert found[-1].feature == "7"


def test_reasons_in_json_are_text() -> None:
    assert [raw.reason for raw in candidates(JSON)] == [
        "earn {more} [soon]",
        'a "friend" vouches',
        "",
    ]


def test_markdown_sample() -> None:
    assert said(MARKDOWN) == [
        ("income_annum", "₹8,00,000"),
        ("savings", "10000"),
        ("card_use", "0.2"),
    ]


def test_deep_json_is_left_aside_but_what_stands_in_it_is_found() -> None:
    deep = "[" * 5000 + '{"feature": "a", "value": 1}' + "]" * 5000
    assert said(deep) == [("a", "1")]
    assert said("[" * 5000) == [("", "no candidate")]


def test_strict_takes_the_format_to_the_letter() -> None:
    assert candidates(BLOCK, strict=True)[0] == Raw(
        "income_annum", "500000", "A higher income shows that the loan can be repaid."
    )
    assert len(candidates(BLOCK, strict=True)) == 3
    for text in (BLOCK.lower(), BLOCK.replace("=", ":"), MARKDOWN, JSON, "FEATURE=a\nVALUE=1"):
        assert [raw.flaw for raw in candidates(text, strict=True)] == ["no candidate"]
    flaws = [r.flaw for r in candidates("CANDIDATE=1\nFEATURE=a\nVALUE=7", strict=True, cut=True)]
    assert flaws == ["cut off"]
