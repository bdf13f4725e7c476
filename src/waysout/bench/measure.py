"""The environment of searches, loaded once per process, and cells from their results."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from waysout import __version__
from waysout.bench.arms import ID_LENGTH, Arm, digest
from waysout.bench.cell import Cell
from waysout.bench.kinds import KINDS, Finished
from waysout.bench.replies import ReplyTally
from waysout.bench.results import Failure, now
from waysout.datasets.load import Dataset, load_dataset, training_rows
from waysout.datasets.manifest import load_oracle, load_oracle_model
from waysout.domain.memory import Memory
from waysout.domain.problem import Binning, Problem
from waysout.domain.result import OutcomeKind, plain
from waysout.domain.schema import Row, Schema
from waysout.llm.base import Backend
from waysout.oracles.cache import CachedOracle
from waysout.report.result import Result
from waysout.run.context import Stop
from waysout.run.options import Options
from waysout.run.plan import as_before, describe
from waysout.run.progress import Progress

_UNFINISHED = (OutcomeKind.INTERRUPTED, OutcomeKind.FAILED)
_GIT_SECONDS = 5.0

T = TypeVar("T")


@dataclass(frozen=True)
class Environment:
    """A data set, its oracle (shared by all arms), and the rows that define the scales."""

    data: Dataset
    oracle: CachedOracle
    sha256: str
    training: Sequence[Row]
    _made: dict[Hashable, Any] = field(default_factory=dict)

    def problem(self, rules: str, binning: Binning = "fixed") -> Problem:
        """Return the problem under a rule set of the card."""
        return self.once(
            ("problem", rules, binning),
            lambda: Problem.from_card(
                self.data.card, self.oracle, training=self.training, rule_set=rules, binning=binning
            ),
        )

    def problem_of(self, arm: Arm) -> Problem:
        """Return the problem that an arm's searches are about."""
        return self.problem(arm.rules, arm.binning)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached value of a key, or compute it now."""
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found


def environment(name: str) -> Environment:
    """Load a data set and its oracle, once."""
    return _environment(name, oracle_sha256(name))


@cache
def _environment(name: str, sha256: str) -> Environment:
    data = load_dataset(name)
    return Environment(data, CachedOracle(load_oracle(data.card)), sha256, training_rows(data))


def oracle_sha256(name: str) -> str:
    """Return the sha256 of a data set's trained oracle."""
    return load_oracle_model(name)[1].model_sha256


def made_of(arm: Arm, place: Environment) -> str:
    """Return a digest of the inputs of an arm's searches that are not part of its id.

    These are the card, the scales from the training rows, and the name of the encoder.
    """
    problem = place.problem_of(arm)
    inputs = [describe(problem), _words(problem.schema), as_before(arm.made.settings())]
    # The last digit of a scale may differ between machines.
    rounded = json.loads(json.dumps(plain(inputs)), parse_float=lambda text: f"{float(text):.9g}")
    return digest(rounded)[:ID_LENGTH]


def _words(schema: Schema) -> dict[str, dict[str, Any]]:
    """Return the card's words in the form that the digests on file were made of."""
    found = {}
    for feature in schema:
        words = dict(feature.words)
        if feature.kind == "boolean" and feature.levels != (False, True):
            spelled = zip(feature.values(), feature.level_texts, strict=True)
            words = {str(value): words.get(level, level) for value, level in spelled}
        given = {"unit": feature.unit, "about": feature.about, "words": words}
        if any(given.values()):
            found[feature.name] = {name: value for name, value in given.items() if value}
    return found


