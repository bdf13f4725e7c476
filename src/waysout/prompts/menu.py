"""What may be edited at a node: the same list for the prompt, its constraint and the simulation."""

from __future__ import annotations

from waysout.domain.rules import Lever, RuleSet
from waysout.domain.schema import Row, Value
from waysout.llm.base import Editable
from waysout.prompts.grammar import domain
from waysout.prompts.spelling import Spelling


def menu(rules: RuleSet, spelling: Spelling, query: Row, row: Row) -> tuple[Editable, ...]:
    """Return the features that may be edited in ``row`` on the way from ``query``.

    As far as rules about one feature alone tell; the others are checked on the edited row. A
    feature that was moved may go back to the query's value.
    """
    levers = rules.levers(query).values()
    offers = (_offer(lever, spelling, now) for lever, now in zip(levers, row, strict=True))
    return tuple(offer for offer in offers if offer is not None and domain(offer))


def _offer(lever: Lever, spelling: Spelling, now: Value) -> Editable | None:
    if not lever.is_open:
        return None
    feature = lever.feature
    name, shown = spelling.name(feature.name), spelling.value(feature, now)
    choices = lever.choices()
    if choices is None:
        decimals = 0 if feature.kind == "integer" else feature.decimals
        return Editable(name, shown, (), lever.low, lever.high, lever.step, lever.start, decimals)
    offered = [v for v in (*choices, lever.now) if v is not None and v != now]
    if not offered:
        return None
    return Editable(name, shown, tuple(spelling.value(feature, v) for v in offered))
