"""What every method shares: the case it is given, and the search that hands out work.

A search calls nobody, never sleeps and never prints. The same answers give the same search, so it
can run against an LLM, a recording or a test alike.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from waysout.domain.budget import Budget
from waysout.domain.edit import Edit
from waysout.domain.known import Known
from waysout.domain.memory import Past
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
from waysout.errors import InputError
from waysout.llm.base import Reply, Request
from waysout.prompts.propose import Proposer
from waysout.search.archive import Archive
from waysout.search.settings import check_settings
from waysout.search.work import Answer, Evaluate, Propose, Work

W = TypeVar("W", Propose, Evaluate)

Tell = Callable[[str, float], None]
"""Hears what is being learned, and which share of it is done."""


def unheard(what: str, share: float) -> None:
    """Be told by nobody who wants to know."""


ROWS_WITHOUT_LIMIT = 10_000
"""What a search that never runs dry by itself may ask where nobody set a limit."""


@dataclass(frozen=True)
class Case:
    """One person's case, as it is put to every method alike.

    ``probability`` is the oracle's own of the query. ``proposer`` is there for methods that ask an
    LLM, ``known`` rows where somebody gave them, ``past`` where this person was searched for
    before.
    """

    problem: Problem
    query: Row
    probability: float = 0.0
    budget: Budget = field(default_factory=Budget)
    k: int = 5
    seed: int = 0
    proposer: Proposer | None = None
    known: Known | None = None
    past: Past | None = None

    def generator(self) -> np.random.Generator:
        """Return a generator of its own for each seed and query, the same on every machine."""
        digest = hashlib.sha256(repr((self.seed, self.query)).encode()).digest()
        return np.random.default_rng(int.from_bytes(digest))

    def with_row_limit(self) -> Self:
        """Return the case with a limit of rows, its own if it has one."""
        if self.budget.oracle_rows is not None:
            return self
        return replace(self, budget=replace(self.budget, oracle_rows=ROWS_WITHOUT_LIMIT))


def least(bound: float, default: Any) -> Any:
    """Return a field of settings that is a number of at least so much."""
    return field(default=default, metadata={"least": bound})


def within(lowest: float, highest: float, default: Any) -> Any:
    """Return a field of settings that is a number between two others, which may be met."""
    return field(default=default, metadata={"least": lowest, "most": highest})


@dataclass(frozen=True)
class Method(ABC):
    """The settings of a way to search; `start` makes a search of one case.

    Settings may be given as texts, as a command line does; they are read by their types.
    """

    name: ClassVar[str]
    about: ClassVar[str] = ""
    """What it does, in a line of `waysout methods`; ours say so in `waysout.methods`."""
    needs_llm: ClassVar[bool] = False
    needs_calls: ClassVar[bool] = True
    """Whether a method that asks an LLM is nothing without one; else it may get 0 calls."""
    needs_known: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_settings(self)

    def prepare(self) -> None:  # noqa: B027 - most methods need nothing
        """Load what the method needs, or say what is missing, before anything is spent."""

    def learn(self, problem: Problem, known: Known | None, tell: Tell) -> None:  # noqa: B027
        """Learn from known rows what all searches share; may take minutes, and is done before any.

        What ``tell`` raises ends it: somebody does not want to wait. `start` gets what was learned
        by the same road, so that a search driven by hand learns on its own.
        """

    @abstractmethod
    def start(self, case: Case) -> Search:
        """Return a search that has not begun; nothing is loaded or asked."""

    def edits_a_call(self, k: int) -> int:
        """Return how many edits one LLM call asks for; ``k`` is what the user said."""
        return k

    def settings(self) -> dict[str, Any]:
        """Return the settings, as they stand in results."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a search has nothing more to ask."""

    kind: OutcomeKind
    reason: str


