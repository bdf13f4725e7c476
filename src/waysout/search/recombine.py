"""Recombine: the LLM names edits, and their combinations are searched without it.

LLM calls are dear and oracle rows are cheap. So the LLM fills a library of single edits; a
surrogate learns from every answer of the oracle what each edit does; and combinations go to the
oracle by their chance of a yes, how little they change, and how different they are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from waysout.domain.edit import Edit
from waysout.domain.memory import Past
from waysout.domain.oracle import Answers
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
from waysout.llm.base import Reply, Request
from waysout.search.base import Case, Method, Search, least, within
from waysout.search.candidates import MOST_MOVED, fingerprints, make_pool
from waysout.search.compress import History, compressor
from waysout.search.library import Combo, Combos, EditLibrary, Matrix
from waysout.search.ranking import DECIMALS, LeanOptions, Ranking
from waysout.search.scale import LogitScale
from waysout.search.surrogate import Guess, Kind, surrogate
from waysout.search.work import Propose, Work

Pruning = Literal["none", "gzip", "rlbwt", "repair"]
Ask = Literal["throughout", "stuck"]
AskAbout = Literal["query", "promising", "both"]

_PARENTS = 12
_POOLS = 20  # rules may forbid all of one
_POOL_PER_ROW = 20  # combinations to choose from for each that is asked
_BATCH_SHARE = 20  # a batch is at most a twentieth of what was asked before it
_HOPELESS = 1e-9  # a chance so small that only quality still tells


@dataclass(frozen=True)
class Recombine(Method):
    """Searches combinations of edits.

    ``edits`` is how many edits an LLM call asks for. Calls end when ``patience`` of them in a row
    brought nothing new. ``own_edits`` adds edits that nobody named, one for each bin of each
    feature. ``ask`` says when the LLM is asked: ``"throughout"``, at the pace of the rows; or only
    when ``"stuck"``: with B calls and N rows, when N ÷ (B + 1) rows in a row, since the last option
    and the last reply, were all refused, and when there is nothing left to combine. A search that
    never finds anything spends its calls all the same. ``ask_about`` says of which row the LLM is
    asked: the query, the most promising row so far, or both in turn; ``remind`` tells it what it
    has named already.

    ``surrogate`` guesses what the oracle will say, as the mean of ``draws`` guesses (0: its best
    guess alone). With ``thompson``, every second batch until the first option follows a single
    guess. ``quality`` and ``novelty`` are the weights of few and small changes and of sets of
    features that were tried less often; ``needless`` and ``unnamed`` count against rows that only
    add to an option found, and against each edit that nobody named. ``pruning`` drops combinations
    whose key adds less than ``threshold`` to those asked before. ``batch`` rows are asked at once,
    later a twentieth of those asked before.
    """

    name: ClassVar[str] = "recombine"
    needs_llm: ClassVar[bool] = True
    needs_calls: ClassVar[bool] = False

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
    unnamed: float = least(0, 0.05)
    pruning: Pruning = "none"
    threshold: float = least(0, 0.01)
    batch: int = least(1, 5)

    def edits_a_call(self, k: int) -> int:
        """Return ``edits``: here ``k`` only sets the rows."""
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


class RecombineSearch(Search):
    """Fills the library, asks for batches of combinations, and learns from the answers."""

    def __init__(self, case: Case, method: Recombine) -> None:
        super().__init__(case)
        self.method = method
        self._rng = case.generator()
        self.library = EditLibrary(case.problem, case.query)
        if method.own_edits:
            self.library.add_own(self._rng)
        self._surrogate = surrogate(method.surrogate, self.library)
        self._history = None if method.pruning == "none" else History(compressor(method.pruning))
        self._scale = LogitScale(case)
        self._named: dict[str, Edit] = {}  # by the key of the query so edited
        self._replies = self._in_vain = self._batches = 0
        self._barren = 0  # rows asked since the last option and the last reply
        self._refused = False
        self._answered: list[_Trial] = []
        self._logits: list[float] = []
        self._valid: list[bool] = []
        self._lean = LeanOptions()
        self._seen: set[int] = set()  # by fingerprint, as is the next
        self._tried: Counter[int] = Counter()  # sets of levers, as combinations of 0 and 1
        if case.past:
            self._go_on_from(case.past)

    def _go_on_from(self, past: Past) -> None:
        """Combine what was named before, and learn from what was answered, as far as rules allow.

        The edits of what was answered join the library too, or nothing could be learned from it.
        """
        levers = self.case.problem.rules.levers(self.case.query)
        for edit in past.edits:
            lever = levers[edit.feature]
            if lever.is_open and lever.admits(edit.value):
                self._is_new(edit)
                self.library.add(edit)
        trials = [t for row in self._recalled if (t := self._past_trial(row)) is not None]
        if trials:
            self._heed(trials, past.answers([trial.row for trial in trials]))

    def _past_trial(self, row: Row) -> _Trial | None:
        """Return a row of before as a combination, where it is one."""
        combo = self.library.combo(row)
        if combo is None:
            return None
        self._note_tried(combo)
        return _Trial(combo, row, self.case.problem.key(row))

    # Asking ------------------------------------------------------------------------------------

    def _next(self) -> Work | None:
        if self.waiting:
            return None
        if self.rows_left < 1:
            rows = self.case.budget.oracle_rows
            self._over(OutcomeKind.BUDGET_SPENT, f"all {rows} oracle rows are spent")
            return None
        work = self._more_edits() if self._is_time_to_ask() else None
        work = work or self._more_rows() or self._more_edits() or self._drawn_rows()
        if work is None:
            asked = "every combination within reach was asked"
            self._over(OutcomeKind.EXHAUSTED, asked if len(self.library) else "no edit is known")
        return work

    def _more_rows(self) -> Work | None:
        trials = self._batch()
        self._batches += 1
        return self._evaluate([trial.row for trial in trials], trials) if trials else None

    def _drawn_rows(self) -> Work | None:
        """Return rows of values drawn at random, once all that is known was asked."""
        drawn = self.method.own_edits and self.library.add_drawn(self._rng)
        return self._more_rows() if drawn else None

    def _more_edits(self) -> Work | None:
        if not self._may_ask():
            return None
        row = self._asked_about()
        request = self._request(row)
        return None if request is None else self._propose(request, row)

    def _over(self, kind: OutcomeKind, reason: str) -> None:
        if self._stale:
            reason += f"; {self._in_vain} LLM calls in a row brought nothing new"
        elif self._refused:
            reason += "; the limit of tokens or money allowed no further LLM call"
        self._end(kind, reason)

    def refuse(self, work: Work) -> bool:
        """Go on without the LLM where no call can be paid any more: rows are still to be had."""
        if not isinstance(work, Propose) or self._pending.pop(work.id, None) is None:
            return False
        self._calls -= 1
        self._refused = True
        return True

    @property
    def _stale(self) -> bool:
        return self._in_vain >= self.method.patience

    def _may_ask(self) -> bool:
        """Whether the LLM may be asked for more edits, and still brings some."""
        barred = self.case.proposer is None or self._refused or self._stale
        return not barred and self.calls_left >= 1

    def _is_time_to_ask(self) -> bool:
        """Whether the rows are as far spent as the calls: edits that come late want rows too.

        Or, as ``ask`` may say, whether the rows of late were all asked in vain.
        """
        if not self._may_ask():
            return False
        rows, calls = self._rows + self.rows_left, self._replies + self.calls_left
        if math.isinf(calls):
            # An LLM that never repeats itself would be asked for ever: one call for each batch.
            calls = max(1.0, rows / self.method.batch)
        if self.method.ask == "stuck":
            return self._barren >= rows / (calls + 1)
        return self._rows / rows >= self._replies / calls

    def _request(self, row: Row) -> Request | None:
        case, proposer = self.case, self.case.proposer
        assert proposer is not None
        return proposer.request(
            case.query,
            row,
            k=self.method.edits,
            named=tuple(self._named.values()) if self.method.remind else (),
            temperature=self.method.temperature,
            seed=case.seed,
            draw=self._next_draw,
        )

    def _asked_about(self) -> Row:
        """Return the row of which the LLM is asked next."""
        about = self.method.ask_about
        if about == "query" or not self._answered or (about == "both" and self._replies % 2 == 0):
            return self.case.query
        return self._answered[int(np.argmax(self._promise()))].row

    # Taking a reply in -------------------------------------------------------------------------

    def _on_reply(self, row: Row, reply: Reply) -> None:
        proposer = self.case.proposer
        assert proposer is not None
        self._replies += 1
        self._barren = 0
        proposal = proposer.read(reply, self.case.query, row, k=self.method.edits)
        self.archive.generated += len(proposal.edits) + len(proposal.rejections)
        self.archive.rejections.update(proposal.counts())
        self.named += proposal.edits
        new = [edit for edit in proposal.edits if self._is_new(edit)]
        self._in_vain = 0 if new else self._in_vain + 1
        refused = (self.library.add(edit) for edit in proposal.edits)
        self.archive.rejections.update(why for why in refused if why)

    def _is_new(self, edit: Edit) -> bool:
        """Note what was named; returns whether the key tells it from all that was named before."""
        problem, query = self.case.problem, self.case.query
        key = problem.key(problem.rules.apply(query, {edit.feature: edit.value}))
        known = key in self._named or key == self.archive.query_key
        self._named.setdefault(key, edit)
        return not known

    # Choosing what to ask the oracle -----------------------------------------------------------

    def _batch(self) -> list[_Trial]:
        """Return the next combinations to ask; none where none is left, as far as was looked."""
        if not len(self.library):
            return []
        most = int(min(max(self.method.batch, len(self._answered) // _BATCH_SHARE), self.rows_left))
        guess = self._surrogate.guess(self.method.draws, self._rng)
        for dry in range(_POOLS):
            # Where nothing new is near, combinations of ever more levers are looked at.
            combos = self._fresh_pool(guess, most, MOST_MOVED + dry)
            trials = self._take(self._ranked(combos, guess, most), most) if len(combos) else []
            if trials:
                return trials
        return []

    def _fresh_pool(self, guess: Guess, most: int, most_moved: int) -> Combos:
        tables, worth = self.library.tables, self._worth_alone(guess)
        combos, prints = make_pool(tables, self._parents(most), worth, self._rng, most_moved)
        fresh = [found not in self._seen for found in prints.tolist()]
        return combos[np.array(fresh, dtype=np.bool_)]

    def _ranked(self, combos: Combos, guess: Guess, most: int) -> Ranking:
        chances = self._scale.chances(self._scale.start + guess(combos))
        chance = chances[:, 0] if self._is_bold() else chances.mean(axis=1)
        moved = np.count_nonzero(combos, axis=1)
        quality = -np.log1p(self.library.distances(combos)) - np.log1p(moved)
        return Ranking(
            combos,
            np.log(chance + _HOPELESS)
            + self.method.quality * quality
            - self.method.unnamed * self.library.unnamed(combos),
            most=most,
            novelty=self.method.novelty,
            tried=self._tried,
            needless=self.method.needless,
            lean=self._lean,
        )

    def _is_bold(self) -> bool:
        """Whether to follow a single guess: every second batch until something is found."""
        return self.method.thompson and not len(self.archive) and self._batches % 2 == 0

    def _take(self, ranking: Ranking, most: int) -> list[_Trial]:
        """Take the best of a ranking that can be asked at all."""
        trials: dict[str, _Trial] = {}  # by key
        while len(trials) < most and (combo := ranking.pop()) is not None:
            self._seen.add(_fingerprint(combo))
            trial = self._trial(combo)
            if trial is not None and trial.key not in trials:
                self._note_tried(combo)
                trials[trial.key] = trial
        return list(trials.values())

    def _note_tried(self, combo: Combo) -> None:
        self._seen.add(_fingerprint(combo))
        self._tried[_fingerprint([choice > 0 for choice in combo])] += 1

    def _trial(self, combo: Combo) -> _Trial | None:
        """Return a combination as a row to ask, or count why it is none."""
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

    def _worth_alone(self, guess: Guess) -> Matrix:
        """Return what each choice does alone, by one guess."""
        tables = self.library.tables
        alone = np.zeros((len(tables.slot), len(tables.sizes)), dtype=np.int64)
        alone[np.arange(len(alone)), tables.slot] = tables.number
        return guess(alone)[:, 0]

    def _parents(self, most: int) -> Combos:
        """Return the combinations to go on from: none, the most promising, some that work."""
        wanted = max(_PARENTS, most * _POOL_PER_ROW // len(self.library))
        numbers = np.argsort(-self._promise(), kind="stable")[: wanted // 2].tolist()
        valid = np.flatnonzero(self._valid)
        if len(valid):
            drawn = self._rng.choice(valid, min(wanted // 2, len(valid)), replace=False)
            numbers += drawn.tolist()
        return self.library.padded([(), *(self._answered[i].combo for i in numbers)])

    def _promise(self) -> Matrix:
        """Return how near each answered row is to a yes, and with how few changes."""
        chances = self._scale.chances(np.array(self._logits))
        near = np.where(np.array(self._valid, dtype=np.bool_), 1.0, chances)
        moved = [np.count_nonzero(trial.combo) for trial in self._answered]
        found: Matrix = np.round(near / (1.0 + np.array(moved)), DECIMALS)
        return found

    # Taking the oracle's answers in ------------------------------------------------------------

    def _on_answers(self, trials: Sequence[_Trial], rows: Sequence[Row], answers: Answers) -> None:
        self._heed(trials, answers)
        valid_now = self._valid[-len(trials) :]
        self._barren = 0 if any(valid_now) else self._barren + len(trials)
        said = zip(answers.probability.tolist(), valid_now, strict=True)
        for trial, (chance, valid) in zip(trials, said, strict=True):
            self.archive.take(trial.row, trial.key, chance, valid, self._reasons(trial))

    def _heed(self, trials: Sequence[_Trial], answers: Answers) -> None:
        """Learn from answers, be they of today or of before."""
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

    def _reasons(self, trial: _Trial) -> tuple[str, ...]:
        edits = self.library.edits(trial.combo)
        return tuple(f"{edit.feature}: {edit.reason}" for edit in edits if edit.reason)


def _fingerprint(combo: Sequence[int]) -> int:
    return int(fingerprints(np.array([combo], dtype=np.int64))[0])
