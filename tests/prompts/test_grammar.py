from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal

import pytest
from gbnf import Gbnf, expression
from hypothesis import given, settings
from hypothesis import strategies as st
from menu_samples import CARDS, card_menu, fits, fractions, menus, wholes

from waysout.datasets import registry
from waysout.datasets.load import load_dataset
from waysout.domain.rules import RuleSet
from waysout.domain.schema import LARGEST, Row
from waysout.errors import InputError
from waysout.llm.base import Editable
from waysout.prompts.grammar import block_grammar, decimal_range
from waysout.prompts.menu import domain, menu
from waysout.prompts.spelling import Spelling

limits = st.integers(-(10**13), 10**13) | st.integers(-1200, 1200)


def edits(reply: str) -> Iterator[tuple[str, str]]:
    """Take a reply apart; every line has to be where the format wants it."""
    for i, block in enumerate(reply.split("\n\n"), 1):
        head, feature, value, reason = block.split("\n")
        assert head == f"CANDIDATE={i}"
        assert reason.startswith("REASONING=")
        assert 1 <= len(reason.removeprefix("REASONING=")) <= 120
        assert feature.startswith("FEATURE=")
        assert value.startswith("VALUE=")
        yield feature.removeprefix("FEATURE="), value.removeprefix("VALUE=")


def takes(offer: Editable, value: str) -> bool:
    grammar = Gbnf(block_grammar([offer], 1))
    return grammar.matches(f"CANDIDATE=1\nFEATURE={offer.name}\nVALUE={value}\nREASONING=so")


# --- numbers ---


