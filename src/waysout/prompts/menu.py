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
    feature that was moved may go back to the query's value where that breaks nothing and does not
    lead back to the query itself.
    """
    levers = rules.levers(query).values()
    broken = frozenset(rules.violations(query, row))
    movable = rules.may_still_move(query, row)
    offers = []
    for lever, now in zip(levers, row, strict=True):
        if lever.feature.name not in movable:
            continue
        moved = lever.now != now and not lever.blocked and lever.now is not None
        there = rules.apply(row, {lever.feature.name: lever.now}) if moved else row
        home = moved and there == query
        back = moved and not home and broken.issuperset(rules.violations(query, there))
        offer = _offer(lever, spelling, now, back=back, home=home)
        if offer is not None and domain(offer):
            offers.append(offer)
    return tuple(offers)


def _offer(
    lever: Lever, spelling: Spelling, now: Value, *, back: bool, home: bool
) -> Editable | None:
    feature = lever.feature
    name, shown = spelling.name(feature.name), spelling.value(feature, now)
    choices = lever.choices() if lever.is_open else ()
    if choices is None:
        decimals = 0 if feature.kind == "integer" else feature.decimals
        barred = {*lever.never, lever.now} if home else lever.never
        never = sorted(float(v) for v in barred if isinstance(v, (int, float)))
        return Editable(
            name, shown, (), lever.low, lever.high, lever.step, lever.start, decimals, tuple(never)
        )
    offered = [*choices, lever.now] if back else choices
    texts = tuple(spelling.value(feature, v) for v in offered if v != now)
    return Editable(name, shown, texts) if texts else None
