"""A batch as a population: who has no way out, what a yes costs, which levers help.

``audit(folder, by=["sex", "sex,race"])`` counts the people of the parts that are done. All figures
describe what this search found, with these rules and this budget, and nothing beyond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from waysout.audit.groups import Groups, group
from waysout.audit.people import INPUT, About, Mask, People, read_people
from waysout.audit.stats import (
    Interval,
    Numbers,
    Spread,
    median_difference,
    share,
    share_difference,
    spread,
)
from waysout.domain.result import OutcomeKind, plain
from waysout.report.words import Wording

if TYPE_CHECKING:
    import pandas as pd

VERSION = 1
FEW = 30
"""Groups of fewer people are marked: their figures say little."""
WITHOUT = (OutcomeKind.INFEASIBLE, OutcomeKind.BUDGET_SPENT, OutcomeKind.EXHAUSTED)
REJECTED = (OutcomeKind.FOUND, *WITHOUT)


@dataclass(frozen=True)
class LeverUse:
    """A feature, and the number of people with a way out whom it helps.

    ``nearest`` counts those whose nearest way moves it, ``alone`` those for whom it suffices,
    ``some`` those who have a way that moves it.
    """

    name: str
    nearest: int
    alone: int
    some: int


@dataclass(frozen=True)
class Asked:
    """What the nearest ways of some people ask of them: ``more`` or ``less`` of a lever, with the
    amounts, or to bring it ``to`` a level.
    """

    lever: str
    move: str
    to: str
    people: int
    amount: Spread | None


@dataclass(frozen=True)
class Group:
    """The figures of a group, about the people who were rejected unless stated otherwise.

    ``values`` are the group's own in the columns it was made by. ``outcomes`` counts everybody.
    ``cost`` is that of the nearest way, ``changes`` are those of that way; both, like
    ``fewest_changes``, ``ways`` and ``options``, are about people with a way out. ``holds`` is the
    share of them whose nearest way is known to hold, ``asked`` what the nearest ways ask for, the
    most frequent first. ``binding`` counts the rules that leave none.
    The differences are to all other people, None if there are none. ``few`` marks groups too small
    to tell much, ``few_costs`` those in which too few have a way out.
    """

    values: tuple[str, ...]
    outcomes: Mapping[str, int]
    people: int
    approved: int
    approval_rate: float | None
    with_way_out: int
    without: int
    share_without: Interval | None
    share_difference: Interval | None
    why_without: Mapping[str, int]
    binding: Mapping[str, int]
    cost: Spread | None
    cost_difference: Interval | None
    holds: float | None
    changes: float | None
    fewest_changes: float | None
    ways: float | None
    options: float | None
    chance: float | None
    llm_calls: float | None
    levers: tuple[LeverUse, ...]
    asked: tuple[Asked, ...]
    few: bool
    few_costs: bool

    @property
    def name(self) -> str:
        """The group's values as text."""
        return ", ".join(self.values)


@dataclass(frozen=True)
class Section:
    """The groups by one column, or by several at once.

    ``edges`` are the quartiles that separate columns of numbers; ``merged`` is the number of small
    groups that the last one stands for.
    """

    by: tuple[str, ...]
    groups: tuple[Group, ...]
    edges: Mapping[str, Sequence[float]]
    merged: int

    @property
    def name(self) -> str:
        """The columns it is grouped by, as text."""
        return " × ".join(self.by)


@dataclass(frozen=True)
class Audit:
    """What a batch found, and for whom; ``rows`` counts those of the parts that are done.

    ``nearest`` says whose cost, changes and levers are told: of ways, or of options where a release
    that wrote no ways made the folder. There a cost is a distance.

    >>> from waysout.audit import audit
    >>> found = audit("results", by=["sex"])  # doctest: +SKIP
    >>> [group.values for group in found.sections[0].groups]  # doctest: +SKIP
    [('female',), ('male',)]
    """

    about: About
    rows: int
    parts: int
    nearest: Literal["way", "option"]
    everybody: Group
    sections: tuple[Section, ...]

    @property
    def comparisons(self) -> int:
        """The number of differences that are reported."""
        groups = [group for section in self.sections for group in section.groups]
        told = [group.cost_difference for group in groups]
        if self.everybody.without:  # else there is nothing to compare, and no table of it
            told += [group.share_difference for group in groups]
        return len(told) - told.count(None)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        told = {"waysout_audit": VERSION, **asdict(self), "stand_in": self.about.stand_in}
        return cast(dict[str, Any], plain(told))


