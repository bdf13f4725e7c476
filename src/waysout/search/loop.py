"""The one loop of every tree search: select, ask the LLM, prune, ask the oracle, reward, back up.

A method is a choice of `Parts`; none has a loop of its own.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from waysout.domain.distance import novelty
from waysout.domain.edit import Edit
from waysout.domain.oracle import Answers
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
from waysout.errors import InputError
from waysout.llm.base import Reply, Request
from waysout.prompts.render import Tag
from waysout.search.base import Case, Search
from waysout.search.memory import MEMORY, Remembered, recall, records
from waysout.search.prune.base import Candidate, Pruner, Verdict
from waysout.search.reward import Evidence, Reward
from waysout.search.select import EXPLORATION, deepest_on_path, leaf
from waysout.search.tree import Attempt, Node, Tree
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
class _Batch:
    """Candidates of one reply on their way to the oracle."""

    node: int
    candidates: Sequence[Candidate]
    verdicts: Sequence[Verdict]


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
        self._in_flight = 0

    # Asking ------------------------------------------------------------------------------------

    def _next(self) -> Work | None:
        if self._batches:
            batch = self._batches.popleft()
            return self._evaluate([c.row for c in batch.candidates], batch)
        if self._in_flight >= self.parts.in_flight:
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
                self._in_flight += 1
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
            draw=self._calls,
        )

    # Taking a reply in -------------------------------------------------------------------------

    def _on_reply(self, node: int, reply: Reply) -> None:
        case, row = self.case, self.tree[node].row
        proposal = self.proposer.read(reply, case.query, row, k=case.k)
        self.archive.generated += len(proposal.edits) + len(proposal.rejections)
        self.archive.rejections.update(proposal.counts())
        candidates = [self._candidate(row, edit) for edit in proposal.edits]
        verdicts = self._judge(node, candidates)
        self._drop(node, candidates, verdicts)
        kept = [(c, v) for c, v in zip(candidates, verdicts, strict=True) if v.kept]
        self._queue(node, kept)

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

    def _drop(
        self, node: int, candidates: Sequence[Candidate], verdicts: Sequence[Verdict]
    ) -> None:
        for candidate, verdict in zip(candidates, verdicts, strict=True):
            if not verdict.kept:
                self.archive.pruned += 1
                self.tree.note(node, candidate.edit, candidate.row, Tag.PRUNED)

    def _queue(self, node: int, kept: list[tuple[Candidate, Verdict]]) -> None:
        """Send what is kept to the oracle, as far as rows are left."""
        affordable = kept[: int(min(self.rows_left, len(kept)))]
        if len(affordable) < len(kept):
            self.archive.rejections["beyond the row budget"] += len(kept) - len(affordable)
        if not affordable:
            self._came_back(node)
            return
        candidates, verdicts = zip(*affordable, strict=True)
        self._batches.append(_Batch(node, candidates, verdicts))

    def _came_back(self, node: int) -> None:
        self._in_flight -= 1
        self.tree.wait(node, -1)

    # Taking the oracle's answers in ------------------------------------------------------------

    def _on_answers(self, batch: _Batch, rows: Sequence[Row], answers: Answers) -> None:
        met = self.case.problem.goal.met(answers)
        valid = [self.archive.is_valid(r, bool(m)) for r, m in zip(rows, met, strict=True)]
        chances = answers.probability.tolist()
        keep = self._keep_after(batch, valid)
        for i, candidate in enumerate(batch.candidates):
            tag = (Tag.APPROVED if valid[i] else Tag.REJECTED) if keep[i] else Tag.PRUNED
            self.tree.note(batch.node, candidate.edit, candidate.row, tag, chances[i])
        agreement = Counter((a.edit.feature, a.edit.value) for a in self.tree[batch.node].attempts)
        total = agreement.total()
        for i, candidate in enumerate(batch.candidates):
            if not keep[i]:
                self.archive.pruned += 1
                continue
            edit = candidate.edit
            share = agreement[(edit.feature, edit.value)] / total
            self._grow(batch, i, chances[i], valid[i], share)
        self._came_back(batch.node)

    def _keep_after(self, batch: _Batch, valid: Sequence[bool]) -> list[bool]:
        pruner = self.parts.pruner
        if pruner is None or not pruner.after_oracle:
            return [True] * len(valid)
        verdicts = pruner.judge(self.tree, batch.node, batch.candidates, valid)
        return [verdict.kept for verdict in verdicts]

    def _grow(self, batch: _Batch, i: int, chance: float, valid: bool, share: float) -> None:
        candidate = batch.candidates[i]
        # Rewarded before it joins the archive: else no valid row would ever be new.
        reward = self.parts.reward(self._evidence(batch, i, chance, valid, share))
        child = self.tree.add(
            batch.node, candidate.edit, candidate.row, candidate.key, chance, valid
        )
        self.archive.take(candidate.row, candidate.key, chance, valid, self._reasons(child))
        self.tree.back_up(child, reward)
        if self.tree[child].depth >= self.parts.depth:
            self.tree.close(child)

    def _evidence(
        self, batch: _Batch, i: int, chance: float, valid: bool, share: float
    ) -> Evidence:
        candidate, problem = batch.candidates[i], self.case.problem
        encoded = problem.schema.encode([candidate.row])[0]
        return Evidence(
            probability=problem.goal.worth(chance),
            approved=valid,
            distance=candidate.distance,
            changes=candidate.changes,
            novelty=novelty(problem.distance.between(encoded, self.archive.unique)),
            gain=batch.verdicts[i].gain,
            agreement=share,
        )

    def _reasons(self, node: int) -> tuple[str, ...]:
        """Return the reasons given for the changes that stand at a node."""
        schema, row = self.case.problem.schema, self.tree[node].row
        changed = schema.changed(self.case.query, row)
        standing = {
            n.edit.feature: n.edit.reason
            for n in self.tree.path(node)
            if n.edit is not None
            and n.edit.feature in changed
            and row[schema.index(n.edit.feature)] == n.edit.value
        }
        return tuple(f"{feature}: {reason}" for feature, reason in standing.items() if reason)
