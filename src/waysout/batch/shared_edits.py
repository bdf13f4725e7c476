"""Sharing edits between people: what an LLM named for a few is tried for all who are like them.

Before a batch, some people who represent the others, the *pilots*, are searched for with all calls.
The edits named for them are frozen in a library. Everyone else starts with the edits of the pilots
nearest to them, and asks only when stuck. The library never grows during a batch, so a result
follows from the row, the seed and the library alone, in whatever order people are searched for.

A feature and its value are shared, never a reason: it was written about another person, and may
give something about them away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from waysout.batch.job import BatchTally
from waysout.batch.sealed import read_sealed, sealed
from waysout.domain.budget import Spent
from waysout.domain.distance import Matrix
from waysout.domain.memory import Memory, Past, read_again
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Edit, Row
from waysout.errors import (
    InputError,
    IntegrityError,
    LLMUnreachable,
    OracleError,
    RowError,
    RuleError,
    WaysoutError,
    shown,
)
from waysout.files import write_atomically
from waysout.llm.base import Reply
from waysout.llm.connect import stand_in
from waysout.oracles.probe import ask_each
from waysout.prompts.propose import Proposer
from waysout.prompts.render import Topic
from waysout.report.result import Result
from waysout.run.find import find_many
from waysout.run.options import Options, make_plan, read_row
from waysout.run.plan import Plan, check_whole
from waysout.search.candidates import DECIMALS
from waysout.search.recombine import Recombine
from waysout.search.wayfinder import Wayfinder
from waysout.store import Store
from waysout.store.tables import remove

LIBRARY, PILOTS = "_library.json", "_pilots.db"
VERSION = 1
COUNT = 64
LOOKED_AT = 1000
"""Pilots are chosen among at most this many people: all pairs of them are compared."""
NEAREST, MOST_EDITS = 8, 30

_ROWS_AT_ONCE = 100
# An edit that is part of an option counts as much as two that were only named.
_WORKED = 2.0
_REMEDY = "remove it, and the pilots are searched for again"


# The library ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Named:
    """An edit that an LLM named, without its reason; ``worked`` if it is part of an option."""

    edit: Edit
    worked: bool


@dataclass(frozen=True, slots=True)
class Pilot:
    """A person who was searched for with all calls, and the edits named for them."""

    row: Row
    edits: tuple[Named, ...]


@dataclass(frozen=True)
class SharedLibrary:
    """What one LLM named for the pilots of a batch, about one model, and what it cost."""

    oracle: str
    llm: str
    pilots: tuple[Pilot, ...] = ()
    tally: BatchTally = field(default_factory=BatchTally)

    def save(self, path: Path, problem: Problem) -> None:
        """Write it, all or nothing."""
        pilots = [
            {
                "row": list(pilot.row),
                "edits": [[n.edit.feature, n.edit.value, n.worked] for n in pilot.edits],
            }
            for pilot in self.pilots
        ]
        table = {
            "waysout_library": VERSION,
            "oracle": self.oracle,
            "llm": self.llm,
            "features": list(problem.schema.names),
            "tally": self.tally.as_dict(),
            "pilots": pilots,
        }
        write_atomically(path, sealed(table))

    @classmethod
    def load(cls, path: Path, problem: Problem) -> SharedLibrary:
        """Read what `save` wrote about this very problem."""
        table = read_sealed(path, _REMEDY)
        version = table.get("waysout_library")
        if version != VERSION:
            raise InputError(
                f"{path} is not a library of edits that this release can read: its version is "
                f"{shown(version)}, not {VERSION}"
            )
        for what, found, wanted in (
            ("the model", table.get("oracle"), problem.oracle.name),
            ("the features", table.get("features"), list(problem.schema.names)),
        ):
            if found != wanted:
                raise InputError(
                    f"{path} is about something else: {what} {shown(found)}, not {shown(wanted)}; "
                    "give another folder"
                )
        try:
            pilots = tuple(_read_pilot(pilot, problem) for pilot in table["pilots"])
            tally = BatchTally.from_dict(table["tally"])
            return cls(table["oracle"], table["llm"], pilots, tally)
        except (KeyError, TypeError, ValueError, AttributeError, WaysoutError) as error:
            raise IntegrityError(
                f"{path} is damaged ({type(error).__name__}: {error}): {_REMEDY}"
            ) from None


def _read_pilot(table: Mapping[str, Any], problem: Problem) -> Pilot:
    schema, edits = problem.schema, []
    for feature, value, worked in table["edits"]:
        typed = None if value is None else schema[feature].parse(value)
        edits.append(Named(Edit(feature, typed), bool(worked)))
    return Pilot(read_again(schema, table["row"]), tuple(edits))


# What a person gets of it -----------------------------------------------------------------------


class SharedEdits(Memory):
    """A memory that gives everyone the best edits of the pilots nearest to them.

    It remembers nothing of anyone. An edit's score is the sum, over the nearest pilots for whom it
    was named, of their nearness 1/(1+d), twice that if it is part of an option. Values that the
    key does not tell apart are one edit, with the value of the nearest pilot; what the rules do not
    let this person do is left out.
    """

    def __init__(self, library: SharedLibrary) -> None:
        super().__init__()
        self.library = library
        self._encoded: Matrix | None = None

    def of(self, problem: Problem, query: Row) -> Past:
        """Return a past that holds nothing but these edits."""
        with suppress(RuleError):  # the search meets it, too, and fails for this person alone
            return Past(edits=self._edits(problem, query))
        return Past()

    def _edits(self, problem: Problem, query: Row) -> list[Edit]:
        pilots = self.library.pilots
        if not pilots:
            return []
        if self._encoded is None:
            self._encoded = problem.schema.encode([pilot.row for pilot in pilots])
        nearness = _nearness(problem, problem.schema.encode([query])[0], self._encoded)
        query_key = problem.key(query)

        @cache
        def key_of(edit: Edit) -> str | None:
            """Return the key of the edited query; None if the edit is not for this person."""
            lever = problem.rules.levers(query)[edit.feature]
            if not (lever.is_open and lever.admits(edit.value)):
                return None
            key = problem.key(problem.rules.apply(query, {edit.feature: edit.value}))
            return None if key == query_key else key

        scores: defaultdict[str, float] = defaultdict(float)
        edits: dict[str, Edit] = {}
        for i in np.argsort(-nearness, kind="stable")[:NEAREST].tolist():
            weights: dict[str, float] = {}
            for named in pilots[i].edits:
                key = key_of(named.edit)
                if key is not None:
                    edits.setdefault(key, named.edit)
                    weights[key] = max(weights.get(key, 0.0), _WORKED if named.worked else 1.0)
            for key, weight in weights.items():
                scores[key] += float(nearness[i]) * weight
        # Those with equal scores keep their order, that of the nearest pilot's LLM.
        best = sorted(edits, key=lambda key: -round(scores[key], DECIMALS))[:MOST_EDITS]
        instead = stand_in(self.library.llm)
        reason = f"{f'{instead}: ' if instead else ''}named for similar applicants"
        return [Edit(edits[key].feature, edits[key].value, reason) for key in best]


def _nearness(problem: Problem, row: Matrix, rows: Matrix) -> Matrix:
    """Return 1/(1+d), rounded: another machine's last digit must not choose other pilots."""
    near: Matrix = np.round(1.0 / (1.0 + problem.distance.between(row, rows)), DECIMALS)
    return near