def audit(folder: str | Path, by: Sequence[str] = ()) -> Audit:
    """Count what a batch found, for everybody and by groups; ``folder`` is the batch's output.

    Each of ``by`` is a column of the input, or several with commas between them: then people of a
    group share the values of all. Parts that are not done yet are left out.

    >>> from waysout.audit import audit
    >>> found = audit("results", by=["sex", "sex,race"])  # doctest: +SKIP
    >>> found.everybody.share_without.value  # doctest: +SKIP
    0.17
    """
    about = About.read(Path(folder))
    people, crossed = read_people(Path(folder), by, Wording(about.wording))
    rejected = people.ended(*REJECTED)
    rows = len(people.frame)
    everybody = Groups((("everybody",),), np.zeros(rows, dtype=np.intp), {})
    sections = []
    for columns in crossed:
        groups = group({name: people.frame[INPUT + name] for name in columns}, rejected)
        figures = tuple(_figures(people, groups))
        sections.append(Section(columns, figures, groups.edges, groups.merged))
    return Audit(
        about=about,
        rows=rows,
        parts=people.parts,
        nearest="way" if people.with_ways else "option",
        everybody=_figures(people, everybody)[0],
        sections=tuple(sections),
    )


def _figures(people: People, groups: Groups) -> list[Group]:
    """Return the figures of each group."""
    found, infeasible = people.ended(OutcomeKind.FOUND), people.ended(OutcomeKind.INFEASIBLE)

    def counts(name: str, among: Mask) -> list[dict[str, int]]:
        return people.counts(name, groups.codes, len(groups.names), among)

    made = []
    told = zip(groups.names, *(counts(name, found) for name in ("nearest", "alone", "levers")),
               counts("binding", infeasible), strict=True)  # fmt: skip
    for i, (values, nearest, alone, some, binding) in enumerate(told):
        levers = [LeverUse(n, nearest.get(n, 0), alone.get(n, 0), some[n]) for n in some]
        levers.sort(key=lambda lever: (-lever.nearest, -lever.alone, -lever.some, lever.name))
        made.append(_group(people, values, groups.codes == i, tuple(levers), binding))
    return made


def _group(
    people: People,
    values: tuple[str, ...],
    members: Mask,
    levers: tuple[LeverUse, ...],
    binding: Mapping[str, int],
) -> Group:
    rejected, found = people.ended(*REJECTED), people.ended(OutcomeKind.FOUND)
    counts = people.frame["outcome"][members].value_counts(sort=False)
    outcomes = {str(kind): int(count) for kind, count in counts.items() if count}
    ours, lucky = members & rejected, members & found
    n, with_way_out = int(ours.sum()), int(lucky.sum())
    others, lucky_others = int(rejected.sum()) - n, int(found.sum()) - with_way_out
    approved = outcomes.get(OutcomeKind.ALREADY_APPROVED, 0)

    def known(name: str, whose: Mask) -> Numbers:
        return people.frame[name][whose].dropna().to_numpy()

    def median(name: str, whose: Mask) -> float | None:
        numbers = known(name, whose)
        return float(np.median(numbers)) if len(numbers) else None

    costs, calls = known("cost", lucky), known("llm_calls", ours)
    of_ways = people.with_ways and with_way_out > 0
    return Group(
        values=values,
        outcomes=outcomes,
        people=n,
        approved=approved,
        approval_rate=approved / (approved + n) if approved + n else None,
        with_way_out=with_way_out,
        without=n - with_way_out,
        share_without=share(n - with_way_out, n),
        share_difference=share_difference(n - with_way_out, n, others - lucky_others, others),
        why_without={kind: outcomes.get(kind, 0) for kind in WITHOUT},
        binding=binding,
        cost=spread(costs),
        cost_difference=median_difference(costs, known("cost", found & ~members)),
        holds=float(known("holds", lucky).sum()) / with_way_out if of_ways else None,
        changes=median("changes", lucky),
        fewest_changes=median("fewest_changes", lucky),
        ways=median("ways", lucky) if of_ways else None,
        options=median("options", lucky),
        chance=median("probability", ours),
        llm_calls=float(calls.mean()) if len(calls) else None,
        levers=levers,
        asked=_asked(people.moves[lucky[people.moves["person"]]]),
        few=n < FEW,
        few_costs=with_way_out < FEW,
    )


def _asked(moves: pd.DataFrame) -> tuple[Asked, ...]:
    """Return what is asked for, the most frequent first."""
    found = []
    for (lever, move, to), same in moves.groupby(["lever", "move", "to"], observed=True):
        amounts = spread(same["amount"].dropna().to_numpy())
        found.append(Asked(str(lever), str(move), str(to), len(same), amounts))
    return tuple(sorted(found, key=lambda asked: (-asked.people, asked.lever, asked.to)))
