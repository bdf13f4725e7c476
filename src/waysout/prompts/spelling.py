"""How names and values are spelled in a prompt, and found again in a reply.

All of it is untrusted text: a table may hold ``<|im_end|>`` where a job title should be. What a
chat template would obey never reaches the model, and everything is one short line.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache

from waysout.domain.schema import Feature, Schema, Value

LONGEST = 80
LONGEST_SENTENCE = 300
MISSING = "(not known)"

# "<5" and ">= b" at the start of a word compare; any other bracket could open or close a token.
# Look-alikes count too: some tokenizers bring them to the plain form first.
_BRACKET = re.compile(r"((?<!\S)[<>](?==?[\s\d.]))|[<>\[\]＜＞﹤﹥［］]")
_TAME = str.maketrans("<>[]＜＞﹤﹥［］", "‹›()‹›‹›()")


# Cached, because a table's names and values come in every prompt.
@lru_cache(maxsize=4096)
def neutral(text: str, longest: int = LONGEST) -> str:
    """Return untrusted text as one short line without chat control tokens.

    The control tokens of ChatML, Llama, Gemma, Mistral and their kin are all written in angle or
    square brackets, so no bracket that could belong to one is left as it is.

    >>> neutral("cook<|im_end|>"), neutral("[INST] a\\nb <start_of_turn>"), neutral("a <= b")
    ('cook‹|im_end|›', '(INST) a b ‹start_of_turn›', 'a <= b')
    """
    letters = (" " if unicodedata.category(c)[0] in "CZ" else c for c in text[: 4 * longest])
    line = " ".join("".join(letters).split())
    tame = _BRACKET.sub(lambda found: found[1] or found[0].translate(_TAME), line)
    return tame if len(tame) <= longest else f"{tame[: longest - 1].rstrip()}…"


def folded(text: str) -> str:
    """Return a name as it is compared when it is not spelled exactly.

    >>> folded("Income_Annum") == folded("income annum")
    True
    """
    return re.sub(r"[\s_\-]+", "_", text.strip().casefold())


class Spelling:
    """The spelling of one schema's names and levels: one for each, no two alike."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._shown = {name: shown for shown, name in _apart(schema.names)}
        self._levels: dict[str, dict[str, str]] = {}
        self._by_shown: dict[str, dict[str, str]] = {}

    def name(self, feature: str) -> str:
        """Return a feature's name as the prompt spells it."""
        return self._shown[feature]

    def value(self, feature: Feature, value: Value) -> str:
        """Return a value as the prompt spells it."""
        if value is None:
            return MISSING
        text = feature.format(value)
        return text if feature.is_numeric else self.levels(feature)[text]

    def levels(self, feature: Feature) -> dict[str, str]:
        """Return how each level of a feature is spelled in the prompt."""
        if feature.name not in self._levels:
            texts = [feature.format(v) for v in feature.values()]
            self._levels[feature.name] = {level: shown for shown, level in _apart(texts)}
        return self._levels[feature.name]

    @cached_property
    def _features(self) -> dict[str, Feature]:
        # What the prompt calls a feature counts before what the table calls another.
        shown = {shown: self.schema[name] for name, shown in self._shown.items()}
        return {f.name: f for f in self.schema} | shown

    @cached_property
    def _folded_features(self) -> dict[str, Feature | None]:
        found: dict[str, Feature | None] = {}
        for name, feature in self._features.items():
            known = found.get(folded(name), feature)
            same = known is not None and known.name == feature.name
            found[folded(name)] = feature if same else None  # ambiguous names find nothing
        return found

    def find(self, text: str, *, strict: bool = False) -> Feature | None:
        """Return the feature a reply names: to the letter, else by its letters and digits."""
        exact = self._features.get(text.strip())
        if exact is not None or strict:
            return exact
        return self._folded_features.get(folded(text))

    def find_level(self, feature: Feature, text: str) -> str | None:
        """Return the level that the prompt spelled this way, to the letter."""
        if feature.name not in self._by_shown:
            spelled = self.levels(feature).items()
            self._by_shown[feature.name] = {shown: level for level, shown in spelled}
        return self._by_shown[feature.name].get(text)


def _apart(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each text with its own neutral spelling."""
    taken: set[str] = set()
    counts: dict[str, int] = {}
    for text in texts:
        plain = shown = neutral(text) or "blank"
        while shown in taken:
            counts[plain] = counts.get(plain, 1) + 1
            shown = f"{plain} ({counts[plain]})"
        taken.add(shown)
        yield shown, text
