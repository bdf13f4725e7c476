"""A simulated LLM: a random proposer with an LLM's habits, for tests, demos and dry runs.

It favours a few features, repeats itself, likes round numbers, and sometimes breaks the format,
adds prose or names what does not exist. It sees the menu of the request, as any LLM does,
and never the oracle. It says "simulated" wherever it shows; a figure made with it is not one of an
LLM.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from waysout.errors import InputError, shown
from waysout.llm.base import Backend, Editable, Finish, Reply, Request, Usage

_LETTERS = 4  # to a token, as in English
_FACTORS = (1.1, 1.2, 1.25, 1.5, 2.0, 3.0, 0.9, 0.8, 0.75, 0.5, 0.1)
_REASONS = (
    "a common way to improve the outcome",
    "this usually weighs heavily",
    "a moderate and realistic change",
    "shows more stability",
)
_REFUSALS = (
    "I'm sorry, but I can't help with changing this application.",
    "It depends on many factors, such as income and credit history.",
    "",
    "CANDIDATE CANDIDATE CANDIDATE",
)


@dataclass(frozen=True, slots=True)
class Habits:
    """How often, in shares of replies or edits, the simulation errs the way an LLM does."""

    refusal: float = 0.02
    truncated: float = 0.02
    chatter: float = 0.15
    json: float = 0.05
    wrong_count: float = 0.05
    unknown_feature: float = 0.03
    no_change: float = 0.05
    out_of_bounds: float = 0.05
    dressed_number: float = 0.1


class Simulated(Backend):
    """Proposes edits at random; the same seed and request always give the same reply."""

    parallel = 16

    def __init__(self, seed: int = 0, habits: Habits | None = None) -> None:
        self.seed = seed
        self.habits = habits or Habits()
        self.name = f"simulated:{seed}"

    async def complete(self, request: Request) -> Reply:
        """Make a reply up from the request's menu."""
        draw = _Draw(random.Random(request.key(self.name)), self.seed, self.habits, request)
        return made_up(self.name, request, *draw.reply())


@dataclass(frozen=True, slots=True)
class _Draw:
    rng: random.Random
    seed: int
    habits: Habits
    request: Request

    def happens(self, share: float) -> bool:
        return self.rng.random() < share

    def reply(self) -> tuple[str, Finish]:
        habits = self.habits
        if not self.request.menu or self.happens(habits.refusal):
            return self.rng.choice(_REFUSALS), "stop"
        wrong = self.happens(habits.wrong_count)
        count = max(1, self.request.k + (self.rng.choice((-1, 1)) if wrong else 0))
        edits = [self.edit() for _ in range(count)]
        if self.happens(habits.json):
            found = [{"feature": f, "value": v, "reasoning": r} for f, v, r in edits]
            return json.dumps({"candidates": found}, ensure_ascii=False), "stop"
        text = block(edits)
        if self.happens(habits.truncated):
            return text[: self.rng.randrange(len(text))], "length"
        if self.happens(habits.chatter):
            text = f"Here are some (simulated) ideas:\n\n```\n{text}\n```\nI hope this helps!"
        return text, "stop"

    def edit(self) -> tuple[str, str, str]:
        reason = f"simulated: {self.rng.choice(_REASONS)}"
        if self.happens(self.habits.unknown_feature):
            return "overall_profile", "better", reason
        names = [item.name for item in self.request.menu]
        item = self.request.menu[self.favourite(names, "feature")]
        if self.happens(self.habits.no_change):
            return item.name, item.now, reason
        return item.name, self.value(item), reason

    def favourite(self, names: Sequence[str], what: str) -> int:
        """Draw one of several, the favourites of this seed much more often than the others."""
        taste = random.Random(f"{self.seed} {what} {sorted(names)}")
        order = sorted(range(len(names)), key=lambda i: names[i])
        taste.shuffle(order)
        # A cold model repeats its favourites; at temperature 0 it names nothing else.
        sharp = 1.0 / max(self.request.temperature, 0.05)
        weights = [(rank + 1.0) ** -min(sharp, 20.0) for rank in range(len(order))]
        return self.rng.choices(order, weights)[0]

    def value(self, item: Editable) -> str:
        if item.choices:
            if self.happens(self.habits.out_of_bounds):
                return f"{self.rng.choice(item.choices)} or better"
            return item.choices[self.favourite(item.choices, item.name)]
        factor = _FACTORS[self.favourite([str(f) for f in _FACTORS], item.name)]
        number = rounded((_now(item) or 100.0) * factor, self.rng.choice((1, 2, 2)))
        if self.happens(self.habits.out_of_bounds):
            return self.written(item, number)
        fitting = _fit(item, number)
        return self.written(item, self.towards_the_end(item) if fitting == _now(item) else fitting)

    def towards_the_end(self, item: Editable) -> float:
        """Return a number towards the farther end: the favourite factor changed nothing."""
        now = _now(item)
        ends = [end for end in (item.low, item.high) if abs(end) < 1e15 and end != now]
        end = max(ends, key=lambda end: abs(end - now), default=now + 100.0)
        share = self.rng.choice((0.1, 0.25, 0.5, 1.0))
        return _fit(item, rounded(now + share * (end - now), 2))

    def written(self, item: Editable, number: float) -> str:
        places = 4 if item.decimals is None else item.decimals
        plain = f"{number:.{places}f}"
        plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
        if not self.happens(self.habits.dressed_number):
            return plain
        return self.rng.choice(
            (f"{number:,.{places}f}", f"${plain}", f'"{plain}"', f"{plain} (up)")
        )


def made_up(name: str, request: Request, text: str, finish: Finish = "stop") -> Reply:
    """Return a text that no model wrote as a reply, cut at the request's limit like any other."""
    if len(text) > request.max_tokens * _LETTERS:
        text, finish = text[: request.max_tokens * _LETTERS], "length"
    written = -(-len(text) // _LETTERS)
    read = 1 + request.prompt_bytes // _LETTERS
    return Reply(text, Usage(read, written, estimated=True), finish=finish, model=name)


def block(edits: Sequence[tuple[str, str, str]]) -> str:
    """Return features, values and reasons in the format that prompts ask for."""
    return "\n\n".join(
        f"CANDIDATE={i}\nFEATURE={feature}\nVALUE={value}\nREASONING={reason}"
        for i, (feature, value, reason) in enumerate(edits, 1)
    )


def _now(item: Editable) -> float:
    return float(item.now) if re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", item.now) else 0.0


def rounded(number: float, digits: int) -> float:
    """Round to a number of leading digits.

    >>> rounded(51_234.0, 2), rounded(0.0734, 1)
    (51000.0, 0.07)
    """
    if number == 0:
        return 0.0
    return round(number, digits - 1 - math.floor(math.log10(abs(number))))


def _fit(item: Editable, number: float) -> float:
    inside = min(max(number, item.low), item.high)
    if item.step is None:
        return inside
    steps = round((inside - item.start) / item.step)
    return min(max(item.start + steps * item.step, item.low), item.high)


def connect(seed: str) -> Simulated:
    """Make the backend of ``simulated:SEED``."""
    return Simulated(read_seed("simulated", seed))


def read_seed(scheme: str, seed: str) -> int:
    """Return the seed of a stand-in's connection string."""
    if not (seed.isascii() and seed.isdigit() and len(seed) < 10):
        raise InputError(f"{scheme}:SEED takes a whole number of 0 or more, not {shown(seed)}")
    return int(seed)
