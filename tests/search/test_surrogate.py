"""Surrogates: what they make of the oracle's answers."""

from __future__ import annotations

import numpy as np
import pytest
from recombine_world import deciles, library_of, make_problem, numbers

from waysout.domain.schema import Edit
from waysout.search.library import Combos, EditLibrary, Matrix
from waysout.search.surrogate import Kind, surrogate

KINDS: list[Kind] = ["linear", "pairwise", "trees", "none"]
NOISE = 0.25


def library(count: int = 3, *, own: bool = True) -> EditLibrary:
    schema = numbers(count)
    return library_of(make_problem(schema, bins=deciles(schema)), (0.0,) * count, own=own)


def drawn(of: EditLibrary, count: int, seed: int = 0) -> Combos:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(len(slot), size=count) for slot in of.slots], axis=1)


def made_of(of: EditLibrary, combos: Combos) -> Matrix:
    """Return how often each effect is in each combination."""
    design = np.zeros((len(combos), len(of.prior)))
    for row, combo in zip(design, combos.tolist(), strict=True):
        for slot, choice in zip(of.slots, combo, strict=True):
            if choice:
                row[list(slot.choices[choice - 1].effects)] += 1.0
    return design


def posterior(of: EditLibrary, combos: Combos, logits: Matrix) -> tuple[Matrix, Matrix]:
    """Return mean and covariance of the effects, straight from the textbook."""
    design = made_of(of, combos)
    precision = np.diag(1 / np.array(of.prior)) + design.T @ design / NOISE**2
    covariance = np.linalg.inv(precision).astype(np.float64)
    return covariance @ design.T @ logits / NOISE**2, covariance


def guessed(kind: Kind, of: EditLibrary, combos: Combos, logits: Matrix, new: Combos) -> Matrix:
    made = surrogate(kind, of)
    made.learn(combos, logits)
    return made.guess(0, np.random.default_rng(0))(new)[:, 0]


# The linear one ---------------------------------------------------------------------------------


def test_the_mean_is_that_of_bayesian_regression() -> None:
    of = library()
    combos, new = drawn(of, 25), drawn(of, 10, seed=1)
    logits = np.sin(np.arange(25.0))
    mean, _ = posterior(of, combos, logits)
    found = guessed("linear", of, combos, logits, new)
    assert found == pytest.approx(made_of(of, new) @ mean, abs=1e-9)


def test_draws_spread_as_the_posterior_does() -> None:
    of = library(2)
    combos, new = drawn(of, 8), drawn(of, 6, seed=1)
    logits = np.cos(np.arange(8.0))
    made = surrogate("linear", of)
    made.learn(combos, logits)
    mean, covariance = posterior(of, combos, logits)
    draws = made.guess(20_000, np.random.default_rng(0))(new)
    design = made_of(of, new)
    assert draws.shape == (6, 20_000)
    assert draws.mean(axis=1) == pytest.approx(design @ mean, abs=0.02)
    assert np.cov(draws) == pytest.approx(design @ covariance @ design.T, abs=0.02)


def test_learning_bit_by_bit_is_learning_at_once() -> None:
    of = library()
    combos, logits, new = drawn(of, 30), np.sin(np.arange(30.0)), drawn(of, 10, seed=1)
    made = surrogate("linear", of)
    for part in np.split(np.arange(30), 6):
        made.learn(combos[part], logits[part])
    bits = made.guess(0, np.random.default_rng(0))(new)[:, 0]
    assert bits == pytest.approx(guessed("linear", of, combos, logits, new), abs=1e-9)


@pytest.mark.parametrize("kind", ["linear", "pairwise"])
def test_a_library_that_grows_is_as_one_that_was_whole(kind: Kind) -> None:
    edits = [Edit(f"n{i}", value) for value in (30.0, 70.0, 90.0) for i in range(3)]
    schema = numbers(3)
    problem = make_problem(schema, bins=deciles(schema))
    whole, growing = (library_of(problem, (0.0,) * 3, own=False) for _ in range(2))
    for edit in edits:
        whole.add(edit)
    made = surrogate(kind, growing)
    logits = np.sin(np.arange(12.0))
    asked: list[tuple[int, ...]] = []
    for stage, batch in enumerate(np.split(logits, 3)):
        for edit in edits[: 2 + 3 * stage]:
            growing.add(edit)
        combos = drawn(growing, 4, seed=stage)
        asked += [tuple(combo) for combo in combos.tolist()]
        made.learn(combos, batch)
    for edit in edits:
        growing.add(edit)
    assert [slot.lever for slot in growing.slots] == [slot.lever for slot in whole.slots]
    new = drawn(whole, 10, seed=9)
    at_once = guessed(kind, whole, whole.padded(asked), logits, new)
    assert made.guess(0, np.random.default_rng(0))(new)[:, 0] == pytest.approx(at_once, abs=1e-9)


