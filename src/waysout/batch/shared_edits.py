"""Amortising across people: what an LLM named for a few is tried for all who are like them.

Before a batch, some people who stand for the others, the *pilots*, are searched with all calls. The
edits named for them are frozen in a library. Everybody else begins with the edits of the pilots
nearest to them, and asks only when stuck. What a person gets follows from the row, the seed and the
library alone, whoever searches, wherever and in whatever order.

A feature and its value are carried over, never a reason: it was written about somebody else.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from waysout.batch.job import BatchTally
from waysout.domain.distance import Matrix
from waysout.domain.edit import Edit
from waysout.domain.memory import Memory, Past, read_again
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
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
from waysout.oracles.answers import ask_checked
from waysout.prompts.propose import Proposer
from waysout.prompts.render import Topic
from waysout.report.result import Result
from waysout.run.find import find_many
from waysout.run.many import read_row
from waysout.run.options import Options, make_plan
from waysout.run.plan import Plan, check_whole
from waysout.search.candidates import DECIMALS
from waysout.search.recombine import Recombine
from waysout.store import Store
from waysout.store.tables import remove

LIBRARY, PILOTS = "_library.json", "_pilots.db"
VERSION = 1
COUNT = 64
NEAREST, MOST_EDITS = 8, 30

# Pilots are chosen among so many: all pairs of them are compared.
_LOOKED_AT = 1000
_ROWS_AT_ONCE = 100
# An edit that stands in an option counts as much as two that were only named.
_WORKED = 2.0


# The library ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Named:
    """An edit that an LLM named, without its reason; ``worked`` where it stands in an option."""

    edit: Edit
    worked: bool


@dataclass(frozen=True, slots=True)
class Pilot:
    """Somebody who was searched with all calls, and what was named then."""

    row: Row
    edits: tuple[Named, ...]


@dataclass(frozen=True)
class SharedLibrary:
    """What was named for the pilots of a batch by one LLM, about one model, and what it cost."""

    oracle: str
    llm: str
    pilots: tuple[Pilot, ...] = ()
    tally: BatchTally = field(default_factory=BatchTally)

    def save(self, path: Path, problem: Problem) -> None:
        """Write it, all or nothing."""
        table = {
            "waysout_library": VERSION,
            "oracle": self.oracle,
            "llm": self.llm,
            "features": list(problem.schema.names),
            "tally": self.tally.as_dict(),
            "pilots": [_written(pilot) for pilot in self.pilots],
        }
        write_atomically(path, json.dumps(table, allow_nan=False).encode())

    @classmethod
    def load(cls, path: Path, problem: Problem) -> SharedLibrary:
        """Read what `save` wrote about this very problem."""
        table = _table(path)
        _check_about(path, table, problem)
        try:
            pilots = tuple(_read(pilot, problem) for pilot in table["pilots"])
            return cls(table["oracle"], table["llm"], pilots, BatchTally(**table["tally"]))
        except (KeyError, TypeError, ValueError, AttributeError, WaysoutError) as error:
            raise IntegrityError(
                f"{path} cannot be read ({type(error).__name__}: {error}): remove it, and the "
                "pilots are searched anew"
            ) from None


def _written(pilot: Pilot) -> dict[str, Any]:
    edits = [[named.edit.feature, named.edit.value, named.worked] for named in pilot.edits]
    return {"row": list(pilot.row), "edits": edits}


def _read(table: Mapping[str, Any], problem: Problem) -> Pilot:
    schema = problem.schema

    def named(feature: str, value: Any, worked: bool) -> Named:
        typed = None if value is None else schema[feature].parse(value)
        return Named(Edit(feature, typed), bool(worked))

    return Pilot(read_again(schema, table["row"]), tuple(named(*edit) for edit in table["edits"]))


def _table(path: Path) -> Mapping[str, Any]:
    try:
        table = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise IntegrityError(f"{path} cannot be read ({error})") from None
    version = table.get("waysout_library") if isinstance(table, dict) else None
    if version != VERSION:
        raise InputError(
            f"{path} is no library of edits that this release knows: its version is "
            f"{shown(version)}, not {VERSION}"
        )
    return dict(table)


def _check_about(path: Path, table: Mapping[str, Any], problem: Problem) -> None:
    for what, found, wanted in (
        ("the model", table.get("oracle"), problem.oracle.name),
        ("the features", table.get("features"), list(problem.schema.names)),
    ):
        if found != wanted:
            raise InputError(
                f"{path} is about something else: {what} {shown(found)}, not {shown(wanted)}; "
                "give another folder"
            )


# What a person gets of it -----------------------------------------------------------------------


class SharedEdits(Memory):
    """A memory in which everybody finds the best edits of the pilots nearest to them.

    It keeps nothing of anybody. An edit's score is the sum, over the ``nearest`` pilots for whom it
    was named, of their nearness 1/(1+d), twice that where it stands in an option. Values that the
    key does not tell apart are one edit, with the value of the nearest pilot; what the rules do not
    let this person do is left out.
    """

    def __init__(
        self, library: SharedLibrary, *, nearest: int = NEAREST, most: int = MOST_EDITS
    ) -> None:
        super().__init__()
        check_whole("nearest", nearest, 1)
        check_whole("most", most, 1)
        self.library = library
        self.nearest = nearest
        self.most = most
        self._encoded: Matrix | None = None

    @property
    def reason(self) -> str:
        """What a reader is told instead of the reason; a simulated LLM is called that."""
        simulated = self.library.llm.startswith("simulated")
        return f"{'simulated: ' if simulated else ''}named for similar applicants"

    def of(self, problem: Problem, query: Row) -> Past:
        """Return a past of such edits and nothing else."""
        with suppress(RuleError):  # the search will meet it too, and fail for this person alone
            return Past(edits=self._edits(problem, query))
        return Past()

    def _edits(self, problem: Problem, query: Row) -> list[Edit]:
        scores: defaultdict[str, float] = defaultdict(float)
        edits: dict[str, Edit] = {}
        keys = cache(partial(_key_of, problem, query, problem.key(query)))
        for nearness, pilot in self._nearest(problem, query):
            told: dict[str, float] = {}
            for named in pilot.edits:
                key = keys(named.edit)
                if key is not None:
                    edits.setdefault(key, named.edit)
                    told[key] = max(told.get(key, 0.0), _WORKED if named.worked else 1.0)
            for key, weight in told.items():
                scores[key] += nearness * weight
        # Those with equal scores keep their order, that of the nearest pilot's LLM.
        best = sorted(edits, key=lambda key: -round(scores[key], DECIMALS))[: self.most]
        return [Edit(edits[key].feature, edits[key].value, self.reason) for key in best]

    def _nearest(self, problem: Problem, query: Row) -> Iterator[tuple[float, Pilot]]:
        pilots = self.library.pilots
        if not pilots:
            return
        if self._encoded is None:
            self._encoded = problem.schema.encode([pilot.row for pilot in pilots])
        nearness = _nearness(problem, problem.schema.encode([query])[0], self._encoded)
        for i in np.argsort(-nearness, kind="stable")[: self.nearest].tolist():
            yield float(nearness[i]), pilots[i]


def _key_of(problem: Problem, query: Row, query_key: str, edit: Edit) -> str | None:
    """Return the key of the query so edited; None where that is nothing for this person."""
    lever = problem.rules.levers(query)[edit.feature]
    if not (lever.is_open and lever.admits(edit.value)):
        return None
    key = problem.key(problem.rules.apply(query, {edit.feature: edit.value}))
    return None if key == query_key else key


def _nearness(problem: Problem, row: Matrix, rows: Matrix) -> Matrix:
    """Return 1/(1+d), rounded: another machine's last digit must not choose other pilots."""
    near: Matrix = np.round(1.0 / (1.0 + problem.distance.between(row, rows)), DECIMALS)
    return near