class FoundAt:
    """Records for each search how much was spent when each of its options was found."""

    def __init__(self) -> None:
        self._found: dict[int, list[tuple[int, int]]] = {}

    def __call__(self, now: Progress) -> None:
        """Record the progress of a search."""
        found = self._found.setdefault(now.index, [])
        found += [(now.llm_calls, now.oracle_rows)] * (now.options - len(found))

    def of(self, problem: Problem, result: Result) -> tuple[tuple[int, int], ...]:
        """Return the spending for each option that counts: those whose key is not the query's."""
        known, spent = self._found.get(result.index, []), result.ledger
        last = (spent.llm_calls, spent.oracle_rows)
        query = problem.key(problem.row(result.query))
        return tuple(
            known[i] if i < len(known) else last
            for i, option in enumerate(result.options)
            if option.key != query
        )


@dataclass(frozen=True)
class ArmSearches:
    """Searches of an arm: their options, and cells from their results."""

    arm: Arm
    llm: str
    place: Environment
    folder: Path
    stop: Stop
    found: FoundAt = field(default_factory=FoundAt)

    @property
    def problem(self) -> Problem:
        """The problem to search in: where time counts, its model remembers no other search."""
        problem = self.place.problem_of(self.arm)
        timed = KINDS[self.arm.kind].timed
        return replace(problem, oracle=self.place.oracle.oracle) if timed else problem

    def options(self, llm: str | Backend | None) -> Options:
        """Return the options of the searches, with the memory of the arm's kind, if it has one."""
        arm, kind = self.arm, KINDS[self.arm.kind]
        options: Options = {
            "method": arm.method,
            "settings": arm.settings,
            "llm": llm,
            "k": arm.k,
            "calls": arm.calls,
            "oracle_rows": arm.rows,
            "seed": arm.seed,
            "style": arm.style,
            "data": self.place.data,
            "progress": self.found,
            "stop": self.stop,
        }
        if arm.polish:
            options["polish"] = arm.polish
        if kind.memory:
            options["memory"] = kind.memory(arm, self.place, self.folder, options)
        return options

    def cell(
        self,
        query: int,
        result: Result,
        memory: Memory | None,
        tally: ReplyTally,
        commit: str,
        processor: float | None = None,
    ) -> Cell | Failure:
        """Measure one search: what it found and spent, without any data row.

        ``processor`` is the processor time it took, in seconds, where it ran alone in its process.
        """
        arm, outcome, spent = self.arm, result.outcome, result.ledger
        if outcome.kind in _UNFINISHED:
            return failure(arm, self.llm, query, outcome.reason)
        more = KINDS[arm.kind].measure(Finished(arm, self.place, result, memory, processor))
        return Cell(
            arm=arm.id,
            llm=self.llm,
            query=query,
            data=arm.data,
            oracle=self.place.sha256,
            outcome=str(outcome.kind),
            reason=outcome.reason,
            metrics=plain({**result.metrics, **more.metrics}),
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
                **({"at_once": tally.at_once} if tally.at_once else {}),
            },
            found=self.found.of(self.place.problem_of(arm), result),
            columns=plain(dict(more.columns)),
            spec=arm.spec,
            made_of=self.place.once(("made_of", arm.id), lambda: made_of(arm, self.place)),
            version=__version__,
            commit=commit,
            at=now(),
        )


def failure(arm: Arm, llm: str, query: int, reason: str) -> Failure:
    """Return the record of a search that did not finish."""
    return Failure(arm.id, llm, query, arm.data, reason, now())


@cache
def source_commit() -> str:
    """Return the commit of the source if it is a checkout, marked if files were changed.

    ``WAYSOUT_COMMIT`` sets it for a copy of a checkout, such as in an image.
    """
    if commit := os.environ.get("WAYSOUT_COMMIT"):
        return commit
    folder = Path(__file__).parents[1]

    def git(*words: str) -> str:
        command = ["git", *words]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=_GIT_SECONDS,
                check=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            return ""
        return done.stdout.strip()

    # An installed package may lie inside an unrelated repository.
    if not git("ls-files", "__init__.py"):
        return ""
    commit = git("rev-parse", "HEAD")
    changes = git("status", "--porcelain", "--", ".")
    return f"{commit[:12]}+changes" if commit and changes else commit[:12]
