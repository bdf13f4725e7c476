"""A run on file as a memory: what it paid for goes into the next search."""

from __future__ import annotations

from waysout.domain.edit import Edit
from waysout.domain.memory import Memory, Past, read_again
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import Option
from waysout.domain.schema import Row
from waysout.errors import InputError
from waysout.store import Store

REMEMBERED = "remembered"
"""The kind of event that holds what a search knew when it began."""


def known_before(store: Store, problem: Problem, index: int) -> Past | None:
    """Return what a search on file knew when it began, if it did."""
    told = (e for e in store.events() if e.kind == REMEMBERED and e.index == index)
    found = next(told, None)
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
    before = known_before(store, problem, index) or Past()
    past.answered |= before.answered
    past.edits += before.edits
    past.calls += before.calls
    for recorded in store.answers(index):
        if isinstance(recorded.answer, Answers):
            past.add_answers(recorded.rows, recorded.answer)
        else:
            past.calls += 1
    for option in store.options(index):
        row = read_again(problem.schema, option.row.values())
        past.reasons[row] = option.reasons
        past.edits += [edit for edit in _edits(problem, option, row) if edit not in past.edits]
    return memory


def _edits(problem: Problem, option: Option, row: Row) -> list[Edit]:
    """Return the changes of an option that somebody gave a reason for."""
    found = []
    for name in option.changes:
        given = [reason for reason in option.reasons if reason.startswith(f"{name}: ")]
        if given:
            value = row[problem.schema.index(name)]
            found.append(Edit(name, value, given[0].removeprefix(f"{name}: ")))
    return found
