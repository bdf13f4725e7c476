"""A run on file as a memory: what it cost, and what it paid for goes into the next search."""

from __future__ import annotations

from dataclasses import replace

from waysout.domain.budget import Spent
from waysout.domain.memory import Memory, Past, read_again
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import Option
from waysout.domain.schema import Edit, Row
from waysout.errors import InputError
from waysout.llm.base import Reply
from waysout.llm.call import Price
from waysout.store import Store

REMEMBERED = "remembered"
"""The kind of event that holds what a search knew when it began."""


def known_before(store: Store, problem: Problem, index: int) -> Past | None:
    """Return what a search on file knew when it began, if it did."""
    found = next((e for e in store.events(index) if e.kind == REMEMBERED), None)
    return None if found is None else Past.from_dict(found.detail, problem.schema)


def memory_of(store: Store, problem: Problem, index: int = 0) -> Memory:
    """Return all that a run on file knows of one of its people.

    Of the LLM's edits those are known again that stand, with their reasons, in an option.
    """
    query = store.query(index)
    if query is None:
        raise InputError(f"{store.path} holds no query {index}")
    memory = Memory()
    past = memory.of(problem, read_again(problem.schema, query.values()))
    past.add(known_before(store, problem, index) or Past())
    past.add(_paid_for(store, problem, index))
    return memory


def _paid_for(store: Store, problem: Problem, index: int) -> Past:
    """Return what a search on file brought, besides what it knew when it began."""
    past = Past()
    for recorded in store.answers(index):
        if isinstance(recorded.answer, Answers):
            past.add_answers(recorded.rows, recorded.answer)
        else:
            past.calls += 1
    for option in store.options(index):
        row = read_again(problem.schema, option.row.values())
        past.reasons[row] = option.reasons
        past.edits += _edits(problem, option, row)
    return past


def _edits(problem: Problem, option: Option, row: Row) -> list[Edit]:
    """Return the changes of an option that somebody gave a reason for."""
    found = []
    for name in option.changes:
        given = [reason for reason in option.reasons if reason.startswith(f"{name}: ")]
        if given:
            value = row[problem.schema.index(name)]
            found.append(Edit(name, value, given[0].removeprefix(f"{name}: ")))
    return found


def spent_before(store: Store, index: int, price: Price | None) -> Spent:
    """Return what the answers on file cost, and the time and attempts up to the last sign of life.

    The ledger filed with an answer may count others that were under way and never came to file:
    they will be asked, and paid for, again.
    """
    last, usages, rows = store.spent(index), [], 0
    left = store.partial(index)
    ended = left.ledger if left is not None else last
    for recorded in store.answers(index):
        rows += len(recorded.rows)
        if isinstance(recorded.answer, Reply):
            usages.append(recorded.answer.usage)
    return replace(
        last,
        llm_calls=len(usages),
        tokens_in=sum(usage.tokens_in for usage in usages),
        tokens_out=sum(usage.tokens_out for usage in usages),
        cached_tokens=sum(usage.cached_tokens for usage in usages),
        oracle_rows=rows,
        attempts=max(last.attempts, ended.attempts),
        setup_rows=max(last.setup_rows, ended.setup_rows),
        seconds=max(last.seconds, ended.seconds),
        money=sum(map(price.of, usages)) if price else last.money,
    )
