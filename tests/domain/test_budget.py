from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waysout.domain.budget import Budget, Ledger, Spent
from waysout.errors import BudgetSpent, InputError


def test_rows_are_a_hard_limit_and_a_refusal_spends_nothing() -> None:
    ledger = Ledger(Budget(oracle_rows=7))
    ledger.take_rows(5)
    with pytest.raises(BudgetSpent, match="3 more oracle rows would pass the limit of 7"):
        ledger.take_rows(3)
    ledger.take_rows(2)
    assert ledger.spent.oracle_rows == 7
    assert ledger.rows_left == 0


def test_set_up_is_for_the_model_and_for_each_person() -> None:
    budget = Budget()
    assert (budget.setup_rows, budget.probe_rows, budget.own_setup_rows) == (60, 48, 12)
    assert budget.again_rows == 8
    for rows in range(1, 100):
        budget = Budget(setup_rows=rows)
        assert budget.probe_rows + budget.own_setup_rows == rows
        assert budget.again_rows < budget.own_setup_rows


def test_setup_rows_have_their_own_allowance() -> None:
    ledger = Ledger(Budget(oracle_rows=0, setup_rows=2))
    ledger.take_setup_rows(2)
    with pytest.raises(BudgetSpent, match="setup rows"):
        ledger.take_setup_rows(1)


def test_calls_in_flight_count_before_they_are_paid() -> None:
    ledger = Ledger(Budget(llm_calls=2))
    first, second = ledger.reserve_call(), ledger.reserve_call()
    with pytest.raises(BudgetSpent, match="all 2 LLM calls"):
        ledger.reserve_call()
    ledger.count_attempt()
    first.release()
    ledger.reserve_call()
    ledger.count_attempt()
    second.settle(tokens_in=10, tokens_out=3)
    spent = ledger.spent
    assert (spent.llm_calls, spent.attempts, spent.tokens_in, spent.tokens_out) == (1, 2, 10, 3)
    assert ledger.calls_left == 0


def test_tokens_and_money_are_reserved_at_their_worst() -> None:
    ledger = Ledger(Budget(tokens=100, money=1.0))
    call = ledger.reserve_call(most_tokens=60, most_money=0.6)
    with pytest.raises(BudgetSpent, match="100 tokens"):
        ledger.reserve_call(most_tokens=60)
    with pytest.raises(BudgetSpent, match="limit of 1 in money"):
        ledger.reserve_call(most_money=0.6)
    call.settle(tokens_in=20, tokens_out=10, money=0.3)
    ledger.reserve_call(most_tokens=60, most_money=0.6)


def test_a_reservation_ends_once() -> None:
    call = Ledger().reserve_call()
    call.release()
    with pytest.raises(RuntimeError, match="settled or released before"):
        call.settle()


def test_time_runs_out_for_calls_and_rows() -> None:
    now = [0.0]
    ledger = Ledger(Budget(seconds=10), clock=lambda: now[0])
    ledger.take_rows(1)
    now[0] = 10.0
    for spend in (ledger.reserve_call, lambda: ledger.take_rows(1)):
        with pytest.raises(BudgetSpent, match="deadline of 10 seconds"):
            spend()


def test_time_that_others_took_is_given_back() -> None:
    now = [0.0]
    ledger = Ledger(Budget(seconds=10), clock=lambda: now[0])
    now[0] = 12.0
    ledger.return_seconds(5.0)
    ledger.check_deadline()
    assert (ledger.seconds, ledger.seconds_left) == (7.0, 3.0)
    now[0] = 15.0
    with pytest.raises(BudgetSpent, match="deadline of 10 seconds"):
        ledger.check_deadline()


@pytest.mark.parametrize("count", [-5, 1.5, float("nan"), True, "3"])
def test_rows_are_counted_in_whole_numbers(count: object) -> None:
    ledger = Ledger()
    with pytest.raises(ValueError, match="whole number"):
        ledger.take_rows(count)  # type: ignore[arg-type]
    assert ledger.spent.oracle_rows == 0


def test_a_resumed_ledger_goes_on_where_it_stopped() -> None:
    before = Spent(llm_calls=29, oracle_rows=100, seconds=5.0)
    ledger = Ledger(Budget(), before=before, clock=lambda: 3.0)
    ledger.reserve_call()
    with pytest.raises(BudgetSpent):
        ledger.reserve_call()
    assert ledger.spent == before


@pytest.mark.parametrize(
    "limit",
    [{"llm_calls": -1}, {"llm_calls": "3"}, {"oracle_rows": 2.5}, {"tokens": True},
     {"seconds": float("nan")}, {"money": "1"}],
)  # fmt: skip
def test_budgets_that_cannot_be(limit: dict[str, object]) -> None:
    with pytest.raises(InputError, match="0 or more"):
        Budget(**limit)  # type: ignore[arg-type]


def test_spent_goes_both_ways() -> None:
    spent = Spent(llm_calls=3, money=0.5)
    assert Spent.from_dict(spent.as_dict()) == spent
    with pytest.raises(InputError, match="did you mean 'llm_calls'"):
        Spent.from_dict({"llm_call": 3})


@given(st.lists(st.integers(0, 20)), st.integers(0, 60))
def test_no_sequence_passes_the_limit(batches: list[int], limit: int) -> None:
    ledger = Ledger(Budget(oracle_rows=limit))
    taken = 0
    for batch in batches:
        try:
            ledger.take_rows(batch)
            taken += batch
        except BudgetSpent:
            assert taken + batch > limit
    assert ledger.spent.oracle_rows == taken <= limit


def test_threads_share_one_limit() -> None:
    ledger = Ledger(Budget(oracle_rows=1000))

    def spend() -> None:
        for _ in range(400):
            try:
                ledger.take_rows(1)
            except BudgetSpent:
                return

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.spent.oracle_rows == 1000


def test_set_up_rows_without_an_answer_are_given_back() -> None:
    ledger = Ledger(Budget(setup_rows=10))
    ledger.take_setup_rows(8)
    ledger.return_setup_rows(8)
    ledger.take_setup_rows(10)
    assert ledger.spent.setup_rows == 10