@given(limits, limits, st.data())
def test_a_range_matches_the_whole_numbers_inside_it_and_no_others(
    one: int, other: int, data: st.DataObject
) -> None:
    low, high = sorted((one, other))
    near = [low - 1, low, low + 1, high - 1, high, high + 1, 0, -low, -high, low * 10, high // 10]
    number = data.draw(st.sampled_from(near) | st.integers(2 * low - high - 9, 2 * high - low + 9))
    assert expression(decimal_range(low, high, 0)).matches(str(number)) == (low <= number <= high)


@pytest.mark.parametrize(("low", "high"), [(-120, 1105), (0, 999), (-1000, -1), (99, 100)])
def test_a_range_matches_each_of_its_numbers(low: int, high: int) -> None:
    matches = expression(decimal_range(low, high, 0)).matches
    assert [n for n in range(-1500, 1500) if matches(str(n))] == list(range(low, high + 1))


@pytest.mark.parametrize("text", ["", "-", "-0", "+5", "05", "00", "5.", "5.0", "-05", " 5", "1e1"])
def test_a_range_matches_plain_writing_only(text: str) -> None:
    assert not expression(decimal_range(-1000, 1000, 0)).matches(text)


@given(st.integers(0, 10**15), st.integers(0, 10**15))
def test_a_range_stays_short(one: int, other: int) -> None:
    assert len(decimal_range(min(one, other), max(one, other), 0)) < 1500


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(InputError, match="between 3 and 2"):
        decimal_range(3, 2, 0)


@given(fractions("share"), st.data())
def test_a_range_of_decimals_is_exact(offer: Editable, data: st.DataObject) -> None:
    assert offer.decimals is not None
    low, high = (int(Decimal(repr(x)).scaleb(offer.decimals)) for x in (offer.low, offer.high))
    number = data.draw(st.integers(low - 3, low + 3) | st.integers(high - 3, high + 3) | limits)
    places = data.draw(st.integers(0, offer.decimals + 1))
    text = f"{Decimal(number).scaleb(-offer.decimals):.{places}f}"
    assert takes(offer, text) == fits(offer, text)


def test_a_share_keeps_within_its_limits() -> None:
    matches = expression(decimal_range(0, 72, 2)).matches
    inside = ["0", "0.0", "0.7", "0.70", "0.72"]
    outside = ["0.73", "0.8", "0.95", "1", "-0.1"]
    misspelled = ["00.1", ".5", "0.", "-0", "0.123", ""]
    assert [text for text in inside + outside + misspelled if matches(text)] == inside


def test_no_number_is_written_as_minus_zero() -> None:
    matches = expression(decimal_range(-150, 150, 2)).matches
    assert matches("-0.01")
    assert not any(matches(text) for text in ("-0", "-0.0", "-0.00"))


@given(wholes("n"), st.randoms(use_true_random=False))
def test_whole_numbers_fit_and_never_stay_as_they_are(offer: Editable, rng: random.Random) -> None:
    grammar = Gbnf(block_grammar([offer], 3))
    assert all(fits(offer, value) for _, value in edits(grammar.sample(rng)))
    assert not takes(offer, offer.now)
    assert takes(offer, str(int(offer.low))) == (float(offer.now) != offer.low)
    assert takes(offer, str(int(offer.high))) == (float(offer.now) != offer.high)


@pytest.mark.parametrize(
    ("low", "high", "taken", "refused"),
    [
        (
            -LARGEST,
            LARGEST,
            ["0", "-7", "9" * 12, "-" + "9" * 12],
            ["1" + "0" * 12, "-1" + "0" * 12, "0.5"],
        ),
        (5, LARGEST, ["5", "9" * 12], ["4", "-5", "7"]),
        (-LARGEST, -5, ["-5", "-" + "9" * 12], ["-4", "5", "0"]),
        (5e13, LARGEST, ["50000000000000", "999999999999999"], ["49999999999999"]),
    ],
    ids=["none", "no-upper", "no-lower", "far-out"],
)
def test_numbers_without_limits_have_twelve_digits(
    low: float, high: float, taken: list[str], refused: list[str]
) -> None:
    offer = Editable("debt", "7", (), low, high, decimals=0)
    assert [value for value in taken + refused if takes(offer, value)] == taken


def test_a_number_of_any_decimals_has_four_or_what_its_range_needs() -> None:
    wide = Editable("ratio", "0.123456", (), 0.05, 3)
    assert takes(wide, "0.0501")
    assert takes(wide, "0.1234")
    assert not takes(wide, "0.04")
    assert not takes(wide, "1.00001")
    assert takes(Editable("tiny", "2e-06", (), 1e-6, 5e-6), "0.000003")


def test_a_missing_number_may_become_any() -> None:
    assert takes(Editable("debt", "unknown", (), 0, 9, decimals=0), "0")


# --- grids ---


def on_grid(offer: Editable, number: int) -> bool:
    assert offer.step is not None
    return (number - offer.start) % offer.step == 0 and fits(offer, str(number))


@given(
    st.sampled_from([2, 5, 10, 20, 25, 50, 100, 125, 250, 500, 1000, 100_000]),
    st.integers(-700, 700),
    st.integers(-200, 200),
    st.integers(66, 500),
    st.data(),
)
def test_a_long_grid_of_round_steps_is_exact(
    step: int, start: int, first: int, count: int, data: st.DataObject
) -> None:
    low, high = start + step * first - 1, start + step * (first + count) + 1
    now = low + data.draw(st.integers(0, count)) * step + 1
    offer = Editable("sum", str(now), (), low, high, step, start, 0)
    assert domain(offer).spans
    near = [0, step, -step, low, low + 1, high, high - 1, now, now + step, start]
    number = data.draw(st.sampled_from(near) | st.integers(low - step, high + step))
    number += data.draw(st.sampled_from([0, (start - number) % step]))
    assert takes(offer, str(number)) == on_grid(offer, number)


def test_a_short_grid_is_listed() -> None:
    months = Editable("months", "36", (), 12, 84, 12, 0, 0)
    assert domain(months).listed == ("12", "24", "48", "60", "72", "84")
    tenths = Editable("share", "0.3", (), 0, 1, 0.1, 0, 1)
    assert domain(tenths).listed == (
        "0",
        "0.1",
        "0.2",
        "0.4",
        "0.5",
        "0.6",
        "0.7",
        "0.8",
        "0.9",
        "1",
    )


def test_a_short_grid_leaves_out_what_the_feature_cannot_hold() -> None:
    assert domain(Editable("n", "0", (), 0, 2, 0.5, 0, 0)).listed == ("1", "2")


@pytest.mark.parametrize(
    ("step", "decimals", "text"), [(7, 0, "8"), (0.01, 2, "0.37"), (0.05, None, "0.37")]
)
def test_any_other_long_grid_is_a_range(step: float, decimals: int | None, text: str) -> None:
    offer = Editable("n", "0", (), 0, 1000, step, 0, decimals)
    assert takes(offer, text)
    assert not takes(offer, "1001")
    assert not takes(offer, "0")


# --- replies ---


@settings(max_examples=60)
@given(menus(), st.integers(1, 6), st.randoms(use_true_random=False))
def test_a_reply_is_so_many_edits_from_the_menu(
    offers: tuple[Editable, ...], k: int, rng: random.Random
) -> None:
    by_name = {offer.name: offer for offer in offers}
    grammar = Gbnf(block_grammar(offers, k))
    for _ in range(5):
        reply = grammar.sample(rng)
        found = list(edits(reply))
        assert len(found) == k
        assert all(fits(by_name[name], value) for name, value in found)
        assert grammar.matches(reply)


@given(menus(), st.randoms(use_true_random=False))
def test_a_value_goes_with_its_own_feature(
    offers: tuple[Editable, ...], rng: random.Random
) -> None:
    grammar = Gbnf(block_grammar(offers, 1))
    (_, value), other = next(edits(grammar.sample(rng))), rng.choice(offers)
    swapped = f"CANDIDATE=1\nFEATURE={other.name}\nVALUE={value}\nREASONING=so"
    assert grammar.matches(swapped) == fits(other, value)


GOOD = (
    "CANDIDATE=1\nFEATURE=job\nVALUE=cook\nREASONING=better paid\n\n"
    "CANDIDATE=2\nFEATURE=job\nVALUE=clerk\nREASONING=é 漢"
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("CANDIDATE=2", "CANDIDATE=1"),
        ("\n\n", "\n"),
        ("VALUE=cook", "VALUE=Cook"),
        ("VALUE=cook", "VALUE=cook "),
        ("FEATURE=job", "FEATURE=age"),
        ("better paid", ""),
        ("better paid", " better"),
        ("better paid", "better\tpaid"),
        ("better paid", "<|im_end|>"),
        ("better paid", "[INST]"),
        ("better paid", "VALUE=clerk"),
        ("better paid", "{job}"),
        ("better paid", "x" * 121),
        ("é 漢", "é 漢\n\nCANDIDATE=3\nFEATURE=job\nVALUE=cook\nREASONING=x"),
    ],
)
def test_anything_else_is_no_reply(old: str, new: str) -> None:
    grammar = Gbnf(block_grammar([Editable("job", "chef", ("cook", "clerk"))], 2))
    assert grammar.matches(GOOD)
    assert not grammar.matches(GOOD.replace(old, new))


