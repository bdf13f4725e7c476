"""What searches need, loaded once in a process; and what comes of one, measured as a cell."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Self

from waysout import __version__
from waysout.bench.arms import ID_LENGTH, Arm, digest
from waysout.bench.cell import Cell
from waysout.bench.replies import ReplyTally
from waysout.bench.results import Failure, now
from waysout.datasets.load import Dataset, load_dataset
from waysout.datasets.manifest import load_oracle, load_oracle_model
from waysout.datasets.split import training_rows
from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind, plain
from waysout.domain.schema import Row
from waysout.llm.base import Backend
from waysout.oracles.cache import CachedOracle
from waysout.report.result import Result
from waysout.run.context import Stop
from waysout.run.find import Options
from waysout.run.plan import as_before, describe, wording
from waysout.run.progress import Progress

_UNFINISHED = (OutcomeKind.INTERRUPTED, OutcomeKind.FAILED)
_GIT_SECONDS = 5.0


@dataclass(frozen=True)
class World:
    """A data set with its oracle, which all its arms share, and the rows that give the scales."""

    data: Dataset
    oracle: CachedOracle
    sha256: str
    training: Sequence[Row]
    _problems: dict[str, Problem] = field(default_factory=dict)

    def problem(self, rules: str) -> Problem:
        """Return the problem under a rule set of the card."""
        if rules not in self._problems:
            self._problems[rules] = Problem.from_card(
                self.data.card, self.oracle, training=self.training, rule_set=rules
            )
        return self._problems[rules]


def world(name: str) -> World:
    """Load a data set and its oracle, once."""
    return _world(name, oracle_sha256(name))


@cache
def _world(name: str, sha256: str) -> World:
    data = load_dataset(name)
    return World(data, CachedOracle(load_oracle(data.card)), sha256, training_rows(data))


def oracle_sha256(name: str) -> str:
    """Return the sha256 of a data set's trained oracle."""
    return load_oracle_model(name)[1].model_sha256


def made_of(arm: Arm, place: World) -> str:
    """Return a digest of what decides an arm's searches and is not in its id.

    That is what the card says, the scales that the training rows give, and the encoder by name.
    """
    problem = place.problem(arm.rules)
    told = [describe(problem), wording(problem.schema), as_before(arm.made.settings())]
    # On another machine the last digit of a scale may be another.
    rounded = json.loads(json.dumps(plain(told)), parse_float=lambda text: f"{float(text):.9g}")
    return digest(rounded)[:ID_LENGTH]


def options(
    arm: Arm,
    data: Dataset,
    llm: str | Backend | None,
    progress: Callable[[Progress], None],
    stop: Stop,
) -> Options:
    """Return how an arm's searches are asked for."""
    return {
        "method": arm.method,
        "settings": arm.settings,
        "llm": llm,
        "k": arm.k,
        "calls": arm.calls,
        "oracle_rows": arm.rows,
        "seed": arm.seed,
        "style": arm.style,
        "data": data,
        "progress": progress,
        "stop": stop,
    }


class FoundAt:
    """Notes of each search how much was spent when each of its options was there."""

    def __init__(self) -> None:
        self._found: dict[int, list[tuple[int, int]]] = {}

    def __call__(self, now: Progress) -> None:
        """Hear how far a search has come."""
        found = self._found.setdefault(now.index, [])
        found += [(now.llm_calls, now.oracle_rows)] * (now.options - len(found))

    def of(self, problem: Problem, result: Result) -> tuple[tuple[int, int], ...]:
        """Return it for the options that count: those whose key is not the query's."""
        known, spent = self._found.get(result.index, []), result.ledger
        last = (spent.llm_calls, spent.oracle_rows)
        query = problem.key(tuple(result.query.values()))
        return tuple(
            known[i] if i < len(known) else last
            for i, option in enumerate(result.options)
            if option.key != query
        )


@dataclass(frozen=True)
class CellMeasurement:
    """Makes a cell, or a failure, of each result of an arm."""

    arm: Arm
    llm: str
    oracle: str
    commit: str
    made_of: str = ""

    @classmethod
    def of(cls, arm: Arm, llm: str, place: World, commit: str) -> Self:
        """Return it for the searches of an arm in its world."""
        return cls(arm, llm, place.sha256, commit, made_of(arm, place))

    def cell(
        self, query: int, result: Result, found: tuple[tuple[int, int], ...], tally: ReplyTally
    ) -> Cell | Failure:
        """Return what one search has found and spent, without any row."""
        outcome, spent = result.outcome, result.ledger
        if outcome.kind in _UNFINISHED:
            return self.failure(query, outcome.reason)
        return Cell(
            arm=self.arm.id,
            llm=self.llm,
            query=query,
            data=self.arm.data,
            oracle=self.oracle,
            outcome=str(outcome.kind),
            reason=outcome.reason,
            metrics=plain(result.metrics),
            spent={
                "calls": spent.llm_calls,
                "attempts": spent.attempts,
                "tokens_in": spent.tokens_in,
                "tokens_out": spent.tokens_out,
                "cached_tokens": spent.cached_tokens,
                "rows": spent.oracle_rows,
                "seconds": round(spent.seconds, 3),
                "llm_seconds": round(tally.llm_seconds, 3),
                "from_file": tally.from_file,
            },
            found=found,
            spec=self.arm.spec,
            made_of=self.made_of,
            version=__version__,
            commit=self.commit,
            at=now(),
        )

    def failure(self, query: int, reason: str) -> Failure:
        """Return a search that came to no end."""
        return Failure(self.arm.id, self.llm, query, self.arm.data, reason, now())


@cache
def source_commit() -> str:
    """Return the commit of the source, where it is a checkout; what is changed in it is said.

    ``WAYSOUT_COMMIT`` says it for a copy of one, such as in an image.
    """
    if said := os.environ.get("WAYSOUT_COMMIT"):
        return said
    folder = Path(__file__).parents[1]
    # An installed package may lie within a repository of somebody else.
    if not _git(folder, "ls-files", "__init__.py"):
        return ""
    commit = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--", ".")
    return f"{commit[:12]}+changes" if commit and changes else commit[:12]


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, timeout=_GIT_SECONDS,
            check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
