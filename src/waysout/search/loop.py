"""The one loop of every tree search: select, ask the LLM, prune, ask the oracle, reward, back up.

A method is a choice of `Parts`; none has a loop of its own.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from waysout.domain.edit import Edit
from waysout.domain.oracle import Answers
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
from waysout.errors import InputError
from waysout.llm.base import Reply, Request
from waysout.prompts.render import Tag
from waysout.search.base import Case, Method, Search, least
from waysout.search.memory import MEMORY, Remembered, recall, records
from waysout.search.prune.base import Candidate, Pruner, Verdict
from waysout.search.reward import Evidence, Reward
from waysout.search.select import EXPLORATION, deepest_on_path, leaf
from waysout.search.tree import ROOT, Attempt, Node, Tree
from waysout.search.work import Work

Hint = Callable[[Tree, int, list[Attempt]], tuple[str, ...]]
DEPTH = 5


@dataclass(frozen=True)
class Parts:
    """What a tree search is made of.

    ``hint`` names the features an LLM should rather leave alone. ``widen`` gives nodes above the
    depth limit more children once every leaf lies at it; else such a tree is exhausted.
    ``in_flight`` is how many requests of one tree may be under way at once.
    """

    reward: Reward
    pruner: Pruner | None = None
    hint: Hint = lambda tree, node, attempts: ()
    memory: int = MEMORY
    remembered: Remembered = "attempts"
    depth: int = DEPTH
    exploration: float = EXPLORATION
    temperature: float = 0.7
    widen: bool = False
    in_flight: int = 1


@dataclass(frozen=True)
class TreeMethod(Method):
    """The settings that all tree searches share."""

    needs_llm: ClassVar[bool] = True

    depth: int = least(1, DEPTH)
    exploration: float = least(0, EXPLORATION)
    memory: int = least(0, MEMORY)
    remembered: Remembered = "attempts"
    temperature: float = least(0, 0.7)
    in_flight: int = least(1, 1)

    def _search(self, case: Case, **parts: Any) -> TreeSearch:
        """Bind the parts that make a method to the settings that all share."""
        shared = {f.name: getattr(self, f.name) for f in fields(TreeMethod)}
        return TreeSearch(case, Parts(**shared, **parts))


@dataclass
class _Trial:
    """A candidate on its way: what the pruner says of it, then the oracle (unless it is pruned)."""

    candidate: Candidate
    verdict: Verdict
    chance: float | None = None
    valid: bool = False

    @property
    def tag(self) -> Tag:
        """What became of it."""
        if not self.verdict.kept:
            return Tag.PRUNED
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
    """Grows a tree of candidates from the query, with an LLM for its moves."""

    def __init__(self, case: Case, parts: Parts) -> None:
        super().__init__(case)
        if case.proposer is None:
            raise InputError("this method asks an LLM: give it one (llm=…)")
        self.parts = parts
        self.proposer = case.proposer
        self.tree = Tree(case.query, self.archive.query_key, case.probability)
        self._batches: deque[_Batch] = deque()

    def origin(self, work: Work) -> Row | None:
        """Return the row of the node that was expanded."""
        _, batch = self._pending.get(work.id, (None, None))
        return self.tree[batch.node].row if isinstance(batch, _Batch) else None

    # Asking ------------------------------------------------------------------------------------

    def _next(self) -> Work | None:
        if self._batches:
            batch = self._batches.popleft()
            return self._evaluate([trial.candidate.row for trial in batch.kept], batch)
        if self.tree[ROOT].waiting >= self.parts.in_flight:
            return None
        if self._spent():
            return None
        return self._expand()

    def _spent(self) -> bool:
        """Whether the budget allows no further call; ends the search when all came back."""
        budget = self.case.budget
        if self.calls_left >= 1 and self.rows_left >= 1:
            return False
        if not self.waiting:
            calls, rows = f"{budget.llm_calls} LLM calls", f"{budget.oracle_rows} oracle rows"
            what = calls if self.calls_left < 1 else rows
            self._end(OutcomeKind.BUDGET_SPENT, f"all {what} are spent")
        return True

    def _expand(self) -> Work | None:
        while (node := self._select()) is not None:
            request = self._request(node)
            if request is not None:
                self.tree.wait(node.id, 1)
                return self._propose(request, node.id)
            if node.closed:
                break  # it was to be widened, and nothing may be edited there
            self.tree.close(node.id)
        if not self.waiting:
            self._end(OutcomeKind.EXHAUSTED, "every row within reach was expanded")
        return None

    def _select(self) -> Node | None:
        found = leaf(self.tree, self.parts.exploration)
        if found is None and self.parts.widen and not self.waiting:
            last = deepest_on_path(self.tree, self.parts.depth, self.parts.exploration)
            return last if last.children else None
        return found

    def _request(self, node: Node) -> Request | None:
        attempts = recall(self.tree, node.id, self.parts.memory, self.parts.remembered)
        case = self.case
        return self.proposer.request(
            case.query,
            node.row,
            k=case.k,
            history=records(
                case.problem.schema,
                case.query,
                attempts,
                whole=self.proposer.style.template == "waysout",
            ),
            avoid=self.parts.hint(self.tree, node.id, attempts),
            temperature=self.parts.temperature,
            seed=case.seed,
            draw=self._next_draw,
        )

    # Taking a reply in -------------------------------------------------------------------------

    def _on_reply(self, node: int, reply: Reply) -> None:
        case, row = self.case, self.tree[node].row
        proposal = self.proposer.read(reply, case.query, row, k=case.k)
        self.archive.generated += len(proposal.edits) + len(proposal.rejections)
        self.archive.rejections.update(proposal.counts())
        self.named += proposal.edits
        candidates = [self._candidate(row, edit) for edit in proposal.edits]
        verdicts = self._judge(node, candidates)
        batch = _Batch(node, self._affordable(map(_Trial, candidates, verdicts)))
        if batch.kept:
            self._batches.append(batch)
        else:
            self._settle(batch)

    def _candidate(self, row: Row, edit: Edit) -> Candidate:
        problem, query = self.case.problem, self.case.query
        changed = problem.rules.apply(row, {edit.feature: edit.value})
        return Candidate(
            edit=edit,
            row=changed,
            key=problem.key(changed),
            distance=problem.distance(query, changed),
            changes=problem.rules.count_changes(query, changed),
        )

    def _judge(self, node: int, candidates: Sequence[Candidate]) -> list[Verdict]:
        pruner = self.parts.pruner
        if pruner is None or pruner.after_oracle:
            return [Verdict(kept=True)] * len(candidates)
        return pruner.judge(self.tree, node, candidates)

    def _affordable(self, trials: Iterable[_Trial]) -> list[_Trial]:
        """Return the trials without those for which no row is left that others will not take."""
        left = self.rows_left - sum(len(batch.kept) for batch in self._batches)
        found = []
        for trial in trials:
            left -= trial.verdict.kept
            if trial.verdict.kept and left < 0:
                self.archive.rejections["beyond the row budget"] += 1
            else:
                found.append(trial)
        return found

    # Taking the oracle's answers in ------------------------------------------------------------

    def _on_answers(self, batch: _Batch, rows: Sequence[Row], answers: Answers) -> None:
        met = self.case.problem.goal.met(answers)
        judged = zip(batch.kept, rows, answers.probability.tolist(), met, strict=True)
        for trial, row, chance, approved in judged:
            trial.chance, trial.valid = chance, self.archive.is_valid(row, bool(approved))
        self._judge_again(batch)
        self._settle(batch)

    def _judge_again(self, batch: _Batch) -> None:
        """Let a pruner that prefers what is valid have its say."""
        pruner, trials = self.parts.pruner, batch.kept
        if pruner is not None and pruner.after_oracle:
            candidates, valid = [t.candidate for t in trials], [t.valid for t in trials]
            verdicts = pruner.judge(self.tree, batch.node, candidates, valid)
            for trial, verdict in zip(trials, verdicts, strict=True):
                trial.verdict = verdict

    def _settle(self, batch: _Batch) -> None:
        """Remember all that was tried, in the reply's order, and grow the tree by what is kept."""
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
        # Rewarded before it joins the archive: else no valid row would ever be new.
        reward = self.parts.reward(self._evidence(trial, chance, share))
        reasons = self._reasons(node, candidate)
        self.archive.take(candidate.row, candidate.key, chance, trial.valid, reasons)
        if not trial.verdict.kept:
            return  # merged with a sibling when the oracle had answered: found, but no node
        child = self.tree.add(
            node, candidate.edit, candidate.row, candidate.key, chance, trial.valid
        )
        self.tree.back_up(child, reward)
        if self.tree[child].depth >= self.parts.depth:
            self.tree.close(child)

    def _evidence(self, trial: _Trial, chance: float, share: float) -> Evidence:
        candidate, problem = trial.candidate, self.case.problem
        return Evidence(
            probability=problem.goal.worth(chance),
            approved=trial.valid,
            distance=candidate.distance,
            changes=candidate.changes,
            novelty=self.archive.novelty(candidate.row),
            gain=trial.verdict.gain,
            agreement=share,
        )

    def _reasons(self, node: int, candidate: Candidate) -> tuple[str, ...]:
        """Return the reasons given for the changes that stand at a candidate."""
        schema, row = self.case.problem.schema, candidate.row
        changed = schema.changed(self.case.query, row)
        edits = [*(above.edit for above in self.tree.path(node)), candidate.edit]
        standing = {
            edit.feature: edit.reason
            for edit in edits
            if edit and edit.feature in changed and row[schema.index(edit.feature)] == edit.value
        }
        return tuple(f"{feature}: {reason}" for feature, reason in standing.items() if reason)
