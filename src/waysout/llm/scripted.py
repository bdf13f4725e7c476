"""A scripted proposer: sensible edits without a language model.

It shows what a search does with good proposals. It knows the menu of the request and a small table
of common sense (scripted.toml), which was written before any search and never tuned: no oracle, no
labels, no queries. It says "scripted" wherever it shows; a figure made with it is not one of an
LLM.
"""

from __future__ import annotations

import json
import math
import random
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import zip_longest
from typing import Any

from waysout.llm.base import Backend, Editable, Reply, Request
from waysout.llm.simulated import block, made_up, read_seed, rounded

_SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)  # of the way to the good end
_LEAD = 4.0  # how much likelier a feature is whose better side is known
_REACH = 100.0  # how far a number goes that the table does not know, and that is smaller


@dataclass(frozen=True, slots=True)
class Sense:
    """What the table says of a feature: the ends worth going to, or what its levels are worth."""

    up: float | None = None
    down: float | None = None
    best: float | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)

    @property
    def takes_sides(self) -> bool:
        """Whether it says which side is better."""
        return (self.up is None) != (self.down is None) or bool(self.ranks)


class Scripted(Backend):
    """Proposes sensible edits; the same seed and request always give the same reply."""

    parallel = 16

    def __init__(self, seed: int = 0) -> None:
        self.name = f"scripted:{seed}"

    async def complete(self, request: Request) -> Reply:
        """Write a reply of different sensible edits, in the format that the request asks for."""
        edits = _edits(request, random.Random(request.key(self.name)))
        if request.constraint is None or not request.constraint.json_schema:
            return made_up(self.name, request, block(edits))
        texts = {item.name for item in request.menu if item.choices}
        found = [
            {
                "feature": name,
                "value": value if name in texts else json.loads(value),
                "reasoning": r,
            }
            for name, value, r in edits
        ]
        return made_up(self.name, request, json.dumps({"candidates": found}, ensure_ascii=False))


@cache
def common_sense() -> Mapping[str, Sense]:
    """Return the table, by the names of features."""
    text = resources.files("waysout.llm").joinpath("scripted.toml").read_text("utf-8")
    return {name: _sense(entry) for name, entry in tomllib.loads(text).items()}


def _sense(entry: Any) -> Sense:
    if entry == "either":
        return Sense()
    if isinstance(entry, list):
        tiers = (tier if isinstance(tier, list) else [tier] for tier in entry)
        return Sense(ranks={level: rank for rank, tier in enumerate(tiers) for level in tier})
    if "between" in entry:
        down, up = entry["between"]
        return Sense(up, down)
    return Sense(**entry)


def _edits(request: Request, rng: random.Random) -> list[tuple[str, str, str]]:
    """Draw edits of as many features as possible, those whose better side is known first."""
    sharp = 1.0 / max(request.temperature, 0.1)
    weighed: list[tuple[float, list[tuple[str, str, str]]]] = []
    for item in request.menu:
        sense = common_sense().get(item.name, Sense())
        plain = " ".join(item.name.replace("_", " ").replace("-", " ").split())
        moves = [(item.name, v, f"scripted: {plain} {why}") for v, why in _moves(item, sense)]
        # The least of exponential draws: a weighted draw without replacement.
        place = rng.expovariate(_LEAD**sharp if sense.takes_sides else 1.0)
        weighed.append((place, list(dict.fromkeys(rng.sample(moves, len(moves))))))
    in_order = [moves for _, moves in sorted(weighed, key=lambda pair: pair[0])]
    rounds = zip_longest(*in_order)
    return [edit for edits in rounds for edit in edits if edit is not None][: request.k]


def _moves(item: Editable, sense: Sense) -> Iterator[tuple[str, str]]:
    """Yield the sensible new values of a feature, each with the direction; none at its good end."""
    directed = sense.up is not None or sense.down is not None
    if item.choices and not (directed and all(_number(text) is not None for text in item.choices)):
        return _better_levels(item, sense)
    return _better_numbers(item, sense)


def _better_levels(item: Editable, sense: Sense) -> Iterator[tuple[str, str]]:
    # The table may know a feature of this name with other levels: then it says nothing of these.
    if sense.ranks.keys().isdisjoint((item.now, *item.choices)):
        yield from ((choice, "to another level") for choice in item.choices)
        return
    now = sense.ranks.get(item.now, 0)
    for choice in item.choices:
        if sense.ranks.get(choice, 0) > now:
            yield choice, "to a better level"


def _better_numbers(item: Editable, sense: Sense) -> Iterator[tuple[str, str]]:
    now = _number(item.now)
    if now is not None and now == sense.best:
        return
    up, down = sense.up, sense.down
    if up is None and down is None:
        reach = max(abs(now or 0.0), _REACH)
        up, down = (now or 0.0) + reach, (now or 0.0) - reach
    # Below zero are codes that say there is no figure: the known way up begins at zero.
    lowest = now if now is None or sense.up is None else max(now, 0.0)
    for why, sign, start, end in (("up", 1, lowest, up), ("down", -1, now, down)):
        if end is None:
            continue
        for text, number in _numbers(item, start, end):
            if sign * number <= sign * end and (now is None or sign * number > sign * now):
                yield text, why


def _numbers(item: Editable, start: float | None, end: float) -> Iterator[tuple[str, float]]:
    """Yield numbers of the menu that may lie on the way to the end, as texts and as numbers."""
    if item.choices:
        yield from ((text, float(text)) for text in item.choices)
        return
    end = min(max(end, item.low), item.high)
    begin = end if start is None else start
    for share in _SHARES:
        wanted = end if share == 1.0 else rounded(begin + share * (end - begin), 2)
        number = _fit(item, wanted)
        if number is not None:
            yield _written(number), number


def _fit(item: Editable, number: float) -> float | None:
    """Return a number on the menu's grid; ``None`` where that is not on the menu."""
    if item.step:
        first = math.ceil((item.low - item.start) / item.step - 1e-9)
        last = math.floor((item.high - item.start) / item.step + 1e-9)
        steps = min(max(round((number - item.start) / item.step), first), last)
        number = item.start + steps * item.step
    exact = float(_written(number if item.decimals is None else round(number, item.decimals)))
    return exact if item.low <= exact <= item.high and exact not in item.never else None


def _written(number: float) -> str:
    """Write a number without an exponent, and without the noise of its last bits.

    >>> _written(3 * 0.1), _written(9_000_000.0), _written(1e16), _written(-0.0)
    ('0.3', '9000000', '10000000000000000', '0')
    """
    plain = f"{number:.12f}".rstrip("0").rstrip(".")
    return "0" if plain == "-0" else plain


def _number(text: str) -> float | None:
    with suppress(ValueError):
        number = float(text)
        return number if math.isfinite(number) else None
    return None


def connect(seed: str) -> Scripted:
    """Make the backend of ``scripted:SEED``."""
    return Scripted(read_seed("scripted", seed))
