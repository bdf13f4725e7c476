"""Recombine: the LLM names edits, and their combinations are searched without it.

LLM calls are expensive and oracle rows are cheap. So the LLM fills a library of single edits; a
surrogate learns from every answer of the oracle what each edit does; and combinations go to the
oracle by their chance of a yes, how little they change, and how different they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from waysout.domain.memory import Past
from waysout.domain.oracle import Answers
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Edit, Row
from waysout.search.base import Case, Method, Search, least, within
from waysout.search.candidates import DECIMALS, LeanOptions, Ranking, fingerprint, make_pool
from waysout.search.library import Combo, Combos, EditLibrary, Matrix
from waysout.search.naming import Ask, Naming, NamingSearch
from waysout.search.surrogate import Guess, Kind, LogitScale, surrogate
from waysout.search.work import Work

if TYPE_CHECKING:
    from waysout.search.compress import History

Pruning = Literal["none", "gzip", "rlbwt", "repair"]
AskAbout = Literal["query", "promising", "both"]

_PARENTS = 12
_POOLS = 20  # rules may forbid all of one
_POOL_PER_ROW = 20  # combinations to choose from for each that is asked
# A batch is at most a twentieth of the rows before it: five rows teach little when thousands have
# answered, and solving the surrogate for every five would make long searches slow.
_BATCH_SHARE = 20
_HOPELESS = 1e-9  # a chance so small that only quality still counts


@dataclass(frozen=True)
class Recombine(Method):
    """Searches combinations of edits.

    ``edits`` is how many edits an LLM call asks for. Calls end after ``patience`` in a row brought
    nothing new. ``own_edits`` adds edits that no LLM named, one for each bin of each feature.
    ``ask`` says when the LLM is asked: ``"throughout"``, at the pace of the rows; or only when
    ``"stuck"``: with B calls and N rows, when N ÷ (B + 1) rows in a row, since the last option and
    the last reply, were all refused, and when there is nothing left to combine. A search that never
    finds anything spends its calls all the same. ``ask_about`` says which row the LLM is asked
    about: the query, the most promising row so far, or both in turn; ``remind`` tells it what it
    has named already.

    ``surrogate`` guesses what the oracle will say, as the mean of ``draws`` guesses (0: its best
    guess alone). With ``thompson``, every second batch until the first option follows a single
    guess. ``quality`` and ``novelty`` are the weights of few and small changes and of sets of
    features that were tried less often; ``needless`` and ``unnamed`` count against rows that only
    add to an option found, and against each edit that no LLM named. ``pruning`` drops combinations
    whose key adds less than ``threshold`` to those asked before. ``batch`` rows are asked at once,
    later a twentieth of those asked before.

    >>> import waysout
    >>> data = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["credit_score"] / 1400, data.card)
    >>> problem = waysout.Problem.from_card(data.card, oracle, training=data.rows)
    >>> limits = {"calls": 3, "oracle_rows": 20}
    >>> method = waysout.Recombine(edits=5)
    >>> result = waysout.find(problem, data.rows[828], method=method, llm="simulated:1", **limits)
    >>> result.settings["method"], result.ledger.llm_calls
    ('recombine', 3)
    """

    name: ClassVar[str] = "recombine"
    needs_llm: ClassVar[bool] = True
    needs_calls: ClassVar[bool] = False

    # Twice the paper's K: the prompt costs more tokens than the reply, and a library wants breadth.
    edits: int = within(1, 50, 10)
    patience: int = least(1, 2)
    own_edits: bool = True
    ask: Ask = "throughout"
    ask_about: AskAbout = "query"
    remind: bool = True
    temperature: float = least(0, 0.7)
    surrogate: Kind = "linear"
    draws: int = within(0, 1000, 16)
    thompson: bool = False
    quality: float = least(0, 0.2)
    novelty: float = least(0, 0.2)
    needless: float = least(0, 0.3)
    # Named edits have a reason; small on purpose, to decide between near equals only.
    unnamed: float = least(0, 0.05)
    pruning: Pruning = "none"
    threshold: float = least(0, 0.01)
    batch: int = least(1, 5)

    def edits_a_call(self, k: int) -> int:
        """Return ``edits``; ``k`` only sets the rows, so that methods compare at equal rows."""
        return self.edits

    def start(self, case: Case) -> Search:
        """Return a search whose draws follow from the seed and the query."""
        return RecombineSearch(case.with_row_limit(), self)


@dataclass(frozen=True, slots=True)
class _Trial:
    """A combination on its way to the oracle."""

    combo: Combo
    row: Row
    key: str


class RecombineSearch(NamingSearch):
    """Fills the library, asks for batches of combinations, and learns from the answers."""

    def __init__(self, case: Case, method: Recombine) -> None:
        naming = Naming(
            method.edits, method.temperature, method.batch, method.patience, method.ask,
            method.remind,
        )  # fmt: skip
        super().__init__(case, naming)
        self.method = method
        self._rng = case.generator()
        self.library = EditLibrary(case.problem, case.query)
        if method.own_edits:
            self.library.add_own(self._rng)
        self._surrogate = surrogate(method.surrogate, self.library)
        self._history: History | None = None
        if method.pruning != "none":
            from waysout.search.compress import History, compressor

            self._history = History(compressor(method.pruning))
        self._scale = LogitScale(case)
        self._batches = 0
        self._answered: list[_Trial] = []
        self._logits: list[float] = []
        self._valid: list[bool] = []
        self._lean = LeanOptions()
        self._seen: set[int] = set()  # by fingerprint, as is the next
        self._tried: Counter[int] = Counter()  # sets of levers, as combinations of 0 and 1
        if case.past:
            self._resume(case.past)

    def _resume(self, past: Past) -> None:
        """Learn from an earlier search for this person, as far as today's rules allow.

        The edits of the answered rows join the library too, or nothing could be learned from them.
        """
        levers = self.case.problem.rules.levers(self.case.query)
        for edit in past.edits:
            lever = levers[edit.feature]
            if lever.is_open and lever.admits(edit.value):
                self._is_new(edit)
                self.library.add(edit)
        trials = []
        for row in self._recalled:
            combo = self.library.combo(row)
            if combo is not None:
                self._note_tried(combo)
                trials.append(_Trial(combo, row, self.case.problem.key(row)))
        if trials:
            self._learn(trials, past.answers([trial.row for trial in trials]))

    # Asking ------------------------------------------------------------------------------------

    def _nothing_left(self) -> str:
        """Return why there is nothing left to ask."""
        if not len(self.library):
            return "no edit is known"
        if not self.archive.answered:
            return "none of the combinations that were made keeps the rules"
        if self._all_asked():
            return "every combination within reach was asked"
        return "no new combination of the known edits was left that the rules allow"

    def _next(self) -> Work | None:
        if self.waiting:
            return None
        if self.rows_left < 1:
            rows = self.case.budget.oracle_rows
            self._over(OutcomeKind.BUDGET_SPENT, f"all {rows} oracle rows are spent")
            return None
        work = self._named_edits() if self._is_time_to_ask() else None
        work = work or self._more_rows() or self._named_edits()
        if work is None and self.method.own_edits and self.library.add_drawn(self._rng):
            work = self._more_rows()
        if work is None:
            self._over(OutcomeKind.EXHAUSTED, self._nothing_left())
        return work

    def _more_rows(self) -> Work | None:
        trials = self._batch()
        self._batches += 1
        return self._evaluate([trial.row for trial in trials], trials) if trials else None

    def _named_edits(self) -> Work | None:
        """Ask the LLM about the query, or about the most promising row so far."""
        method, row = self.method, self.case.query
        about_query = method.ask_about == "query" or (
            method.ask_about == "both" and self._replies % 2 == 0
        )
        if self._answered and not about_query:
            row = self._answered[int(np.argmax(self._promise()))].row
        return self._more_edits(row)

    def _add_named(self, edit: Edit) -> str | None:
        return self.library.add(edit)

    # Choosing what to ask the oracle -----------------------------------------------------------

    def _batch(self) -> list[_Trial]:
        """Return the next combinations to ask; an empty list if no pool had a new one."""
        if not len(self.library):
            return []
        most = int(min(max(self.method.batch, len(self._answered) // _BATCH_SHARE), self.rows_left))
        guess = self._surrogate.guess(self.method.draws, self._rng)
        tables = self.library.tables
        alone = np.zeros((len(tables.slot), len(tables.sizes)), dtype=np.int64)
        alone[np.arange(len(alone)), tables.slot] = tables.number
        worth = guess(alone)[:, 0]
        for dry in range(_POOLS):
            # Where nothing new is near, combinations of ever more levers are looked at.
            parents = self._parents(most)
            combos, prints = make_pool(tables, parents, worth, self._rng, extra=dry)
            fresh = [found not in self._seen for found in prints.tolist()]
            combos = combos[np.array(fresh, dtype=np.bool_)]
            trials = self._best(combos, guess, most) if len(combos) else []
            if trials:
                return trials
        return []

    def _parents(self, most: int) -> Combos:
        """Return the combinations to go on from: none, the most promising, some that work."""
        wanted = max(_PARENTS, most * _POOL_PER_ROW // len(self.library))
        numbers = np.argsort(-self._promise(), kind="stable")[: wanted // 2].tolist()
        valid = np.flatnonzero(self._valid)
        if len(valid):
            drawn = self._rng.choice(valid, min(wanted // 2, len(valid)), replace=False)
            numbers += drawn.tolist()
        return self.library.padded([(), *(self._answered[i].combo for i in numbers)])

    def _best(self, combos: Combos, guess: Guess, most: int) -> list[_Trial]:
        """Rank combinations, and return the best that can be asked at all."""
        method = self.method
        chances = self._scale.chances(self._scale.start + guess(combos))
        # The mean of the chances, not the chance at the mean, which would take a guess for
        # knowledge; nor one draw's: rows are few, and once something works a bet costs more than
        # it teaches.
        chance = chances[:, 0] if self._is_bold() else chances.mean(axis=1)
        moved = np.count_nonzero(combos, axis=1)
        quality = -np.log1p(self.library.distances(combos)) - np.log1p(moved)
        scores = (
            np.log(chance + _HOPELESS)
            + method.quality * quality
            - method.unnamed * self.library.unnamed(combos)
        )
        ranking = Ranking(
            combos, scores, most=most, novelty=method.novelty, tried=self._tried,
            needless=method.needless, lean=self._lean,
        )  # fmt: skip
        trials: dict[str, _Trial] = {}  # by key
        while len(trials) < most and (combo := ranking.pop()) is not None:
            self._seen.add(fingerprint(combo))
            trial = self._trial(combo)
            if trial is not None and trial.key not in trials:
                self._note_tried(combo)
                trials[trial.key] = trial
        return list(trials.values())

    def _is_bold(self) -> bool:
        """Whether to follow a single guess: every second batch until something is found."""
        return self.method.thompson and not len(self.archive) and self._batches % 2 == 0

    def _note_tried(self, combo: Combo) -> None:
        self._seen.add(fingerprint(combo))
        self._tried[fingerprint([choice > 0 for choice in combo])] += 1

    def _trial(self, combo: Combo) -> _Trial | None:
        """Return a combination as a row to ask, or count why it cannot be asked."""
        problem, query = self.case.problem, self.case.query
        row = self.library.row(combo)
        key = problem.key(row)
        if key in self.archive.asked or key == self.archive.query_key:
            return None
        broken = problem.violations(query, row)
        if broken:
            self.archive.rejections[f"breaks rule: {broken[0].rule}"] += 1
            return None
        if self._history is not None and self._history.gain(key) < self.method.threshold:
            self.archive.pruned += 1
            return None
        return _Trial(combo, row, key)

    def _promise(self) -> Matrix:
        """Return how near each answered row is to a yes, and with how few changes."""
        chances = self._scale.chances(np.array(self._logits))
        near = np.where(np.array(self._valid, dtype=np.bool_), 1.0, chances)
        moved = [np.count_nonzero(trial.combo) for trial in self._answered]
        found: Matrix = np.round(near / (1.0 + np.array(moved)), DECIMALS)
        return found

    # Taking the oracle's answers in ------------------------------------------------------------

    def _on_answers(self, trials: Sequence[_Trial], rows: Sequence[Row], answers: Answers) -> None:
        self._learn(trials, answers)
        valid_now = self._valid[-len(trials) :]
        self._barren = 0 if any(valid_now) else self._barren + len(trials)
        said = zip(answers.probability.tolist(), valid_now, strict=True)
        for trial, (chance, valid) in zip(trials, said, strict=True):
            edits = self.library.edits(trial.combo)
            reasons = tuple(f"{edit.feature}: {edit.reason}" for edit in edits if edit.reason)
            self.archive.take(trial.row, trial.key, chance, valid, reasons)

    def _learn(self, trials: Sequence[_Trial], answers: Answers) -> None:
        """Learn from answers of this search or an earlier one."""
        met = self.case.problem.goal.met(answers).tolist()
        for trial, chance, yes in zip(trials, answers.probability.tolist(), met, strict=True):
            valid = self.archive.is_valid(trial.row, yes)
            self._answered.append(trial)
            self._logits.append(self._scale.logit(chance, yes))
            self._valid.append(valid)
            if valid:
                self._lean.add(trial.combo)
            if self._history is not None:
                self._history.append(trial.key)
        combos = self.library.padded(trial.combo for trial in trials)
        gained = np.array(self._logits[-len(trials) :]) - self._scale.start
        self._surrogate.learn(combos, gained)