# Pilots -----------------------------------------------------------------------------------------


def choose_pilots(problem: Problem, rows: Sequence[Row], count: int = COUNT) -> list[Row]:
    """Return rows that represent all of them, the one that represents most first.

    Each next one is the row that brings people nearest to a pilot, in the sum over everyone of
    1/(1+d) to the nearest. That is bounded, so outliers do not come first, as they would if pilots
    were chosen to be far apart. The first n of more pilots are the n pilots; there are fewer if
    rows repeat.
    """
    check_whole("count", count, 1)
    if not rows:
        return []
    encoded = problem.schema.encode(rows)
    near = np.array([_nearness(problem, row, encoded) for row in encoded])
    served = np.zeros(len(rows))  # how near the nearest pilot is to each
    chosen: list[Row] = []
    while len(chosen) < count:
        gains = np.round(np.maximum(near - served, 0.0).sum(axis=1), DECIMALS)
        best = int(np.argmax(gains))
        if gains[best] <= 0:
            break
        chosen.append(rows[best])
        served = np.maximum(served, near[best])
    return chosen


def _rejected(problem: Problem, raws: Sequence[Any]) -> tuple[list[Row], int]:
    """Return the rows that need a search, and how many rows the oracle was asked to know.

    Rows that cannot be read or asked about fail in the batch itself.
    """
    readable: list[Row] = []
    for raw in raws[:: -(-len(raws) // LOOKED_AT) or 1]:
        with suppress(RowError):
            readable.append(read_row(problem, raw))
    found: list[Row] = []
    asked = 0
    for first in range(0, len(readable), _ROWS_AT_ONCE):
        rows = readable[first : first + _ROWS_AT_ONCE]
        count = len(rows)
        with suppress(OracleError):
            answers, answered, _, count = ask_each(problem.oracle, rows)
            for i, place in enumerate(answered.tolist()):
                alone = Answers(answers.probability[i : i + 1], answers.decision[i : i + 1])
                with suppress(RuleError):
                    if problem.settled(rows[place], alone) is None:
                        found.append(rows[place])
        asked += count
    return found, asked


def sharing(options: Options) -> Options:
    """Return the options of everyone who starts with a library: they ask when stuck."""
    return {**options, "settings": {**(options.get("settings") or {}), "ask": "stuck"}}


def build_library(
    problem: Problem,
    rows: Sequence[Any],
    options: Options,
    count: int = COUNT,
    *,
    run: Path,
    steady: bool | None = None,
) -> SharedLibrary | None:
    """Choose pilots among some rows of a batch, search for them and keep the edits named.

    ``options`` are the batch's own, without `sharing`. The searches are recorded in ``run``, and
    resumed if it exists. ``steady`` is what a probe of the model has shown. Return None if they
    were stopped.
    """
    plan = make_plan(options)
    if not isinstance(plan.method, (Wayfinder, Recombine)):
        raise InputError(
            f"edits can be shared by the methods 'wayfinder' and 'recombine', not by {plan.name!r}"
        )
    if not plan.asks_llm:
        raise InputError("no LLM names anything to be shared: give one, and allow some calls")
    candidates, asked = _rejected(problem, rows)
    pilots = choose_pilots(problem, candidates, count)
    probed = Memory()
    probed.steady = steady
    recorded: Options = {**options, "run": run, "memory": probed}
    results = [*find_many(problem, pilots, **recorded)] if pilots else []
    cut = [r.outcome.reason for r in results if r.outcome.kind is OutcomeKind.INTERRUPTED]
    stop = options.get("stop")
    if stop is not None and stop.reason and (cut or len(results) < len(pilots)):
        return None
    if cut:
        raise LLMUnreachable(f"{len(cut)} of {len(pilots)} pilots were interrupted: {cut[0]}")
    results.sort(key=lambda result: result.index)
    tally = BatchTally(spent=Spent(setup_rows=asked))
    tally = sum((BatchTally.of(result) for result in results), tally)
    llm = next((result.settings["llm"] for result in results), "") or ""
    named = _named_edits(problem, plan, results, run) if results else ()
    return SharedLibrary(problem.oracle.name, llm, named, tally)


def library_in(
    out: Path,
    problem: Problem,
    rows: Sequence[Any],
    options: Options,
    count: int = COUNT,
    *,
    steady: bool | None = None,
) -> SharedLibrary | None:
    """Return the library in a batch's folder; build it there if it does not exist yet."""
    path = out / LIBRARY
    if not path.exists():
        built = build_library(problem, rows, options, count, run=out / PILOTS, steady=steady)
        if built is None:
            return None
        built.save(path, problem)
    remove(out / PILOTS)
    return SharedLibrary.load(path, problem)


def _named_edits(
    problem: Problem, plan: Plan, results: Sequence[Result], run: Path
) -> tuple[Pilot, ...]:
    """Read the edits from the recorded replies, which are the same after any interruption."""
    proposer = Proposer(Topic.of_problem(problem), style=plan.style)
    k = plan.method.edits_a_call(plan.k)
    pilots = []
    with Store.read(run) as store:
        for result in results:
            row = read_again(problem.schema, result.query.values())
            changes = [change for option in result.options for change in option.changes.items()]
            worked = {(name, problem.schema[name].parse(new)) for name, (_, new) in changes}
            named: dict[Edit, None] = {}  # in order, each once
            for recorded in store.answers(result.index):
                if isinstance(recorded.answer, Reply):
                    edits = proposer.read(recorded.answer, row, row, k=k).edits
                    named |= dict.fromkeys(Edit(edit.feature, edit.value) for edit in edits)
            found = (Named(edit, (edit.feature, edit.value) in worked) for edit in named)
            pilots.append(Pilot(row, tuple(found)))
    return tuple(pilots)
