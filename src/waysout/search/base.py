"""What every method shares: the case it gets, its settings, and the search that hands out work.

A search does no I/O: it never calls an LLM or a model, never sleeps and never prints. The same
answers give the same search, so it runs against an LLM, a recording or a test alike.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from waysout.domain.budget import Budget
from waysout.domain.known import Known
from waysout.domain.memory import Past
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Edit, Row
from waysout.errors import InputError, shown, unknown
from waysout.llm.base import Reply, Request
from waysout.prompts.propose import Proposer
from waysout.search.archive import Archive
from waysout.search.work import Answer, Evaluate, Propose, Work

W = TypeVar("W", Propose, Evaluate)

OnLearning = Callable[[str, float], None]
"""Callback for progress: what is being learned, and the share of it that is done."""


def ignore_progress(what: str, share: float) -> None:
    """Ignore progress."""


ROWS_WITHOUT_LIMIT = 10_000
"""The row limit of a search that would never end by itself, where the budget sets none."""


@dataclass(frozen=True)
class Case:
    """One person's case, in the form every method gets.

    ``probability`` is the oracle's for the query. ``proposer`` is set for methods that ask an LLM,
    ``known`` where labelled rows were given, ``past`` where this person was searched for before.

    >>> import waysout
    >>> from waysout.search import Case
    >>> people = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["credit_score"] / 1400, people.card)
    >>> problem = waysout.Problem.from_card(people.card, oracle, training=people.rows)
    >>> case = Case(problem, people.rows[828], budget=waysout.Budget(oracle_rows=20))
    >>> work = waysout.Wayfinder().start(case).ask()  # the first rows to put to the model
    >>> 0 < len(work.rows) <= 20
    True
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
        """Return the generator of this seed and query, the same on every machine."""
        # What is carried along decides nothing: another note must not give another search.
        told = zip(self.problem.schema, self.query, strict=True)
        query = tuple(value for feature, value in told if not feature.is_opaque)
        digest = hashlib.sha256(repr((self.seed, query)).encode()).digest()
        return np.random.default_rng(int.from_bytes(digest))

    def with_row_limit(self) -> Self:
        """Return the case with a row limit, its own if it has one."""
        if self.budget.oracle_rows is not None:
            return self
        return replace(self, budget=replace(self.budget, oracle_rows=ROWS_WITHOUT_LIMIT))


def least(bound: float, default: Any) -> Any:
    """Return a settings field for a number of at least ``bound``.

    >>> from dataclasses import dataclass
    >>> import waysout
    >>> from waysout.search import least
    >>> @dataclass(frozen=True)
    ... class Mine(waysout.Method):
    ...     name = "mine"
    ...     values: int = least(1, 20)
    ...     def start(self, case):
    ...         ...
    >>> Mine(values=0)
    Traceback (most recent call last):
    waysout.errors.InputError: values is at least 1, not 0
    """
    return field(default=default, metadata={"least": bound})


def within(lowest: float, highest: float, default: Any) -> Any:
    """Return a settings field for a number from ``lowest`` to ``highest``, both included.

    >>> from dataclasses import dataclass
    >>> import waysout
    >>> from waysout.search import within
    >>> @dataclass(frozen=True)
    ... class Mine(waysout.Method):
    ...     name = "mine"
    ...     share: float = within(0, 1, 0.5)
    ...     def start(self, case):
    ...         ...
    >>> Mine(share=2)
    Traceback (most recent call last):
    waysout.errors.InputError: share is at most 1, not 2
    """
    return field(default=default, metadata={"least": lowest, "most": highest})


