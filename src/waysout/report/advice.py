"""What a person would have to do, in one sentence: "Approved if you borrow 1,500 euros less, or …".

The card may say how people speak of a change (``moves = { down = "borrow {} less" }``); else it is
"lower your loan amount by 1,500 euros". Each way that the sentence names was put to the model, and
leaves nothing in doubt where there is one that does not.
"""

from __future__ import annotations

from collections.abc import Sequence

from waysout.domain.pick import pick
from waysout.domain.result import Option, ResultData, Way
from waysout.domain.schema import Value, text_of
from waysout.report.words import (
    PLAIN_GOAL,
    Wording,
    clean,
    doubts,
    goal_text,
    is_year,
    listed,
)

SHOWN = 5  # ways that a person is shown without asking for more
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
    said = [f"{yes[:1].upper()}{yes[1:]} if you {plans}."]
    # A doubt is told where there is nothing without one.
    said += [f"{doubt[:1].upper()}{doubt[1:]}." for doubt in doubts(named[0])]
    return " ".join(said)


def named_in_advice(result: ResultData, ways: Sequence[Option] = ()) -> list[Option]:
    """Return the ways that the sentence names: without a doubt, or else the first alone."""
    shown = list(ways) or (list(pick(result, SHOWN)) if result.options else [])
    sure = [option for option in shown if not doubts(option)]
    sure.sort(key=lambda option: option.sparsity)
    short = [option for option in sure if option.sparsity <= _MOST_CHANGES]
    return short[:_MOST_NAMED] or sure[:1] or shown[:1]


def plan_words(option: Option, wording: Wording) -> str:
    """Say what a person does: "save 700 euros more and raise your credit score by 2 points"."""
    return listed([move_words(name, *option.changes[name], wording) for name in moved(option)])


def moved(option: Option) -> list[str]:
    """Return what a person moves; what only follows is left out where the levers are known."""
    if isinstance(option, Way) and option.levers and set(option.levers) <= set(option.changes):
        return [name for name in option.changes if name in option.levers]
    return list(option.changes)


def move_words(feature: str, old: Value, new: Value, wording: Wording) -> str:
    """Say one change as something to do.

    >>> told = {"loan_amount": {"unit": "euros", "moves": {"down": "borrow {} less"}}}
    >>> move_words("loan_amount", 14500, 13000, Wording(told))
    'borrow 1,500 euros less'
    >>> move_words("card_use", 0.72, 0.53, Wording()), move_words("job", "cook", "clerk", Wording())
    ('lower your card use by 0.19', 'change your job to clerk')
    """
    name = wording.name(feature)
    if not (wording.is_amount(feature, old) and wording.is_amount(feature, new)):
        said = wording.move(feature, text_of(new))
        return said or f"change your {name} to {wording.value(feature, new)}"
    assert isinstance(old, (int, float))
    assert isinstance(new, (int, float))
    way = "up" if new > old else "down"
    if is_year(feature, old, new) or wording.in_percent(feature):  # 5 % more is not 5 points more
        before, after = wording.pair(feature, old, new)
        return f"change your {name} from {before} to {after}"
    amount = wording.value(feature, tidy(abs(new - old)))
    said = wording.move(feature, way)
    verb = "raise" if way == "up" else "lower"
    return said.replace("{}", amount) if said else f"{verb} your {name} by {amount}"


def tidy(number: float) -> float:
    """Return a difference without what floats add at its end."""
    return float(f"{number:.12g}")
