"""Levels that everybody orders alike, so that "only up" means something for them."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Each line from low to high; words that mean the same step stand together.
_SCALES = tuple(
    tuple(frozenset(step.split("|")) for step in scale.split())
    for scale in (
        "none|noschooling|illiterate preschool primary|elementary|primaryschool|basic "
        "secondary|highschool|highschoolgrad|hsgrad|secondaryschool|school|lowersecondary "
        "vocational|somecollege|associate|associates|associatedegree|college|uppersecondary "
        "bachelor|bachelors|bachelordegree|undergraduate|graduate|university "
        "master|masters|masterdegree|postgraduate doctorate|phd|doctor|doctoral",
        "verylow low mediumlow medium|moderate|average|mid|middle mediumhigh high veryhigh",
        "verypoor poor|bad fair|satisfactory|average good verygood excellent|outstanding",
        "never rarely|seldom sometimes|occasionally often|frequently always",
        "stronglydisagree disagree neutral agree stronglyagree",
        "extrasmall small medium large extralarge|huge",
        "trainee|intern junior|entry|entrylevel mid|middle|intermediate|regular senior lead",
    )
)


def known_order(levels: Sequence[str]) -> list[str] | None:
    """Return levels from low to high, where they are steps of a scale that everybody knows.

    >>> known_order(["Master", "PhD", "High School", "Bachelor's"])
    ['High School', "Bachelor's", 'Master', 'PhD']
    >>> known_order(["cook", "clerk"]) is None
    True
    """
    words = {level: re.sub(r"[^a-z]", "", level.casefold()) for level in levels}
    for scale in _SCALES:
        steps = {level: _step(word, scale) for level, word in words.items()}
        found = [step for step in steps.values() if step is not None]
        if len(found) == len(set(found)) == len(levels) > 1:
            return sorted(levels, key=lambda level: steps[level] or 0)
    return None


def _step(word: str, scale: Sequence[frozenset[str]]) -> int | None:
    singular = word.removesuffix("s")
    return next((i for i, step in enumerate(scale) if word in step or singular in step), None)
