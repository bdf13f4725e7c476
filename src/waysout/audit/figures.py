"""A batch, looked at as a population: who has no way out, what a yes costs, which levers help.

``audit(folder, by=["sex", "sex,race"])`` counts the people of the parts that are done. All figures
tell what this search found, with these rules and this budget, and nothing about what there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.audit.about import About
from waysout.audit.groups import Groups, everybody, group
from waysout.audit.people import Lists, People, read_people
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

VERSION = 1
FEW = 30
"""Groups of fewer people are marked: their figures say little."""
WITHOUT = (OutcomeKind.INFEASIBLE, OutcomeKind.BUDGET_SPENT, OutcomeKind.EXHAUSTED)
REJECTED = (OutcomeKind.FOUND, *WITHOUT)
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class LeverUse:
    """A feature, and how many of the people with a way out it helps.

    ``nearest`` counts those whose nearest option moves it, ``alone`` those for whom it suffices,
    ``some`` those who have an option that moves it.
    """

    name: str
    nearest: int
    alone: int
    some: int


@dataclass(frozen=True)
class Group:
    """The figures of some people: of those rejected, where nothing else is said.

    ``values`` are the group's own in the columns it was made by. ``outcomes`` counts everybody.
    ``cost`` is the distance of the nearest option, ``changes`` are those of that option; both, as
    ``fewest_changes`` and ``options``, are of people with a way out. ``binding`` counts the rules
    that leave none. The differences are to all other people, None where there are none. ``few``
    says that they are too few to tell much, ``few_costs`` that too few have a way out.
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
    changes: float | None
    fewest_changes: float | None
    options: float | None
    chance: float | None
    llm_calls: float | None
    levers: tuple[LeverUse, ...]
    few: bool
    few_costs: bool

    @property
    def name(self) -> str:
        """The group in words."""
        return ", ".join(self.values)


@dataclass(frozen=True)
class Section:
    """The groups by one column, or by several at once.

    ``edges`` are the quartiles that part columns of numbers; ``merged`` says how many small groups
    the last one stands for.
    """

    by: tuple[str, ...]
    groups: tuple[Group, ...]
    edges: Mapping[str, Sequence[float]]
    merged: int

    @property
    def name(self) -> str:
        """What it is grouped by, in words."""
        return " × ".join(self.by)


@dataclass(frozen=True)
class Audit:
    """What a batch found for whom; ``rows`` are those of the parts that are done: all counted."""

    about: About
    rows: int
    parts: int
    everybody: Group
    sections: tuple[Section, ...]

    @property
    def comparisons(self) -> int:
        """How many differences are told."""
        groups = [group for section in self.sections for group in section.groups]
        told = [d for g in groups for d in (g.share_difference, g.cost_difference)]
        return len(told) - told.count(None)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        told = {"waysout_audit": VERSION, **asdict(self), "simulated": self.about.simulated}
        plained: dict[str, Any] = plain(told)
        return plained


def audit(folder: str | Path, by: Sequence[str] = ()) -> Audit:
    """Count what a batch found, for everybody and by groups; ``folder`` is what it was written to.

    Each of ``by`` is a column of the input, or several with commas between them: then people of a
    group share the values of all. Parts that are not done yet are left out.
    """
    people, crossed = read_people(Path(folder), by)
    rejected = people.ended(*REJECTED)
    return Audit(
        about=About.read(Path(folder)),
        rows=len(people),
        parts=people.parts,
        everybody=_figures(people, everybody(len(people)))[0],
        sections=tuple(_section(people, columns, rejected) for columns in crossed),
    )


def _section(people: People, columns: tuple[str, ...], rejected: Mask) -> Section:
    groups = group({name: people.inputs[name] for name in columns}, rejected)
    return Section(columns, tuple(_figures(people, groups)), groups.edges, groups.merged)


def _figures(people: People, groups: Groups) -> list[Group]:
    """Return the figures of each group."""
    rejected, found = people.ended(*REJECTED), people.ended(OutcomeKind.FOUND)
    levers = _levers(people, groups, found)
    binding = _counted(people.lists["binding"], groups, people.ended(OutcomeKind.INFEASIBLE))
    return [
        _group(people, values, groups.codes == i, rejected, found, levers[i], binding[i])
        for i, values in enumerate(groups.names)
    ]


def _group(
    people: People,
    values: tuple[str, ...],
    members: Mask,
    rejected: Mask,
    found: Mask,
    levers: tuple[LeverUse, ...],
    binding: Mapping[str, int],
) -> Group:
    outcomes = _outcomes(people, members)
    ours, lucky = members & rejected, members & found
    n, with_way_out = int(ours.sum()), int(lucky.sum())
    others, lucky_others = int(rejected.sum()) - n, int(found.sum()) - with_way_out
    approved = outcomes.get(OutcomeKind.ALREADY_APPROVED, 0)
    costs = _known(people, "nearest_distance", lucky)
    calls = _known(people, "llm_calls", ours)
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
        cost_difference=median_difference(
            costs, _known(people, "nearest_distance", found & ~members)
        ),
        changes=_median(people, "nearest_changes", lucky),
        fewest_changes=_median(people, "fewest_changes", lucky),
        options=_median(people, "options", lucky),
        chance=_median(people, "probability", ours),
        llm_calls=float(calls.mean()) if len(calls) else None,
        levers=levers,
        few=n < FEW,
        few_costs=with_way_out < FEW,
    )


def _outcomes(people: People, members: Mask) -> dict[str, int]:
    counts = np.bincount(people.outcome.codes[members], minlength=len(people.outcome.texts))
    named = zip(people.outcome.texts, counts.tolist(), strict=True)
    return {str(kind): count for kind, count in named if count}


def _known(people: People, name: str, whose: Mask) -> Numbers:
    numbers = people.numbers[name][whose]
    return numbers[~np.isnan(numbers)]


def _median(people: People, name: str, whose: Mask) -> float | None:
    numbers = _known(people, name, whose)
    return float(np.median(numbers)) if len(numbers) else None


def _levers(people: People, groups: Groups, found: Mask) -> list[tuple[LeverUse, ...]]:
    """Return each group's levers, those that help most first."""
    nearest, alone, some = (
        _counted(people.lists[name], groups, found) for name in ("nearest", "alone", "levers")
    )
    helped = [
        [LeverUse(name, near.get(name, 0), by_itself.get(name, 0), n) for name, n in any_.items()]
        for near, by_itself, any_ in zip(nearest, alone, some, strict=True)
    ]
    return [
        tuple(
            sorted(one, key=lambda lever: (-lever.nearest, -lever.alone, -lever.some, lever.name))
        )
        for one in helped
    ]


def _counted(lists: Lists, groups: Groups, among: Mask) -> list[dict[str, int]]:
    """Count for each group the people who have a text, the most frequent first."""
    table = lists.counts(groups.codes, len(groups.names), among)
    order = np.argsort(-table, axis=1, kind="stable")
    texts = [str(text) for text in lists.flat.texts]
    return [
        {texts[i]: int(counts[i]) for i in places if counts[i]}
        for counts, places in zip(table, order, strict=True)
    ]
