"""The one loop of every tree search: select, ask the LLM, prune, ask the oracle, reward, back up.

A method binds its parts (a reward, a pruner, a hint) and calls the loop; none has one of its own.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from waysout.domain.oracle import Answers
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
from waysout.errors import InputError
from waysout.llm.base import Reply, Request
from waysout.prompts.render import Tag
from waysout.search.base import Case, Method, Search, least
from waysout.search.memory import MEMORY, Remembered, recall, records
from waysout.search.prune.base import EditCandidate, Pruner, Verdict
from waysout.search.reward import Evidence, Reward
from waysout.search.tree import EXPLORATION, ROOT, Attempt, Node, Tree, deepest_on_path, leaf
from waysout.search.work import Work

Hint = Callable[[Tree, int, list[Attempt]], tuple[str, ...]]
"""Names the features an LLM should rather leave alone."""

DEPTH = 5


@dataclass(frozen=True)
class TreeMethod(Method):
    """The settings that all tree searches share.

    Nodes at ``depth`` are evaluated but never expanded. ``in_flight`` is how many requests of one
    tree may be under way at once; only with one at a time does a search repeat exactly, because
    otherwise the order of arrival decides.
    """

    needs_llm: ClassVar[bool] = True

    depth: int = least(1, DEPTH)
    exploration: float = least(0, EXPLORATION)
    memory: int = least(0, MEMORY)
    remembered: Remembered = "attempts"
    temperature: float = least(0, 0.7)
    in_flight: int = least(1, 1)


@dataclass
class _Trial:
    """A candidate, the pruner's verdict on it, and the oracle's (unless it is pruned before)."""

    candidate: EditCandidate
    verdict: Verdict
    chance: float | None = None
    valid: bool = False

    @property
    def tag(self) -> Tag:
        """The outcome, as a prompt shows it."""
        if not self.verdict.kept:
            return Tag.PRUNED
        # An approved row that breaks a rule is tagged as rejected.
        return Tag.APPROVED if self.valid else Tag.REJECTED


@dataclass(frozen=True)
class _Batch:
    """The candidates of one reply, in its order."""

    node: int
    trials: Sequence[_Trial]

    @property
    def kept(self) -> list[_Trial]:
        """Those that go to the oracle."""
        return [trial for trial in self.trials if trial.verdict.kept]


class TreeSearch(Search):
    """Grows a tree of candidates from the query, with an LLM for its moves.

    ``widen`` gives nodes above the depth limit more children once every leaf lies at it; otherwise
    such a tree is exhausted. ``patience`` is how many replies of a leaf may be pruned whole before
    it is given up (0: any number); when no other leaf is left, the root is expanded once more.
    """

    def __init__(
        self,
        case: Case,
        method: TreeMethod,
        *,
        reward: Reward,
        pruner: Pruner | None = None,
        hint: Hint = lambda tree, node, attempts: (),
        widen: bool = False,
        patience: int = 0,
    ) -> None:
        super().__init__(case)
        if case.proposer is None:
            raise InputError("this method asks an LLM: pass one (llm=…)")
        self.method = method
        self.proposer = case.proposer
        self.tree = Tree(case.query, self.archive.query_key, case.probability)
        self._reward, self._pruner, self._hint, self._widen = reward, pruner, hint, widen
        self._patience = patience
        self._pruned_whole: Counter[int] = Counter()  # replies, by node
        self._batches: deque[_Batch] = deque()

    # Asking ------------------------------------------------------------------------------------

    def _next(self) -> Work | None:
        if self._batches:
            batch = self._batches.popleft()
            return self._evaluate([trial.candidate.row for trial in batch.kept], batch)
        if self.tree[ROOT].waiting >= self.method.in_flight:
            return None
        if self.calls_left < 1 or self.rows_left < 1:
            if not self.waiting:
                budget = self.case.budget
                calls, rows = f"{budget.llm_calls} LLM calls", f"{budget.oracle_rows} oracle rows"
                what = calls if self.calls_left < 1 else rows
                self._end(OutcomeKind.BUDGET_SPENT, f"all {what} are spent")
            return None
        while (node := self._select()) is not None:
            request = self._request(node)
            if request is not None:
                self.tree.wait(node.id, 1)
                return self._propose(request, node.id)
            if node.closed:
                break  # it was to be widened, and nothing may be edited there
            self.tree.close(node.id)
        if not self.waiting:
            expanded = "every row of the tree was expanded, as deep as it may grow"
            nothing = "nothing that was proposed could be asked"
            self._end(OutcomeKind.EXHAUSTED, expanded if self.archive.answered else nothing)
        return None

    def _select(self) -> Node | None:
        found = leaf(self.tree, self.method.exploration)
        if found is None and self._widen and not self.waiting:
            last = deepest_on_path(self.tree, self.method.depth, self.method.exploration)
            return last if last.children else None
        if found is None and self._given_up and not self.waiting:
            found = self.tree[ROOT]
            found.closed = False
        return found

    @property
    def _given_up(self) -> bool:
        """Whether a leaf was given up though it could have been expanded."""
        return 0 < self._patience <= max(self._pruned_whole.values(), default=0)

    def _request(self, node: Node) -> Request | None:
        case, method = self.case, self.method
        attempts = recall(self.tree, node.id, method.memory, method.remembered)
        # Our template remembers whole changes, the paper's the edit alone.
        whole = self.proposer.style.template == "waysout"
        history = records(case.problem.schema, case.query, attempts, whole=whole)
        avoid = self._hint(self.tree, node.id, attempts)
        return self.proposer.request(
            case.query, node.row, k=case.k, history=history, avoid=avoid,
            temperature=method.temperature, seed=case.seed, draw=self._next_draw,
        )  # fmt: skip

    # Taking a reply in -------------------------------------------------------------------------

    def _on_reply(self, node: int, reply: Reply) -> None:
        problem, query, row = self.case.problem, self.case.query, self.tree[node].row
        proposal = self.proposer.read(reply, query, row, k=self.case.k)
        self.archive.generated += len(proposal.edits) + len(proposal.rejections)
        self.archive.rejections.update(proposal.counts())
        self.named += proposal.edits
        candidates = []
        for edit in proposal.edits:
            changed = problem.rules.apply(row, {edit.feature: edit.value})
            key, distance = problem.key(changed), problem.distance(query, changed)
            count = problem.rules.count_changes(query, changed)
            candidates.append(EditCandidate(edit, changed, key, distance, count))
        verdicts = [Verdict(kept=True)] * len(candidates)
        if self._pruner is not None and not self._pruner.after_oracle:
            verdicts = self._pruner.judge(self.tree, node, candidates)
        # Rows that batches of other replies will take are not to be had.
        left = self.rows_left - sum(len(batch.kept) for batch in self._batches)
        trials = []
        for trial in map(_Trial, candidates, verdicts):
            left -= trial.verdict.kept
            if trial.verdict.kept and left < 0:
                self.archive.rejections["beyond the row budget"] += 1
            else:
                trials.append(trial)
        batch = _Batch(node, trials)
        if batch.kept:
            self._batches.append(batch)
        else:
            # Nothing to back up: the same leaf is asked again, with another draw, and with these
            # attempts in its prompt if there are any; until patience ends.
            self._settle(batch)
            self._pruned_whole[node] += bool(trials)
            spent = 0 < self._patience == self._pruned_whole[node]
            if spent and not self.tree[node].children:
                self.tree.close(node)

    # Taking the oracle's answers in ------------------------------------------------------------

    def _on_answers(self, batch: _Batch, rows: Sequence[Row], answers: Answers) -> None:
        trials = batch.kept
        for trial, judged in zip(trials, self.archive.judge(rows, answers), strict=True):
            trial.chance, trial.valid = judged
        if self._pruner is not None and self._pruner.after_oracle:
            candidates, valid = [t.candidate for t in trials], [t.valid for t in trials]
            verdicts = self._pruner.judge(self.tree, batch.node, candidates, valid)
            for trial, verdict in zip(trials, verdicts, strict=True):
                trial.verdict = verdict
        self._settle(batch)

    def _settle(self, batch: _Batch) -> None:
        """Record all candidates, in the reply's order, and grow the tree by those that are kept."""
        for trial in batch.trials:
            edit, row = trial.candidate.edit, trial.candidate.row
            self.tree.note(batch.node, edit, row, trial.tag, trial.chance)
        proposed = Counter((a.edit.feature, a.edit.value) for a in self.tree[batch.node].attempts)
        for trial in batch.trials:
            self.archive.pruned += not trial.verdict.kept
            if trial.chance is not None:
                edit = trial.candidate.edit
                share = proposed[(edit.feature, edit.value)] / proposed.total()
                self._grow(batch.node, trial, trial.chance, share)
        self.tree.wait(batch.node, -1)

    def _grow(self, node: int, trial: _Trial, chance: float, share: float) -> None:
        candidate = trial.candidate
        # Rewarded before it joins the archive: after that no valid row would be new.
        worth, novelty = self.case.problem.goal.worth(chance), self.archive.novelty(candidate.row)
        evidence = Evidence(
            probability=worth, approved=trial.valid, distance=candidate.distance,
            changes=candidate.changes, novelty=novelty, gain=trial.verdict.gain, agreement=share,
        )  # fmt: skip
        reward = self._reward(evidence)
        reasons = self._reasons(node, candidate)
        self.archive.take(candidate.row, candidate.key, chance, trial.valid, reasons)
        if not trial.verdict.kept:
            return  # merged with a sibling after the oracle answered: found, but no node
        child = self.tree.add(
            node, candidate.edit, candidate.row, candidate.key, chance, trial.valid
        )
        self.tree.back_up(child, reward)
        if self.tree[child].depth >= self.method.depth:
            self.tree.close(child)

    def _reasons(self, node: int, candidate: EditCandidate) -> tuple[str, ...]:
        """Return the reasons given for the changes that a candidate still has."""
        schema, row = self.case.problem.schema, candidate.row
        changed = schema.changed(self.case.query, row)
        edits = [*(above.edit for above in self.tree.path(node)), candidate.edit]
        standing = {
            edit.feature: edit.reason
            for edit in edits
            if edit and edit.feature in changed and row[schema.index(edit.feature)] == edit.value
        }
        return tuple(f"{feature}: {reason}" for feature, reason in standing.items() if reason)