def test_names_and_values_are_any_text() -> None:
    odd = ('a "b" \\n', "[x] ::= {2}?", "漢字 | ü", ">50K")
    offers = [Editable(name, "", (f"{name}!", "\\")) for name in odd]
    grammar = Gbnf(block_grammar(offers, 1))
    for name in odd:
        assert grammar.matches(f"CANDIDATE=1\nFEATURE={name}\nVALUE={name}!\nREASONING=so")
        assert grammar.matches(f"CANDIDATE=1\nFEATURE={name}\nVALUE=\\\nREASONING=so")


def test_features_with_the_same_values_share_a_rule() -> None:
    rules = block_grammar([Editable(name, "no", ("yes",)) for name in "abc"], 1).splitlines()
    assert [rule for rule in rules if rule.startswith("value-")] == ['value-1 ::= "yes"']


# --- menus of a size that would make a grammar slow ---


def test_a_very_long_list_becomes_a_line_of_text() -> None:
    town = Editable("town", "x", tuple(f"town {i}" for i in range(201)))
    assert takes(town, "any <town>")
    assert not takes(town, "two\nlines")
    assert not takes(Editable("town", "x", town.choices[:200]), "any town")


def test_the_longest_of_many_lists_give_way_first() -> None:
    lists = [Editable(f"f{i}", "x", tuple(map(str, range(190 + i)))) for i in range(11)]
    grammar = Gbnf(block_grammar(lists, 1))
    free = [
        offer.name
        for offer in lists
        if grammar.matches(f"CANDIDATE=1\nFEATURE={offer.name}\nVALUE=else\nREASONING=so")
    ]
    assert free == ["f10"]


