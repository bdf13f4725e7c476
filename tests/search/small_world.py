"""A small world for searches: three features, an oracle to do in one's head, a scripted LLM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from waysout.domain.budget import Budget
from waysout.domain.distance import Distance
from waysout.domain.key import Key
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.rules import Rule, RuleSet
from waysout.domain.schema import Feature, Row, Schema
from waysout.llm.base import Reply, Request
from waysout.prompts.propose import Proposer, Style
from waysout.prompts.render import Topic
from waysout.search.base import Case, Method, Search
from waysout.search.loop import TreeSearch
from waysout.search.work import Evaluate, Propose, Work

SCHEMA = Schema(
    (
        Feature("a", "integer", range=(0, 9)),
        Feature("b", "integer", range=(0, 9)),
        Feature("c", "category", levels=("x", "y", "z")),
    )
)
QUERY: Row = (0, 0, "x")


class Adder:
    """Approves where a + b is 5 or more, with a chance of (a + b) / 10; counts what it is asked."""

    name = "adder"
    labels_only = False

    def __init__(self) -> None:
        self.asked: list[Row] = []

    def ask(self, rows: Sequence[Row]) -> Answers:
        self.asked += rows
        sums = np.array([float(r[0] or 0) + float(r[1] or 0) for r in rows])
        return Answers(np.minimum(sums / 10, 1.0), sums >= 5)


def problem(*rules: Rule) -> Problem:
    scales = {"a": 1.0, "b": 1.0}
    return Problem(
        SCHEMA, RuleSet(SCHEMA, rules), Key(SCHEMA), Distance(SCHEMA, scales), Adder(), name="small"
    )


def case(
    *rules: Rule,
    calls: int | None = 30,
    rows: int | None = 150,
    k: int = 2,
    query: Row = QUERY,
    style: Style | None = None,
) -> Case:
    made = problem(*rules)
    paper = style or Style("paper", constrain=False, strict=True)
    proposer = Proposer(Topic.of_problem(made), "none", paper)
    return Case(made, query, 0.0, Budget(llm_calls=calls, oracle_rows=rows), k, proposer=proposer)


def reply(*edits: str) -> Reply:
    """Return a reply in the paper's format: ``reply("a=5", "b=1")``."""
    blocks = []
    for i, edit in enumerate(edits, 1):
        name, _, value = edit.partition("=")
        blocks.append(f"CANDIDATE={i}\nFEATURE={name}\nVALUE={value}\nREASONING=because of {name}")
    return Reply("\n\n".join(blocks))


@dataclass
class Played:
    """A search that was driven with scripted replies, and what it asked."""

    search: Search
    requests: list[Request] = field(default_factory=list)
    expanded: list[int] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)

    @property
    def tree(self) -> list[tuple[int | None, str, int, float]]:
        """Return (parent, edit, visits, value) of every node."""
        assert isinstance(self.search, TreeSearch)
        return [
            (n.parent, f"{n.edit.feature}={n.edit.value}" if n.edit else "", n.visits,
             round(n.value, 4))
            for n in self.search.tree.nodes
        ]  # fmt: skip


def play(method: Method, given: Case, replies: Iterable[Reply]) -> Played:
    """Drive a search one work at a time until it is over or the replies run out."""
    search = method.start(given)
    played, script = Played(search), iter(replies)
    while (work := search.ask()) is not None:
        played.works.append(work)
        if isinstance(work, Evaluate):
            search.tell(work, given.problem.oracle.ask(work.rows))
            continue
        played.requests.append(work.request)
        if isinstance(search, TreeSearch):
            played.expanded.append(_node_of(search, work))
        answer = next(script, None)
        if answer is None:
            return played
        search.tell(work, answer)
    return played


def _node_of(search: TreeSearch, work: Propose) -> int:
    node = search._pending[work.id][1]
    assert isinstance(node, int)
    return node


def drive(search: Search, answer: Callable[[Request], Reply], given: Case) -> None:
    """Drive a search to its end."""
    while (work := search.ask()) is not None:
        if isinstance(work, Propose):
            search.tell(work, answer(work.request))
        else:
            search.tell(work, given.problem.oracle.ask(work.rows))


def endless(*edits: str) -> Iterator[Reply]:
    while True:
        yield reply(*edits)
