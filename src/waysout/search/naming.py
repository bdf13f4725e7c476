"""Searches that have an LLM name edits: when it is asked, what it says, how to go on without."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Edit, Row
from waysout.llm.base import Reply
from waysout.search.base import Case, Search
from waysout.search.work import Propose, Work

Ask = Literal["throughout", "stuck"]


@dataclass(frozen=True, slots=True)
class Naming:
    """How an LLM is asked for edits.

    ``edits`` for each call, until ``patience`` calls in a row brought nothing new. ``"throughout"``
    asks at the pace of the rows, ``batch`` at a time; ``"stuck"`` only where, with B calls and N
    rows, N ÷ (B + 1) rows in a row were refused. ``remind`` tells the LLM what it has named.
    """

    edits: int
    temperature: float
    batch: int
    patience: int = 2
    ask: Ask = "throughout"
    remind: bool = True


class NamingSearch(Search):
    """A search that asks for edits, and never depends on them."""

    def __init__(self, case: Case, naming: Naming) -> None:
        super().__init__(case)
        self._naming = naming
        self._named: dict[str, Edit] = {}  # by the key of the query so edited
        self._replies = self._in_vain = 0
        self._barren = 0  # rows asked since the last option and the last reply
        self._refused = False

    @abstractmethod
    def _add_named(self, edit: Edit) -> str | None:
        """Take in a named edit, or return why it cannot be used."""

    def _more_edits(self, row: Row) -> Work | None:
        """Ask for edits of a row, where that is allowed and still brings some."""
        case, naming = self.case, self._naming
        if case.proposer is None or not self._may_ask():
            return None
        named = tuple(self._named.values()) if naming.remind else ()
        request = case.proposer.request(
            case.query, row, k=naming.edits, named=named, temperature=naming.temperature,
            seed=case.seed, draw=self._next_draw,
        )  # fmt: skip
        return None if request is None else self._propose(request, row)

    def _over(self, kind: OutcomeKind, reason: str) -> None:
        if self._in_vain >= self._naming.patience:
            reason += f"; {self._in_vain} LLM calls in a row brought nothing new"
        elif self._refused:
            reason += "; the limit of tokens or money allowed no further LLM call"
        self._end(kind, reason)

    def refuse(self, work: Work) -> bool:
        """Go on without the LLM when no call can be paid for: there are still rows to ask.

        A refusal is not recorded; a replay works it out from what was asked next.
        """
        if not isinstance(work, Propose) or self._pending.pop(work.id, None) is None:
            return False
        self._calls -= 1
        self._refused = True
        return True

    def _may_ask(self) -> bool:
        """Whether the LLM may be asked for more edits, and still brings some."""
        stale = self._in_vain >= self._naming.patience
        barred = self.case.proposer is None or self._refused or stale
        return not barred and self.calls_left >= 1

    def _is_time_to_ask(self) -> bool:
        """Whether the rows are spent as far as the calls: late edits need rows too.

        With ``ask="stuck"``, whether the latest rows were all refused.
        """
        if not self._may_ask():
            return False
        rows, calls = self._rows + self.rows_left, self._replies + self.calls_left
        if math.isinf(calls):
            # An LLM that never repeats itself would be asked for ever: one call for each batch.
            calls = max(1.0, rows / self._naming.batch)
        if self._naming.ask == "stuck":
            return self._barren >= rows / (calls + 1)
        return self._rows / rows >= self._replies / calls

    def _on_reply(self, row: Row, reply: Reply) -> None:
        proposer = self.case.proposer
        assert proposer is not None
        self._replies += 1
        self._barren = 0
        proposal = proposer.read(reply, self.case.query, row, k=self._naming.edits)
        self.archive.generated += len(proposal.edits) + len(proposal.rejections)
        self.archive.rejections.update(proposal.counts())
        self.named += proposal.edits
        new = [edit for edit in proposal.edits if self._is_new(edit)]
        self._in_vain = 0 if new else self._in_vain + 1
        refused = (self._add_named(edit) for edit in proposal.edits)
        self.archive.rejections.update(why for why in refused if why)

    def _is_new(self, edit: Edit) -> bool:
        """Remember a named edit; returns whether its key differs from all that were named before.

        Own edits do not count as named: an LLM that repeats ours still gives reasons.
        """
        problem, query = self.case.problem, self.case.query
        key = problem.key(problem.rules.apply(query, {edit.feature: edit.value}))
        known = key in self._named or key == self.archive.query_key
        self._named.setdefault(key, edit)
        return not known