def test_of_very_many_features_only_the_names_are_held() -> None:
    offers = [Editable(f"f{i}", "1", (), 0, 9, decimals=0) for i in range(1000)]
    text = block_grammar(offers, 1)
    grammar = Gbnf(text)
    assert len(text) < 40_000
    assert grammar.matches("CANDIDATE=1\nFEATURE=f999\nVALUE=what\nREASONING=so")
    assert not grammar.matches("CANDIDATE=1\nFEATURE=f1000\nVALUE=1\nREASONING=so")


# --- menus with nothing on them ---


def test_a_feature_that_cannot_move_is_left_out() -> None:
    stuck = Editable("age", "5", (), 5, 5, decimals=0)
    grammar = Gbnf(block_grammar([stuck, Editable("job", "x", ("cook",))], 1))
    assert {name for name, _ in edits(grammar.sample(random.Random(1)))} == {"job"}
    assert not grammar.matches("CANDIDATE=1\nFEATURE=age\nVALUE=5\nREASONING=so")


@pytest.mark.parametrize("offers", [[], [Editable("age", "5", (), 5, 5)]], ids=["empty", "stuck"])
def test_an_empty_menu_has_no_grammar(offers: list[Editable]) -> None:
    with pytest.raises(InputError, match="nothing may be edited"):
        block_grammar(offers, 5)


# --- real cards ---


def check_replies(offers: tuple[Editable, ...], rules: RuleSet, row: Row) -> set[str]:
    """Check that sampled values are what the features' levers admit; return the features seen."""
    spelling, levers = Spelling(rules.schema), rules.levers(row)
    grammar, rng, seen = Gbnf(block_grammar(offers, 5)), random.Random(42), set()
    for _ in range(40):
        reply = grammar.sample(rng)
        assert grammar.matches(reply)
        for name, text in edits(reply):
            feature = spelling.find(name, strict=True)
            assert feature is not None
            value = feature.coerce(spelling.find_level(feature, text) or text)
            lever = levers[feature.name]
            assert lever.admits(value) or value in lever.never, (name, text)
            seen.add(name)
    return seen


RULE_SETS = [(name, rules) for name in CARDS for rules in registry.card(name).rule_sets]


@pytest.mark.parametrize(("name", "rule_set"), RULE_SETS)
def test_on_every_card_values_are_admitted(name: str, rule_set: str) -> None:
    offers, rules, row = card_menu(name, rule_set)
    assert check_replies(offers, rules, row) == {offer.name for offer in offers}


def test_on_a_row_of_the_synthetic_table_values_are_admitted() -> None:
    data = load_dataset("synthetic")
    rules, row = data.card.rules(), data.rows[828]
    offers = menu(rules, Spelling(data.card.schema), row, row)
    seen = check_replies(offers, rules, row)
    assert {"income", "card_use", "loan_months", "loan_amount"} <= seen


def test_the_grammars_of_all_cards_are_small() -> None:
    assert max(len(block_grammar(card_menu(name)[0], 5)) for name in CARDS) < 10_000