# Pilots -----------------------------------------------------------------------------------------


def choose_pilots(problem: Problem, rows: Sequence[Row], count: int = COUNT) -> list[Row]:
    """Return rows that stand for all of them, the one that stands for most first.

    Each next one is that which brings people nearest to a pilot, in the sum over everybody of
    1/(1+d) to the nearest. That is bounded, so an outlier, like nobody else, does not come first.
    The first n of more pilots are the n pilots; there are fewer where the rows repeat themselves.
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
    """Return those for whom a search has something to do, and how many rows were asked for that.

    Who cannot be read or asked will be told so by the batch.
    """
    readable: list[Row] = []
    for raw in raws[:: -(-len(raws) // _LOOKED_AT) or 1]:
        with suppress(RowError):
            readable.append(read_row(problem, raw))
    found: list[Row] = []
    for first in range(0, len(readable), _ROWS_AT_ONCE):
        rows = readable[first : first + _ROWS_AT_ONCE]
        with suppress(OracleError):
            answers = ask_checked(problem.oracle, rows)
            found += [row for i, row in enumerate(rows) if _is_open(problem, row, answers, i)]
    return found, len(readable)


def _is_open(problem: Problem, row: Row, answers: Answers, i: int) -> bool:
    """Whether nothing is settled of a row before a search; the i-th answer is about it."""
    about = Answers(answers.probability[i : i + 1], answers.decision[i : i + 1])
    try:
        return problem.settled(row, about) is None
    except RuleError:
        return False


def sharing(options: Options) -> Options:
    """Return the options of everybody who has a library to begin with: they ask when stuck."""
    return {**options, "settings": {**(options.get("settings") or {}), "ask": "stuck"}}


def build_library(
    problem: Problem, rows: Sequence[Any], options: Options, count: int = COUNT, *, run: Path
) -> SharedLibrary | None:
    """Choose pilots among some rows of a batch, search for them and keep what was named.

    ``options`` are the batch's own, without `sharing`. The searches are recorded in ``run``: if it
    is there, they go on where they stopped. None where somebody has stopped them.
    """
    plan = _checked_plan(options)
    candidates, asked = _rejected(problem, rows)
    pilots = choose_pilots(problem, candidates, count)
    recorded: Options = {**options, "run": run, "memory": None}
    results = [*find_many(problem, pilots, **recorded)] if pilots else []
    if not _are_finished(results, len(pilots), options):
        return None
    results.sort(key=lambda result: result.index)
    tally = sum((BatchTally.of(result) for result in results), BatchTally(setup_rows=asked))
    llm = next((result.settings["llm"] for result in results), "")
    return SharedLibrary(
        problem.oracle.name, llm or "", _named_for(problem, plan, results, run), tally
    )


def library_in(
    out: Path, problem: Problem, rows: Sequence[Any], options: Options, count: int = COUNT
) -> SharedLibrary | None:
    """Return the library of a batch's folder; it is built there where there is none yet."""
    path = out / LIBRARY
    if not path.exists():
        built = build_library(problem, rows, options, count, run=out / PILOTS)
        if built is None:
            return None
        built.save(path, problem)
    remove(out / PILOTS)
    return SharedLibrary.load(path, problem)