@dataclass(frozen=True)
class Method(ABC):
    """The settings of a way to search; `start` makes a search of one case.

    Settings may be strings, as on a command line; they are converted to their types. A method of
    your own goes to `find` as ``method=``, and `check_method` says whether it keeps the protocol;
    ``docs/search.md`` has one that searches by itself.

    >>> from dataclasses import dataclass
    >>> import waysout
    >>> @dataclass(frozen=True)
    ... class Hasty(waysout.Method):
    ...     name = "hasty"
    ...     batch: int = 50
    ...     def start(self, case):
    ...         return waysout.Wayfinder(batch=self.batch, hold=0, tips=0).start(case)
    >>> Hasty(batch="25").settings()
    {'batch': 25}
    """

    name: ClassVar[str]
    about: ClassVar[str] = ""
    """One line for `waysout methods`; built-in methods have theirs in `waysout.methods`."""
    needs_llm: ClassVar[bool] = False
    needs_calls: ClassVar[bool] = True
    """Whether a method that asks an LLM is useless without one; if not, 0 calls are allowed."""
    needs_known: ClassVar[bool] = False

    def __post_init__(self) -> None:
        hints = _hints(type(self))
        settings = {setting.name for setting in fields(self)}
        for name, hint in hints.items():
            if name not in settings and ClassVar not in (hint, get_origin(hint)):
                raise InputError(
                    f"{type(self).__name__} is not a dataclass, so {name} is not a setting: "
                    "decorate it with @dataclass(frozen=True)"
                )
        for setting in fields(self):
            name, value = setting.name, getattr(self, setting.name)
            typed = _typed(name, hints[name], value)
            object.__setattr__(self, name, typed)
            least, most = setting.metadata.get("least"), setting.metadata.get("most")
            if least is not None and not typed >= least:
                raise InputError(f"{name} is at least {least}, not {shown(value)}")
            if most is not None and not typed <= most:
                raise InputError(f"{name} is at most {most}, not {shown(value)}")

    def prepare(self) -> None:  # noqa: B027 - most methods need nothing
        """Load the method's requirements, or raise if one is missing, before anything is spent."""

    def learn(self, problem: Problem, known: Known | None, tell: OnLearning) -> None:  # noqa: B027
        """Learn from known rows what all searches share; runs before them, and may take minutes.

        An exception from ``tell`` cancels it. `start` must find the results by itself (in a cache),
        so that a search driven by hand works without this call.
        """

    @abstractmethod
    def start(self, case: Case) -> Search:
        """Return a search that has not begun; nothing is loaded or asked."""

    def edits_a_call(self, k: int) -> int:
        """Return how many edits one LLM call asks for; ``k`` is the user's setting."""
        return k

    def settings(self) -> dict[str, Any]:
        """Return the settings as results record them."""
        return asdict(self)


@cache
def _hints(method: type[Method]) -> Mapping[str, Any]:
    """Return the types of a class; reading them takes longer than all else, and plans have many."""
    return get_type_hints(method)


_TRUE, _FALSE = ("true", "yes", "1", "on"), ("false", "no", "0", "off")
_WORDS = {bool: "true or false", str: "a string", int: "a whole number", float: "a number"}