class Search(ABC):
    """Hands out work and takes answers in, within the budget of its case.

    Subclasses say what to ask next (`_next`) and what to make of the answers. What they were
    thinking of when they asked (``context``) comes back to them with the answer.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.archive = Archive(case.problem, case.query)
        self.ending: Ending | None = None
        self.named: list[Edit] = []
        """What an LLM has proposed and could be read, in the order it came."""
        self.asked = 0
        """How many works were handed out."""
        self._pending: dict[int, tuple[Work, Any]] = {}
        self._calls = 0
        self._rows = 0
        self._recalled = self._recall(case.past) if case.past else []

    def _recall(self, past: Past) -> list[Row]:
        """Take in what is known from before and breaks no rule of today; returns those rows."""
        problem, query = self.case.problem, self.case.query
        rows = [row for row in past.answered if not problem.violations(query, row)]
        answers = past.answers(rows)
        met = problem.goal.met(answers).tolist()
        for row, chance, yes in zip(rows, answers.probability.tolist(), met, strict=True):
            valid, reasons = self.archive.is_valid(row, yes), past.reasons.get(row, ())
            self.archive.recall(row, problem.key(row), chance, valid, reasons)
        return rows

    @property
    def _next_draw(self) -> int:
        """Which draw of an LLM's replies comes next: none twice, earlier searches included."""
        return self._calls + (self.case.past.calls if self.case.past else 0)

    def origin(self, work: Work) -> Row | None:
        """Return the row that those of a work were made from, where a method goes row by row."""
        return None

    @property
    def thinks(self) -> bool:
        """Whether `ask` may take so long that others should not have to wait for it."""
        return False

    def close(self) -> None:  # noqa: B027 - most searches hold nothing
        """Let go of what the search holds; nothing is asked of it any more."""

    @property
    def done(self) -> bool:
        """Whether the search is over: nothing more will be asked, and nothing is awaited."""
        return self.ending is not None and not self._pending

    @property
    def waiting(self) -> int:
        """How many works are out."""
        return len(self._pending)

    def ask(self) -> Work | None:
        """Return the next work; ``None`` where there is none until an answer comes, or at all."""
        return None if self.ending else self._next()

    def tell(self, work: Work, answer: Answer) -> None:
        """Take an answer in. A second answer to the same work changes nothing."""
        asked, context = self._pending.get(work.id, (None, None))
        if asked is None and 0 <= work.id < self.asked:
            return
        if asked != work:
            raise InputError(f"this search did not hand out the work {work.id}")
        self._check(work, answer)
        del self._pending[work.id]
        if isinstance(work, Propose) and isinstance(answer, Reply):
            self._on_reply(context, answer)
        elif isinstance(work, Evaluate) and isinstance(answer, Answers):
            self._on_answers(context, work.rows, answer)

    def refuse(self, work: Work) -> bool:
        """Hear that the budget allows no such work; returns whether the search goes on without."""
        return False

    def _check(self, work: Work, answer: Answer) -> None:
        wanted = Reply if isinstance(work, Propose) else Answers
        if not isinstance(answer, wanted):
            raise InputError(
                f"work {work.id} is answered by {wanted.__name__}, not {type(answer).__name__}"
            )
        asked = len(work.rows) if isinstance(work, Evaluate) else 0
        if isinstance(answer, Answers) and len(answer) != asked:
            raise InputError(f"{asked} rows were asked and {len(answer)} answered")

    @property
    def calls_left(self) -> float:
        """How many LLM calls may still be asked for."""
        limit = self.case.budget.llm_calls
        return float("inf") if limit is None else limit - self._calls

    @property
    def rows_left(self) -> float:
        """How many rows may still be asked."""
        limit = self.case.budget.oracle_rows
        return float("inf") if limit is None else limit - self._rows

    def _propose(self, request: Request, context: Any = None) -> Propose:
        self._calls += 1
        work = Propose(self.asked, request)
        return self._handed_out(work, context)

    def _evaluate(self, rows: Sequence[Row], context: Any = None) -> Evaluate:
        self._rows += len(rows)
        work = Evaluate(self.asked, tuple(rows))
        return self._handed_out(work, context)

    def _handed_out(self, work: W, context: Any) -> W:
        self.asked += 1
        self._pending[work.id] = (work, context)
        return work

    def _end(self, kind: OutcomeKind, reason: str) -> None:
        self.ending = Ending(kind, reason)

    @abstractmethod
    def _next(self) -> Work | None:
        """Return the next work, by `_propose` or `_evaluate`, or call `_end`."""

    def _on_reply(self, context: Any, reply: Reply) -> None:
        raise NotImplementedError

    @abstractmethod
    def _on_answers(self, context: Any, rows: Sequence[Row], answers: Answers) -> None:
        """Make something of what the oracle said."""
