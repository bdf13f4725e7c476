from __future__ import annotations

import asyncio
import re
from collections import Counter

import pytest

from waysout.llm.base import Editable, Message, Reply, Request
from waysout.llm.simulated import Habits, Simulated

MENU = (
    Editable("income", "40500", (), 40500, 90000, decimals=0),
    Editable("months", "48", (), 12, 84, step=12, decimals=0),
    Editable("card_use", "0.72", (), 0.0, 0.72, decimals=2),
    Editable("job", "cook", ("clerk", "smith", "baker")),
    Editable("savings", "0", (), 0, 1e15, decimals=0),
)
FAULTLESS = Habits(*[0.0] * 9)


def ask(backend: Simulated, **settings: object) -> Reply:
    request = Request((Message("user", "the prompt"),), menu=MENU, **settings)  # type: ignore[arg-type]
    return asyncio.run(backend.complete(request))


def edits(text: str) -> list[tuple[str, str]]:
    return re.findall(r"FEATURE=(.*)\nVALUE=(.*)", text)


def test_the_same_request_gets_the_same_reply_and_another_draw_another() -> None:
    assert ask(Simulated(3)).text == ask(Simulated(3)).text
    assert ask(Simulated(3)).text != ask(Simulated(3), draw=1).text
    assert ask(Simulated(3)).text != ask(Simulated(4)).text


def test_it_says_simulated_wherever_it_shows() -> None:
    reply = ask(Simulated(3, FAULTLESS))
    assert reply.model == Simulated(3).name == "simulated:3"
    assert reply.usage.estimated
    assert reply.text.count("REASONING=simulated: ") == 5


def test_without_faults_every_value_is_on_the_menu() -> None:
    by_name = {item.name: item for item in MENU}
    for draw in range(200):
        found = edits(ask(Simulated(1, FAULTLESS), draw=draw).text)
        assert len(found) == 5
        for name, value in found:
            item = by_name[name]
            if item.choices:
                assert value in item.choices
            else:
                assert item.low <= float(value) <= item.high
            if item.step:
                assert float(value) % item.step == 0


def test_it_has_favourites_and_a_cold_one_has_nothing_else() -> None:
    warm = Counter(n for d in range(100) for n, _ in edits(ask(Simulated(2), draw=d).text))
    assert warm.most_common(1)[0][1] > 2 * warm.most_common(4)[3][1]
    cold = (edits(ask(Simulated(2), draw=d, temperature=0.0).text) for d in range(30))
    features = Counter(name for found in cold for name, _ in found if name != "overall_profile")
    assert features.most_common(1)[0][1] > 0.95 * sum(features.values())


def test_it_sometimes_errs_as_models_do() -> None:
    replies = [ask(Simulated(5), draw=d) for d in range(300)]
    texts = [reply.text for reply in replies]
    assert any(reply.finish == "length" for reply in replies)
    assert any(text.startswith("{") for text in texts)
    assert any("```" in text for text in texts)
    assert any("overall_profile" in text for text in texts)
    assert any("FEATURE" not in text and not text.startswith("{") for text in texts)
    assert {len(edits(text)) for text in texts} >= {4, 5, 6}


@pytest.mark.parametrize("now", ["unknown", "", "1e3", "-5"])
def test_any_present_value_will_do(now: str) -> None:
    item = Editable("x", now, (), -10.0, 10.0)
    request = Request((Message("user", "p"),), menu=(item,))
    assert asyncio.run(Simulated(1).complete(request)).model == "simulated:1"


def test_an_empty_menu_gets_words() -> None:
    reply = asyncio.run(Simulated(1).complete(Request((Message("user", "p"),))))
    assert "FEATURE" not in reply.text