def test_what_was_never_asked_is_unsure() -> None:
    of = library(2)
    made = surrogate("linear", of)
    made.learn(np.tile([[3, 0]], (20, 1)), np.full(20, 1.0))
    draws = made.guess(500, np.random.default_rng(0))(np.array([[3, 0], [0, 3], [0, 0]]))
    known, unknown, nothing = draws.std(axis=1)
    assert known < 0.1 < unknown
    assert nothing == 0.0


# Interactions -----------------------------------------------------------------------------------


def moved(of: EditLibrary, *slots: int) -> tuple[int, ...]:
    return tuple(5 if i in slots else 0 for i in range(len(of.slots)))


def xor(of: EditLibrary) -> tuple[Combos, Matrix]:
    combos = of.padded([moved(of), moved(of, 0), moved(of, 1), moved(of, 0, 1)] * 10)
    return combos, np.array([0.0, 3.0, 3.0, 0.0] * 10)


@pytest.mark.parametrize("kind", ["pairwise", "trees"])
def test_interactions_are_learnt(kind: Kind) -> None:
    of = library()
    combos, logits = xor(of)
    _, first, second, both = guessed(kind, of, combos, logits, combos[:4])
    assert min(first, second) > 2.0
    assert both < 0.7


def test_a_sum_of_effects_cannot_learn_them() -> None:
    of = library()
    combos, logits = xor(of)
    _, first, second, both = guessed("linear", of, combos, logits, combos[:4])
    assert both == pytest.approx(first + second)
    assert first < 1.5


def test_levers_beyond_the_paired_ones_still_add_up() -> None:
    of = library(30, own=False)
    for name in of.problem.schema.names:
        for value in (15.0, 25.0, 35.0, 45.0, 55.0):
            of.add(Edit(name, value))
    combos = of.padded([moved(of, 28), moved(of, 29)] * 10)
    found = guessed("pairwise", of, combos, np.full(20, 2.0), of.padded([moved(of, 28, 29)]))
    assert found[0] > 3.0


def test_trees_learn_a_step() -> None:
    of = library(2)
    combos = drawn(of, 60)
    logits = np.where(combos[:, 0] > 4, 2.0, 0.0)
    low, high = guessed("trees", of, combos, logits, of.padded([(2,), (8,)]))
    assert low < 0.5 < 1.5 < high


def test_trees_know_the_query_too() -> None:
    of = library(2)
    asked, new = of.padded([(9,), (0, 9), (9, 9)]), of.padded([(), (9, 9)])
    here, there = guessed("trees", of, asked, np.full(3, 2.0), new)
    assert here < 1.5 < there


def test_the_best_guess_of_trees_is_their_mean() -> None:
    of = library(2)
    made, combos = surrogate("trees", of), of.padded([(i, j) for i in range(9) for j in range(9)])
    made.learn(combos, np.sin(np.arange(81.0)))
    best, each = (made.guess(draws, np.random.default_rng(0))(combos) for draws in (0, 16))
    assert best[:, 0] == pytest.approx(each.mean(axis=1))


def test_trees_grow_with_the_library() -> None:
    of = library(2)
    made = surrogate("trees", of)
    made.learn(of.padded([(5, 0), (0, 5)]), np.array([2.0, -2.0]))
    of.add(Edit("n1", 55.5))
    assert made.guess(4, np.random.default_rng(0))(of.padded([(5, 0)])).shape == (1, 4)


# What all have in common ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_without_draws_there_is_one_guess(kind: Kind) -> None:
    of = library()
    combos = drawn(of, 7)
    made = surrogate(kind, of)
    made.learn(combos, np.ones(7))
    assert made.guess(0, np.random.default_rng(0))(combos).shape == (7, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_guesses_are_drawn_once(kind: Kind) -> None:
    of = library()
    combos = drawn(of, 7)
    made = surrogate(kind, of)
    made.learn(combos, np.arange(7.0))
    guess = made.guess(5, np.random.default_rng(3))
    assert guess(combos).tolist() == guess(combos).tolist()
    again = made.guess(5, np.random.default_rng(3))
    assert guess(combos).tolist() == again(combos).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_before_any_answer_nothing_is_expected(kind: Kind) -> None:
    of = library()
    found = surrogate(kind, of).guess(0, np.random.default_rng(0))(drawn(of, 7))
    assert found.tolist() == [[0.0]] * 7


def test_none_expects_nothing_ever() -> None:
    of = library()
    combos = drawn(of, 7)
    assert not guessed("none", of, combos, np.ones(7), combos).any()
