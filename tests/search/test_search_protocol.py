"""What holds for every search, whatever the LLM says: `ask`, `tell`, budgets and options."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_world import QUERY, Adder, case, play, reply

from waysout.domain.key import Key
from waysout.domain.oracle import Goal
from waysout.domain.rules import Immutable, Linear, MaxChanges, Range, Rule
from waysout.errors import InputError
from waysout.llm.base import Message, Reply, Request
from waysout.llm.simulated import Simulated
from waysout.search.archive import Archive
from waysout.search.base import Case, Method, Search
from waysout.search.comp_mcts import CompMCTS
from waysout.search.lats import Lats
from waysout.search.loop import TreeSearch
from waysout.search.prune.base import Verdict
from waysout.search.reward import SelfConsistency
from waysout.search.work import Evaluate, Propose, Work

METHODS: list[Method] = [
    CompMCTS(),
    CompMCTS(scope="global", threshold=0.1),
    CompMCTS(pruning="rlbwt", scope="window", reward="diversity"),
    CompMCTS(pruning="repair"),
    CompMCTS(pruning="none", reward="baseline"),
    CompMCTS(in_flight=3, depth=2),
    Lats(),
    Lats(diversity=True, in_flight=2),
]
RULES: list[tuple[Rule, ...]] = [
    (),
    (Immutable(features=("c",)),),
    (MaxChanges(at_most=1),),
    (Linear(that="a + b <= 6"),),
    (Range(feature="b", min=1),),  # which the query breaks
]


def simulated(seed: int) -> Any:
    backend = Simulated(seed)
    return lambda request: asyncio.run(backend.complete(request))


@settings(max_examples=60)
@given(
    st.sampled_from(METHODS), st.sampled_from(RULES), st.integers(0, 9), st.integers(0, 25),
    st.integers(1, 6), st.integers(0, 10**6),
)  # fmt: skip
def test_budgets_hold_and_options_are_true(
    method: Method, rules: tuple[Rule, ...], calls: int, rows: int, k: int, seed: int
) -> None:
    given_case = case(*rules, calls=calls, rows=rows, k=k)
    search, asked = _run(method, given_case, simulated(seed))
    assert sum(isinstance(w, Propose) for w in asked) <= calls
    assert sum(len(w.rows) for w in asked if isinstance(w, Evaluate)) <= rows
    assert search.done
    archive, problem = search.archive, given_case.problem
    assert archive.evaluated <= rows
    fresh = Adder().ask(archive.rows)
    assert fresh.decision.all()
    for row in archive.rows:
        assert problem.violations(given_case.query, row) == ()
        assert row != given_case.query
    keys = [option.key for option in archive.options()]
    assert len(set(keys)) == len(keys)
    for miss in archive.near_misses():
        row = problem.row(miss.row)
        assert not Adder().ask([row]).decision[0]
        assert problem.violations(given_case.query, row) == ()


def _run(method: Method, given_case: Case, answer: Any) -> tuple[Search, list[Work]]:
    """Drive a search with as many works out as it hands out; answer the oldest first."""
    search = method.start(given_case)
    out: list[Work] = []
    asked: list[Work] = []
    while True:
        while (work := search.ask()) is not None:
            out.append(work)
            asked.append(work)
        if not out:
            return search, asked
        _answer(search, out.pop(0), answer, given_case)


def _answer(search: Search, work: Work, answer: Any, given_case: Case) -> None:
    if isinstance(work, Propose):
        search.tell(work, answer(work.request))
    else:
        search.tell(work, given_case.problem.oracle.ask(work.rows))


@pytest.mark.parametrize("method", METHODS, ids=range(len(METHODS)))
def test_the_same_answers_give_the_same_search(method: Method) -> None:
    first, asked = _run(method, case(calls=12, k=4), simulated(7))
    second, again = _run(method, case(calls=12, k=4), simulated(7))
    assert asked == again
    assert first.archive.options() == second.archive.options()


def test_a_second_answer_changes_nothing() -> None:
    given_case = case()
    search = CompMCTS(pruning="none").start(given_case)
    propose = search.ask()
    assert propose is not None
    search.tell(propose, reply("a=5", "b=1"))
    evaluate = search.ask()
    assert isinstance(evaluate, Evaluate)
    answers = given_case.problem.oracle.ask(evaluate.rows)
    search.tell(evaluate, answers)
    before = (search.archive.evaluated, len(search.archive), search.archive.generated)
    search.tell(evaluate, answers)
    search.tell(propose, reply("b=9"))
    assert (search.archive.evaluated, len(search.archive), search.archive.generated) == before


def test_an_answer_nobody_asked_for_is_refused() -> None:
    search = CompMCTS().start(case())
    with pytest.raises(InputError, match="did not hand out"):
        search.tell(Propose(3, _request()), reply("a=5"))
    work = search.ask()
    assert isinstance(work, Propose)
    with pytest.raises(InputError, match="did not hand out"):
        search.tell(Propose(work.id, _request()), reply("a=5"))


def test_an_answer_of_the_wrong_kind_is_refused_and_the_right_one_still_counts() -> None:
    given_case = case()
    search = CompMCTS().start(given_case)
    propose = search.ask()
    assert propose is not None
    with pytest.raises(InputError, match="is answered by Reply"):
        search.tell(propose, Adder().ask([(5, 0, "x")]))
    search.tell(propose, reply("a=5", "b=1"))
    evaluate = search.ask()
    assert isinstance(evaluate, Evaluate)
    with pytest.raises(InputError, match="2 rows were asked and 1 answered"):
        search.tell(evaluate, Adder().ask(evaluate.rows[:1]))
    search.tell(evaluate, Adder().ask(evaluate.rows))
    assert search.archive.evaluated == 2


def _request() -> Request:
    return Request((Message("user", "who?"),))


def test_nothing_is_handed_out_while_an_answer_is_awaited() -> None:
    search = CompMCTS().start(case())
    assert search.ask() is not None
    assert search.ask() is None
    assert not search.done


def test_several_requests_of_one_tree_go_to_different_leaves() -> None:
    given_case = case(k=3)
    search = Lats(in_flight=3).start(given_case)
    first = search.ask()
    assert first is not None
    search.tell(first, reply("a=5", "b=5", "c=y"))
    batch = search.ask()
    assert isinstance(batch, Evaluate)
    search.tell(batch, given_case.problem.oracle.ask(batch.rows))
    works = [search.ask() for _ in range(4)]
    assert works[3] is None
    prompts = {w.request.messages for w in works[:3] if isinstance(w, Propose)}
    assert len(prompts) == 3


# Weights without novelty, and histories of the path alone: what one leaf learns is then no other
# leaf's business, so it cannot matter which reply came first.
INDEPENDENT = [
    CompMCTS(in_flight=3, reward="1,1,1,0", scope="path", threshold=0.1),
    Lats(in_flight=3),
]


@pytest.mark.parametrize("method", INDEPENDENT, ids=["comp-mcts", "lats"])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_independent_requests_may_be_answered_in_any_order(
    method: Method, order: tuple[int, ...]
) -> None:
    replies = [reply("b=6", "c=z"), reply("a=2", "c=y"), reply("a=7", "b=3")]
    trees = [_tree_after(method, replies, o) for o in ((0, 1, 2), order)]
    assert trees[0] == trees[1]


def _tree_after(
    method: Method, replies: list[Reply], order: tuple[int, ...]
) -> dict[tuple[str, ...], tuple[int, float]]:
    given_case = case(k=3, calls=4)
    search = method.start(given_case)
    assert isinstance(search, TreeSearch)
    _one(search, reply("a=5", "b=5", "c=y"), given_case)
    out = [search.ask() for _ in range(3)]
    for i in order:
        work = out[i]
        assert work is not None
        search.tell(work, replies[i])
        batch = search.ask()
        assert isinstance(batch, Evaluate)
        search.tell(batch, given_case.problem.oracle.ask(batch.rows))
    return {
        tuple(f"{n.edit.feature}={n.edit.value}" for n in search.tree.path(node.id) if n.edit):
        (node.visits, round(node.value, 9))
        for node in search.tree.nodes
    }  # fmt: skip


def _one(search: Search, answer: Reply, given_case: Case) -> None:
    work = search.ask()
    assert work is not None
    search.tell(work, answer)
    batch = search.ask()
    assert isinstance(batch, Evaluate)
    search.tell(batch, given_case.problem.oracle.ask(batch.rows))


def test_an_approved_row_that_breaks_a_rule_is_no_option() -> None:
    """The query breaks b >= 1; raising a alone wins the oracle and leaves the rule broken."""
    rule = Range(feature="b", min=1)
    played = play(Lats(), case(rule, k=2), [reply("a=7", "b=6"), reply("b=2", "c=y")])
    rows = [option.row for option in played.search.archive.options()]
    assert {"a": 0, "b": 6, "c": "x"} in rows
    assert all(row["b"] != 0 for row in rows)


def test_a_valid_row_with_the_key_of_the_query_is_counted_apart() -> None:
    given_case = case(calls=1)
    coarse = Key(given_case.problem.schema, {"a": (7.0,), "b": (7.0,)})
    given_case = replace(given_case, problem=replace(given_case.problem, key=coarse))
    archive = play(Lats(), given_case, [reply("a=6", "a=9")]).search.archive
    assert len(archive) == 2
    assert archive.unique_rows == [(9, 0, "x")]
    assert archive.novelty((9, 0, "x")) == 0.0


def test_a_method_with_an_llm_says_so_where_there_is_none() -> None:
    with pytest.raises(InputError, match="pass one"):
        CompMCTS().start(replace(case(), proposer=None))


@settings(max_examples=40)
@given(st.integers(0, 30), st.integers(1, 5), st.integers(0, 10**6))
def test_replies_told_together_never_claim_more_rows_than_there_are(
    rows: int, k: int, seed: int
) -> None:
    """All that is out is answered before anything is asked again."""
    given_case, answer = case(rows=rows, k=k, calls=12), simulated(seed)
    search = CompMCTS(pruning="none", in_flight=4).start(given_case)
    while True:
        out = []
        while (work := search.ask()) is not None:
            out.append(work)
        if not out:
            break
        for work in out:
            _answer(search, work, answer, given_case)
    archive = search.archive
    assert search.rows_left >= 0
    assert archive.evaluated <= rows
    assert archive.generated == archive.evaluated + archive.rejections.total()


def _archive(goal: Goal, *rules: Rule) -> Archive:
    made = replace(case(*rules).problem, goal=goal)
    return Archive(made, QUERY)


def test_near_misses_are_near_for_the_goal() -> None:
    low = _archive(Goal(at_most=0.2))
    for a, chance in ((3, 0.3), (9, 0.9), (4, 0.4)):
        low.take((a, 0, "x"), f"key {a}", chance, valid=False)
    assert [miss.probability for miss in low.near_misses()] == [0.3, 0.4, 0.9]
    assert low.best_probability == 0.3
    high = _archive(Goal())
    for a, chance in ((3, 0.3), (4, 0.4)):
        high.take((a, 0, "x"), "one key", chance, valid=False)
    assert [miss.probability for miss in high.near_misses()] == [0.4]
    assert high.best_probability == 0.4


def test_a_row_that_breaks_a_rule_is_no_near_miss() -> None:
    archive = _archive(Goal(), Range(feature="b", min=1))
    archive.take((9, 0, "x"), "breaks b >= 1", 0.9, valid=False)
    archive.take((2, 1, "x"), "keeps it", 0.3, valid=False)
    assert [miss.probability for miss in archive.near_misses()] == [0.3]
    assert archive.best_probability == 0.3


def test_a_goal_moves_the_gate_and_what_a_probability_is_worth() -> None:
    """With at_least 0.9 a chance of 0.5 is far below the gate, and earns next to nothing."""
    wanted = [reply("a=5", "b=1")]
    usual = play(CompMCTS(pruning="none"), case(calls=1), wanted)
    strict = play(
        CompMCTS(pruning="none"),
        replace(case(calls=1), problem=replace(case().problem, goal=Goal(at_least=0.9))),
        wanted,
    )
    low = play(
        CompMCTS(pruning="none"),
        replace(case(calls=1), problem=replace(case().problem, goal=Goal(at_most=0.1))),
        wanted,
    )
    assert strict.tree[1][3] < usual.tree[1][3] / 10
    assert low.tree[2][3] > low.tree[1][3]  # b=1 has the lower chance


def test_siblings_merged_after_the_oracle_are_still_found() -> None:
    class Merge:
        after_oracle = True

        def judge(
            self, tree: object, node: int, candidates: Sequence[Any], valid: object = None
        ) -> list[Verdict]:
            return [Verdict(i == 0) for i in range(len(candidates))]

    given_case = case(calls=1, k=3)
    search = TreeSearch(given_case, Lats(), reward=SelfConsistency(), pruner=Merge())
    _one(search, reply("a=5", "a=6", "b=1"), given_case)
    assert (search.archive.evaluated, search.archive.pruned, len(search.archive)) == (3, 2, 2)
    assert len(search.tree.nodes) == 2


@pytest.mark.parametrize(
    "wrong",
    [{"depth": float("inf")}, {"threshold": "inf"}, {"depth": 0}, {"scope": "pth"},
     {"memory": 2.5}, {"in_flight": True}, {"reward": "best"}],
    ids=str,
)  # fmt: skip
def test_wrong_settings_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        CompMCTS(**wrong)