def _checked_plan(options: Options) -> Plan:
    plan = make_plan(options)
    if not isinstance(plan.method, Recombine):
        raise InputError(f"edits can be shared by the method 'recombine', not by {plan.name!r}")
    if not plan.asks_llm:
        raise InputError("with 0 calls no LLM names anything to be shared: allow some calls")
    return plan


def _are_finished(results: Sequence[Result], wanted: int, options: Options) -> bool:
    cut = [r.outcome.reason for r in results if r.outcome.kind is OutcomeKind.INTERRUPTED]
    stop = options.get("stop")
    if stop is not None and stop.reason and (cut or len(results) < wanted):
        return False
    if cut:
        raise LLMUnreachable(f"{len(cut)} of {wanted} pilots were interrupted: {cut[0]}")
    return True


def _named_for(
    problem: Problem, plan: Plan, results: Sequence[Result], run: Path
) -> tuple[Pilot, ...]:
    """Read the LLM's replies again: what is on file names all edits, in every sitting the same."""
    if not results:
        return ()
    proposer = Proposer(Topic.of_problem(problem), style=plan.style)
    k = plan.method.edits_a_call(plan.k)
    pilots = []
    with Store.read(run) as store:
        for result in results:
            row = read_again(problem.schema, result.query.values())
            replies = [r.answer for r in store.answers(result.index) if r.kind == "propose"]
            edits = _edits_of(proposer, row, [r for r in replies if isinstance(r, Reply)], k)
            pilots.append(Pilot(row, _with_success(edits, result)))
    return tuple(pilots)


def _edits_of(proposer: Proposer, row: Row, replies: Sequence[Reply], k: int) -> list[Edit]:
    read = [edit for reply in replies for edit in proposer.read(reply, row, row, k=k).edits]
    return list(dict.fromkeys(Edit(edit.feature, edit.value) for edit in read))


def _with_success(edits: Sequence[Edit], result: Result) -> tuple[Named, ...]:
    worked = {(name, new) for option in result.options for name, (_, new) in option.changes.items()}
    return tuple(Named(edit, (edit.feature, edit.value) in worked) for edit in edits)