def _typed(name: str, hint: Any, value: Any) -> Any:
    """Return a setting's value as its type, or raise `InputError`."""
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise InputError(unknown(name, value, get_args(hint)))
        return value
    if hint not in _WORDS:
        plain = isinstance(hint, type) and not get_args(hint)
        raise InputError(
            f"the setting {name} is declared as {hint.__name__ if plain else hint}: settings are "
            "int, float, bool, str or Literal, so that they can be set on a command line"
        )
    wrong = InputError(f"{name} must be {_WORDS[hint]}, not {shown(value)}")
    if hint is bool and isinstance(value, str) and value.lower() in _TRUE + _FALSE:
        return value.lower() in _TRUE
    if hint in (bool, str):
        if not isinstance(value, hint):
            raise wrong
        return value
    try:
        number = hint(value)
    except (TypeError, ValueError, OverflowError):
        raise wrong from None
    same = isinstance(value, str) or number == value
    if isinstance(value, bool) or not math.isfinite(number) or not same:
        raise wrong
    return number


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a search has nothing more to ask."""

    kind: OutcomeKind
    reason: str


class Search(ABC):
    """Hands out work and takes in answers, within the budget of its case.

    Subclasses decide what to ask next (`_next`) and what to do with the answers. The ``context``
    they pass with a work item comes back to them with its answer. One that only makes rows for the
    model is a `BatchSearch`, which is less to write.

    >>> import waysout
    >>> from waysout.search import Case, Search
    >>> class OneRow(Search):  # asks for one row, and is done
    ...     def _next(self):
    ...         if self.waiting:
    ...             return None
    ...         edited = self.case.problem.rules.apply(self.case.query, {"savings": 15000})
    ...         return self._evaluate([edited])
    ...     def _on_answers(self, context, rows, answers):
    ...         for row, (chance, valid) in zip(rows, self.archive.judge(rows, answers)):
    ...             self.archive.take(row, self.case.problem.key(row), chance, valid)
    ...         self._end(waysout.OutcomeKind.EXHAUSTED, "the one row was tried")
    >>> people = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["savings"] > 9999, people.card)
    >>> problem = waysout.Problem.from_card(people.card, oracle, training=people.rows)
    >>> search = OneRow(Case(problem, people.rows[828]))
    >>> work = search.ask()
    >>> search.tell(work, problem.oracle.ask(work.rows))
    >>> search.done, len(search.archive.options())
    (True, 1)
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.archive = Archive(case.problem, case.query)
        self.ending: Ending | None = None
        self.named: list[Edit] = []
        """The readable edits an LLM has proposed, in order."""
        self.asked = 0
        """How many work items were handed out."""
        self._pending: dict[int, tuple[Work, Any]] = {}
        # A search plans within its own copy of the budget; the ledger still enforces the limits.
        self._calls = 0
        self._rows = 0
        self._recalled: list[Row] = []
        if case.past:
            # A row that breaks a rule of today is left out, key and all: another row in the same
            # bin may keep the rule.
            broken = case.problem.violations
            self._recalled = [row for row in case.past.answered if not broken(case.query, row)]
            answers = case.past.answers(self._recalled)
            judged = self.archive.judge(self._recalled, answers)
            for row, (chance, valid) in zip(self._recalled, judged, strict=True):
                reasons = case.past.reasons.get(row, ())
                self.archive.recall(row, case.problem.key(row), chance, valid, reasons)

    @property
    def _next_draw(self) -> int:
        """The draw number of the next LLM request, earlier searches for this person included.

        Each request has its own: two nodes that look alike to the LLM are still two questions.
        """
        return self._calls + (self.case.past.calls if self.case.past else 0)

    @property
    def thinks(self) -> bool:
        """Whether `ask` may take long enough that it should not block others."""
        return False

    def close(self) -> None:  # noqa: B027 - most searches hold nothing
        """Release what the search holds; it is not used afterwards."""

    @property
    def done(self) -> bool:
        """Whether the search is over: it asks nothing more and no answer is pending."""
        return self.ending is not None and not self._pending

    @property
    def waiting(self) -> int:
        """How many work items are unanswered."""
        return len(self._pending)

    def ask(self) -> Work | None:
        """Return the next work; ``None`` if there is none until an answer comes, or at all."""
        return None if self.ending else self._next()

    def tell(self, work: Work, answer: Answer) -> None:
        """Take in an answer. A second answer to the same work item changes nothing."""
        asked, context = self._pending.get(work.id, (None, None))
        if asked is None and 0 <= work.id < self.asked:
            return
        if asked != work:
            raise InputError(f"this search did not hand out work item {work.id}")
        if isinstance(work, Propose) and isinstance(answer, Reply):
            del self._pending[work.id]
            self._on_reply(context, answer)
        elif isinstance(work, Evaluate) and isinstance(answer, Answers):
            if len(answer) != len(work.rows):
                raise InputError(f"{len(work.rows)} rows were asked and {len(answer)} answered")
            del self._pending[work.id]
            self._on_answers(context, work.rows, answer)
        else:
            wanted = Reply if isinstance(work, Propose) else Answers
            raise InputError(
                f"work item {work.id} is answered by {wanted.__name__}, not {type(answer).__name__}"
            )

    def refuse(self, work: Work) -> bool:
        """Take back work that the budget does not allow; returns whether the search goes on."""
        return False

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
        return self._handed_out(Propose(self.asked, request), context)

    def _evaluate(self, rows: Sequence[Row], context: Any = None) -> Evaluate:
        self._rows += len(rows)
        return self._handed_out(Evaluate(self.asked, tuple(rows)), context)

    def _handed_out(self, work: W, context: Any) -> W:
        self.asked += 1
        self._pending[work.id] = (work, context)
        return work

    def _all_asked(self) -> bool:
        """Whether every row that the rules admit was asked; not where they are too many to tell."""
        query, problem = self.case.query, self.case.problem
        every = problem.rules.every_row(query, ROWS_WITHOUT_LIMIT)
        known = {query, *self.archive.answered}
        return every is not None and all(
            row in known or problem.violations(query, row) for row in every
        )

    def _end(self, kind: OutcomeKind, reason: str) -> None:
        self.ending = Ending(kind, reason)

    @abstractmethod
    def _next(self) -> Work | None:
        """Return the next work, by `_propose` or `_evaluate`, or call `_end`."""

    def _on_reply(self, context: Any, reply: Reply) -> None:
        raise NotImplementedError

    @abstractmethod
    def _on_answers(self, context: Any, rows: Sequence[Row], answers: Answers) -> None:
        """Learn from the oracle's answers."""
