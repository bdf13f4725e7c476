"""A small loan table of our own, so that everything works on a machine with no data.

It is synthetic: no row stands for a real person, and its approval rule is invented. Only uniform
draws and exact arithmetic are used (no logarithms, no exponentials), so that the table has the same
bytes on every platform.
"""

from __future__ import annotations

import csv
import io

import numpy as np
from numpy.typing import NDArray

ROWS = 2000
SEED = 42

COLUMNS = (
    "age", "education", "employment", "income", "savings", "other_debts", "card_use",
    "credit_score", "loan_amount", "loan_months", "co_signer", "decision",
)  # fmt: skip
EDUCATION = ("primary", "secondary", "bachelor", "master")
EMPLOYMENT = ("unemployed", "part-time", "self-employed", "full-time")

Floats = NDArray[np.float64]


def make_csv() -> bytes:
    """Return the table as a CSV file."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    rng = np.random.Generator(np.random.PCG64(SEED))
    person = _people(rng)
    money = _money(rng, person)
    loan = _loans(rng, person | money)
    approved = _approved(rng, person | money | loan)
    whole = {name: values.astype(np.int64) for name, values in (person | money | loan).items()}
    columns: dict[str, NDArray[np.generic]] = whole | {
        "card_use": money["card_use"],
        "education": np.array(EDUCATION)[whole["education"]],
        "employment": np.array(EMPLOYMENT)[whole["employment"]],
        "co_signer": np.where(loan["co_signer"] > 0, "yes", "no"),
        "decision": np.where(approved, "approved", "refused"),
    }
    writer.writerows(zip(*(columns[name].tolist() for name in COLUMNS), strict=True))
    return text.getvalue().encode()


def _bell(rng: np.random.Generator) -> Floats:
    """Draw from a bell curve of mean 0 and deviation 1, as a sum of twelve uniform draws."""
    total = np.full(ROWS, -6.0)
    for _ in range(12):
        total += rng.random(ROWS)
    return total


def _pick(rng: np.random.Generator, cumulative: tuple[float, ...]) -> Floats:
    return np.searchsorted(np.array(cumulative), rng.random(ROWS), side="right").astype(np.float64)


def _rounded(values: Floats, to: int, low: float, high: float) -> Floats:
    steps: Floats = np.rint(values / to)
    return np.minimum(np.maximum(steps * to, low), high)


def _people(rng: np.random.Generator) -> dict[str, Floats]:
    draw = rng.random(ROWS)
    return {
        "age": np.floor(21 + 28 * draw + 18 * draw * draw),
        "education": _pick(rng, (0.12, 0.55, 0.85)),
        "employment": _pick(rng, (0.11, 0.28, 0.44)),
    }


def _money(rng: np.random.Generator, person: dict[str, Floats]) -> dict[str, Floats]:
    age, job = person["age"], person["employment"]
    usual = 19_000 + 7_000 * person["education"] + 350 * (np.minimum(age, 55) - 21)
    share = np.array([0.4, 0.6, 1.05, 1.0])[job.astype(np.int64)]
    income = _rounded(usual * share * np.maximum(1 + 0.25 * _bell(rng), 0.4), 500, 6_000, 150_000)
    income = np.where(job == 0, np.minimum(income, 18_000), income)
    income = np.where(job == 3, np.maximum(income, 16_000), income)
    thrift = np.maximum(0.1 + 0.006 * (age - 21) + 0.2 * _bell(rng), 0)
    debts = np.maximum(0.2 + 0.25 * _bell(rng), 0)
    card_use = np.clip(0.45 - 0.4 * (thrift - 0.2) + 0.4 * debts + 0.2 * _bell(rng) - 0.08, 0, 1)
    score = 662 - 190 * (card_use - 0.45) - 90 * (debts - 0.2) + 0.9 * (age - 40)
    score += 40 * _bell(rng) - 25 * (job == 0)
    return {
        "income": income,
        "savings": _rounded(income * thrift, 100, 0, 200_000),
        "other_debts": _rounded(income * debts, 100, 0, 200_000),
        "card_use": np.rint(card_use * 100) / 100,
        "credit_score": _rounded(score, 1, 300, 850),
    }


def _loans(rng: np.random.Generator, of: dict[str, Floats]) -> dict[str, Floats]:
    draw = rng.random(ROWS)
    wish = 0.15 + 0.5 * draw + 0.6 * draw * draw
    amount = _rounded(of["income"] * wish, 500, 1_000, 80_000)
    years = np.clip(np.floor(1 + 4 * wish + 3 * rng.random(ROWS)), 1, 7)
    years = np.minimum(years, 70 - of["age"])  # the card's rule: repaid by the age of 70
    return {
        "loan_amount": amount,
        "loan_months": 12 * years,
        "co_signer": (rng.random(ROWS) < 0.15).astype(np.float64),
    }


def _approved(rng: np.random.Generator, of: dict[str, Floats]) -> NDArray[np.bool_]:
    """Decide by an invented rule: what the loan weighs, the record, the cushion, and chance."""
    helped = of["co_signer"] > 0
    repaid = of["loan_amount"] * (1 + 0.0025 * of["loan_months"]) / of["loan_months"] * 12
    burden = (repaid + 0.25 * of["other_debts"]) / of["income"]
    # A co-signer carries half of a heavy burden, and most of what an unsteady job would cost.
    weight = -10.0 * np.maximum(burden - 0.2, 0) * np.where(helped, 0.5, 1.0)
    job = np.array([-2.2, -0.5, -0.2, 0.4])[of["employment"].astype(np.int64)]
    job = job * np.where(helped, 0.3, 1.0)
    record = 0.018 * (np.minimum(of["credit_score"], 760) - 650)
    record += np.where((of["credit_score"] < 580) & ~helped, -1.5, 0.0)
    cushion = 1.2 * np.minimum(of["savings"] / of["loan_amount"], 1.0)
    cards = -3.0 * np.maximum(of["card_use"] - 0.6, 0)
    score = -0.5 + weight + job + record + cushion + cards + 0.45 * _bell(rng)
    return np.asarray(score > 0)
