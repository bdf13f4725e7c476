"""Runs, work items and answers to file; as a program, a writer that goes on until it is killed."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from waysout.domain.budget import Spent
from waysout.domain.oracle import Answers
from waysout.domain.result import Option, Outcome, OutcomeKind, ResultData
from waysout.domain.schema import Value
from waysout.llm.base import Constraint, Message, Reply, Request, Usage
from waysout.search.work import Answer, Evaluate, Propose, Work
from waysout.store import Store

MODEL = "simulated:7"
MANIFEST = {"method": "comp-mcts", "llm": MODEL, "budget": {"llm_calls": 30}}
QUERY: dict[str, Value] = {"income": 2100.0, "age": 31, "job": "cook", "owner": True, "debt": None}


def propose(number: int) -> tuple[Work, Answer]:
    request = Request(
        (Message("user", f"prompt {number} " + "é" * 3000),),
        seed=number,
        constraint=Constraint("root ::= x", {"type": "object"}),
    )
    # Long and short: rows that fit their page, and rows that run over several.
    text = f"reply {number} " + "x" * (37 * number % 9000)
    return Propose(number, request), Reply(text, Usage(900, 40, 8), 0.1 + number, "length", "m")


def evaluate(number: int) -> tuple[Work, Answer]:
    rows = tuple((2100.0 + i, 31 + number, "cook", True, None) for i in range(5))
    probability = np.random.default_rng(number).random(5)
    return Evaluate(number, rows), Answers(probability, probability > 0.5)


def sample(number: int) -> tuple[Work, Answer]:
    return propose(number) if number % 2 == 0 else evaluate(number)


def spent(number: int) -> Spent:
    return Spent(llm_calls=number, tokens_in=900 * number, seconds=0.1 * number)


def option(number: int) -> Option:
    row = {**QUERY, "age": number}
    return Option(row, {"age": (31, number)}, 0.1 * number, 0.3, 1, f"φ{number}", ("why",))


def result(index: int, kind: OutcomeKind = OutcomeKind.FOUND) -> ResultData:
    return ResultData(QUERY, Outcome(kind), (option(40), option(41)), ledger=spent(3), index=index)


def fill(store: Store, queries: int = 6, answers: int = 12) -> None:
    """A run whose queries take turns, as they do when several are under way."""
    for index in range(queries):
        store.add_query(index, {**QUERY, "age": index})
    for number, index in itertools.product(range(answers), range(queries)):
        store.record(index, number + 1, *sample(number), spent(number + 1), model=MODEL)
        store.options_found(index, [option(number)])
    for index in range(queries - 1):
        store.finish(index, result(index))


def told(store: Store, index: int) -> Iterator[tuple[int, str, str]]:
    """What was recorded, in a form that compares."""
    for recorded in store.answers(index):
        answer = recorded.answer
        exact = answer if isinstance(answer, Reply) else answer.probability.tolist()
        yield recorded.work_id, repr(exact), repr(recorded.rows)


def expected(number: int) -> tuple[int, str, str]:
    work, answer = sample(number)
    exact = answer if isinstance(answer, Reply) else answer.probability.tolist()
    return number, repr(exact), repr(work.rows if isinstance(work, Evaluate) else ())


def main() -> None:
    """Record for ever, and say each time what is on file."""
    with Store.create(Path(sys.argv[1]), MANIFEST) as store:
        store.add_query(0, QUERY)
        for number in itertools.count():
            store.record(0, number + 1, *sample(number), spent(number + 1), model=MODEL)
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
