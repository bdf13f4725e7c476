"""What a run on file knows: what it spent, and what the next search need not ask again."""

from __future__ import annotations

from dataclasses import replace

from waysout.domain.budget import Spent
from waysout.domain.memory import Memory, Past, read_again
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.schema import Edit
from waysout.errors import InputError
from waysout.llm.base import Reply
from waysout.llm.call import Price
from waysout.prompts.reasons import kept_reasons
from waysout.store import Store

REMEMBERED = "remembered"
"""The kind of event that holds what a search knew when it began."""
FORM_SOUGHT = "form-sought"
"""The kind of event that holds how many rows found the form of the model's rows (`extra_rows`)."""


def remember(store: Store, index: int, past: Past | None) -> None:
    """File what a search knows as it begins, or a resume would be another search."""
    if past:
        store.event(REMEMBERED, past.as_dict(), index)


def known_before(store: Store, problem: Problem, index: int) -> Past | None:
    """Return what a search on file knew when it began, if it began with a memory."""
    found = next((e for e in store.events(index) if e.kind == REMEMBERED), None)
    return None if found is None else Past.from_dict(found.detail, problem.schema)


def memory_of(store: Store, problem: Problem, index: int = 0) -> Memory:
    """Return all that a run on file knows about one of its people.

    Of the LLM's edits, those that are part of an option, with their reasons, can be restored.
    """
    query = store.query(index)
    if query is None:
        raise InputError(f"{store.path} holds no query {index}")
    memory, new = Memory(), Past()
    past = memory.of(problem, read_again(problem.schema, query.values()))
    past.add(known_before(store, problem, index) or Past())
    for recorded in store.answers(index):
        if isinstance(recorded.answer, Answers):
            new.add_answers(recorded.rows, recorded.answer)
        else:
            new.calls += 1
    llm = str(store.manifest.get("llm") or "")
    for option in store.options(index):
        row = read_again(problem.schema, option.row.values())
        new.reasons[row] = kept_reasons(option.reasons, llm)
        for name in option.changes:
            given = [reason for reason in option.reasons if reason.startswith(f"{name}: ")]
            if given:
                value = row[problem.schema.index(name)]
                why = given[0].removeprefix(f"{name}: ") if given[0] in new.reasons[row] else ""
                new.edits.append(Edit(name, value, why))
    past.add(new)
    return memory


def rows_before(store: Store, index: int, kind: str) -> int:
    """Return how many rows the events of a kind count that this person's search has paid for.

    Of `FORM_SOUGHT`, or of those that tell what trying the model took (`PROBED`).
    """
    return sum(int(e.detail.get("rows", 0)) for e in store.events(index) if e.kind == kind)


def spent_before(store: Store, index: int, price: Price | None) -> Spent:
    """Return what the answers on file cost, and the time and attempts up to the last record.

    The ledger filed with an answer may count others that were under way and never recorded: they
    will be asked, and paid for, again.
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
