"""Menus for the tests of what holds replies to a format, and a plain check of what they allow."""

from __future__ import annotations

import re
from decimal import Decimal

from hypothesis import strategies as st

from waysout.datasets import registry
from waysout.domain.card import Card
from waysout.domain.rules import RuleSet
from waysout.domain.schema import Feature, Row, Value
from waysout.llm.base import Editable
from waysout.prompts.menu import menu
from waysout.prompts.spelling import Spelling

CARDS = ("synthetic", "loan", "adult", "heloc", "credit")

_PLAIN_NUMBER = re.compile(r"(0|-?[1-9][0-9]*|-?(0|[1-9][0-9]*)\.[0-9]+)")
_letters = st.characters(exclude_categories=("C", "Z"))
_texts = st.text(_letters, min_size=1, max_size=12)


def fits(offer: Editable, text: str) -> bool:
    """Whether a feature may be set to what a reply says."""
    if offer.choices:
        return text in offer.choices
    if not _PLAIN_NUMBER.fullmatch(text):
        return False
    number = Decimal(text)
    if text.startswith("-") and not number:
        return False
    decimals = len(text.partition(".")[2])
    most = 15 if offer.decimals is None else offer.decimals
    low, high = Decimal(repr(float(offer.low))), Decimal(repr(float(offer.high)))
    return decimals <= most and low <= number <= high and number != Decimal(offer.now)


@st.composite
def choices(draw: st.DrawFn, name: str) -> Editable:
    found = draw(st.lists(_texts, min_size=2, max_size=6, unique=True))
    return Editable(name, found[0], tuple(found[1:]))


@st.composite
def wholes(draw: st.DrawFn, name: str) -> Editable:
    low = draw(st.integers(-(10**9), 10**9))
    high = low + draw(st.integers(1, 10**9) | st.integers(1, 200))
    now = draw(st.sampled_from([low, high, low - 5]) | st.integers(low, high))
    return Editable(name, str(now), (), low, high, decimals=0)


@st.composite
def fractions(draw: st.DrawFn, name: str) -> Editable:
    decimals = draw(st.integers(1, 4))
    low = draw(st.integers(-(10**7), 10**7) | st.integers(-200, 200))
    high = low + draw(st.integers(1, 10**7) | st.integers(1, 200))
    now = draw(st.sampled_from([low, high]) | st.integers(low, high))
    first, last = (float(Decimal(n).scaleb(-decimals)) for n in (low, high))
    shown = str(Decimal(now).scaleb(-decimals))
    return Editable(name, shown, (), first, last, decimals=decimals)


@st.composite
def menus(draw: st.DrawFn) -> tuple[Editable, ...]:
    names = draw(st.lists(_texts, min_size=1, max_size=5, unique=True))
    return tuple(draw(st.one_of(choices(n), wholes(n), fractions(n))) for n in names)


def made_up_row(card: Card) -> Row:
    """Return a row in the middle of everything."""
    return tuple(_in_the_middle(f) for f in card.schema)


def _in_the_middle(feature: Feature) -> Value:
    if feature.range is None:
        return feature.values()[len(feature.values()) // 2]
    low, high = feature.range
    return feature.coerce((low + high) / 2)


def card_menu(name: str, rule_set: str | None = None) -> tuple[tuple[Editable, ...], RuleSet, Row]:
    """Return the menu of a made-up row, with the rules and the row behind it."""
    card = registry.card(name)
    rules, row = card.rules(rule_set), made_up_row(card)
    return menu(rules, Spelling(card.schema), row, row), rules, row
