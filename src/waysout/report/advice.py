"""What a person would have to do, in one sentence: "Approved if you borrow 1,500 euros less, or …".

The card may say how people speak of a change (``moves = { down = "borrow {} less" }``); else it is
"lower your loan amount by 1,500 euros". Each way that the sentence names was put to the model, and
leaves nothing in doubt where there is one that does not.
"""

from __future__ import annotations

from collections.abc import Sequence

from waysout.domain.pick import pick
from waysout.domain.result import Option, ResultData, Safer, Way
from waysout.domain.schema import Value, text_of
from waysout.report.words import (
    PLAIN_GOAL,
    Wording,
    capital,
    clean,
    doubts,
    goal_text,
    is_year,
    listed,
    shared_words,
)

SHOWN = 5  # ways that a person is shown without asking for more
BY_HAND = "put together by hand: the model approves it; whether less is enough was not asked"
_NOT_ASKED = "whether every change is needed was not asked"
_MOST_NAMED = 3
_MOST_CHANGES = 3  # of a plan in the sentence, where others do with less


def advice(result: ResultData, wording: Wording | None = None, ways: Sequence[Option] = ()) -> str:
    """Say what turns the decision, the plans with the fewest changes first; empty if nothing does.

    ``ways`` are those to choose from; by default those that are shown first.
    """
    named = named_in_advice(result, ways)
    if not named:
        return ""
    wording = wording or Wording.of(result)
    goal = goal_text(result.settings.get("goal"))
    is_plain = goal == PLAIN_GOAL
    yes = clean(result.settings.get("yes") or "approved") if is_plain else f"{goal} is reached"
    plans = ", or ".join(plan_words(option, wording) for option in named)
    said = [f"{yes} if you {plans}"]
    # A doubt is told where there is nothing without one.
    said += doubts_about(named[0], result)
    said += [_NOT_ASKED] if _is_earlier(result) else []
    return " ".join(f"{capital(part)}." for part in said)


def named_in_advice(result: ResultData, ways: Sequence[Option] = ()) -> list[Option]:
    """Return the ways that the sentence names: without a doubt, or else the first alone."""
    shown = list(ways) or (list(pick(result, SHOWN)) if result.options else [])
    sure = [option for option in shown if not doubts_about(option, result)]
    sure.sort(key=lambda option: option.sparsity)
    short = [option for option in sure if option.sparsity <= _MOST_CHANGES]
    return short[:_MOST_NAMED] or sure[:1] or shown[:1]


def advised(result: ResultData, n: int) -> list[Option]:
    """Return n ways for the person concerned: those that the sentence names come first."""
    chosen = pick(result, n)  # which also refuses an n that is no number of ways
    first = named_in_advice(result)
    return [*first, *(option for option in chosen if option not in first)][:n]


def doubts_about(option: Option, result: ResultData) -> list[str]:
    """Return what speaks against relying on an option among a result's ways.

    One that is no way beside those that are was put together by hand, or is an approved row that
    was not walked back.
    """
    if isinstance(option, (Way, Safer)) or _is_earlier(result):
        return doubts(option)
    found = any(option.row == other.row for other in result.options)
    return [*doubts(option), _NOT_ASKED if found else BY_HAND]


def _is_earlier(result: ResultData) -> bool:
    """Whether a result is of a release that had options and no ways."""
    return bool(result.options) and not result.ways


def plan_words(option: Option, wording: Wording) -> str:
    """Say what a person does: "save 700 euros more and raise your credit score by 2 points"."""
    names = moved(option, wording)
    return listed([move_words(name, *option.changes[name], wording) for name in names])


def moved(option: Option, wording: Wording) -> list[str]:
    """Return what a person moves.

    What a rule sets along with it is left out, and so is what is cleared in a one-hot group.
    """
    changes = option.changes
    on = [name for name, (_, new) in changes.items() if wording.is_on(name, new)]
    cleared = {
        name
        for name in changes
        if name not in on and any(other in on for other in wording.group(name))
    }
    names = [n for n in changes if wording.follows(n) not in changes and n not in cleared]
    return names or list(changes)


def move_words(feature: str, old: Value, new: Value, wording: Wording) -> str:
    """Say one change as something to do.

    >>> told = {"loan_amount": {"unit": "euros", "moves": {"down": "borrow {} less"}}}
    >>> move_words("loan_amount", 14500, 13000, Wording(told))
    'borrow 1,500 euros less'
    >>> move_words("card_use", 0.72, 0.53, Wording()), move_words("job", "cook", "clerk", Wording())
    ('lower your card use by 0.19', 'change your job to clerk')
    """
    if not (wording.is_amount(feature, old) and wording.is_amount(feature, new)):
        return wording.move(feature, text_of(new)) or _to_level(feature, new, wording)
    assert isinstance(old, (int, float))
    assert isinstance(new, (int, float))
    name, difference = wording.name(feature), tidy(abs(new - old))
    # 5 % more is not 5 points more, and a difference that is rounded leads elsewhere.
    by_ends = is_year(feature, old, new) or wording.in_percent(feature)
    if by_ends or wording.rounds(feature, difference):
        before, after = wording.pair(feature, old, new)
        return f"change your {name} from {before} to {after}"
    way, verb = ("up", "raise") if new > old else ("down", "lower")
    amount, said = wording.value(feature, difference), wording.move(feature, way)
    return said.replace("{}", amount) if said else f"{verb} your {name} by {amount}"


def _to_level(feature: str, new: Value, wording: Wording) -> str:
    """Say that a feature gets another level, or that another of its one-hot group is set."""
    group = wording.group(feature)
    if not group or not wording.is_on(feature, new):
        return f"change your {wording.name(feature)} to {wording.value(feature, new)}"
    shared = shared_words(group)
    level = feature.removeprefix(f"{shared}_")
    if shared and level != feature:
        return f"change your {wording.name(shared)} to {wording.name(level)}"
    return f"change to {wording.name(feature)}"


def tidy(number: float) -> float:
    """Return a difference without what floats add at its end."""
    return float(f"{number:.12g}")
