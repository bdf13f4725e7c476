"""What counts as a reason, and what small models write in its place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# What the format of a reply says in a reason's place (see templates/), and how models repeat it.
_PLACEHOLDERS = (
    "up to eight words", "up to 8 words", "brief explanation", "short reason", "exact feature name",
)  # fmt: skip
# The prompt's words that add nothing to what else is said.
_EMPTY = frozenset(("a", "an", "the", "new", "value", "feature", "reason", "reasoning"))
# Neither a name such as loan_months nor anything with a digit in it is a word.
_WORD = re.compile(r"(?<!\w)[^\W\d_]{2,}(?!\w)")
_PART = re.compile(r"[^\W_]+")


def is_reason(text: str, feature: str = "", value: str = "", others: Iterable[str] = ()) -> bool:
    """Whether a text says why a feature should get a value.

    It needs two words, and others than the prompt's own, the name and the value of the feature, or
    the name of one of the ``others``.

    >>> [is_reason(text, "loan_months", "24") for text in ("3", "Loan month", "loan_months: 24")]
    [False, False, False]
    >>> is_reason("a shorter loan is safer", "loan_months"), is_reason("<up to eight words>")
    (True, False)
    """
    if len(_WORD.findall(text)) < 2:
        return False
    said = _stems(text) - _EMPTY
    known = (f"{feature} {value}", *others, *_PLACEHOLDERS)
    return not any(said <= _stems(words) for words in known)


def kept_reasons(reasons: Sequence[str], llm: str = "") -> tuple[str, ...]:
    """Return those of an option's reasons ("feature: text") that are reasons.

    None is, if the ``llm`` is known to write nonsense. A reason that names no feature, such as the
    row of the data that an option is like, is not an LLM's.

    >>> kept_reasons(["savings: a larger cushion", "income: 1", "like row 5 of your data"])
    ('savings: a larger cushion', 'like row 5 of your data')
    """
    from waysout.llm.models import writes_reasons

    by_llm = not llm or writes_reasons(llm)
    split = [(reason, *reason.partition(": ")[::2]) for reason in reasons]
    return tuple(
        reason
        for reason, feature, text in split
        if (is_reason(text, feature) and by_llm if text else is_reason(reason))
    )


def _stems(text: str) -> frozenset[str]:
    """Return the words of a text, each without the ending of a plural."""
    return frozenset(word.removesuffix("s") for word in _PART.findall(text.casefold()))
