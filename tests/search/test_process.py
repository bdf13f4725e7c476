"""The process against the same computed the long way, with whole matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from waysout.search.process import (
    AGREED,
    APART,
    MOVE,
    NOISE,
    OWN_LEVEL,
    TAUGHT,
    WALK,
    MoveProcess,
    _covariance,
    _opinions,
)
from waysout.search.steps import DOWN, LEVEL, UP, StepMoves

Matrix = NDArray[np.float64]


def some_moves(count: int, width: int = 4, seed: int = 0) -> StepMoves:
    rng = np.random.default_rng(seed)
    way = rng.choice([-1, UP, DOWN, LEVEL], size=(count, width)).astype(np.int8)
    numbers = (way == UP) | (way == DOWN)
    at = np.where(numbers, rng.uniform(0.1, 1, way.shape), np.where(way == LEVEL, 1.0, 0.0))
    level = np.where(way == LEVEL, rng.integers(3, size=way.shape), 0).astype(np.int32)
    return StepMoves(way, at, level)


def some_students(count: int, many: int, seed: int = 1) -> Matrix:
    return np.random.default_rng(seed).normal(size=(count, many))


def shared(one: StepMoves, i: int, other: StepMoves, j: int) -> float:
    """Return what two combinations share, lever by lever."""
    total = 0.0
    for slot in range(one.way.shape[1]):
        way = one.way[i, slot]
        if way < 0 or way != other.way[j, slot]:
            continue
        if way == LEVEL:
            total += MOVE + OWN_LEVEL * (one.level[i, slot] == other.level[j, slot])
        else:
            total += MOVE + WALK * min(one.at[i, slot], other.at[j, slot])
    return total


def kernel(one: StepMoves, students: Matrix, other: StepMoves, others: Matrix) -> Matrix:
    found: Matrix = np.array(
        [[shared(one, i, other, j) for j in range(len(other))] for i in range(len(one))]
    ).reshape(len(one), len(other))
    if not students.shape[1]:
        return found
    mean, means = students.mean(axis=1), others.mean(axis=1)
    apart = (students - mean[:, None]) @ (others - means[:, None]).T
    taught: Matrix = TAUGHT * found + AGREED * np.outer(mean, means) + APART * apart
    return taught


def the_long_way(
    moves: StepMoves, students: Matrix, logits: Matrix, new: StepMoves, opinions: Matrix
) -> tuple[Matrix, Matrix]:
    """Return mean and variance from the textbook's formulas."""

    def centre(of: Matrix) -> Matrix:
        found: Matrix = of.mean(axis=1) if of.shape[1] else np.zeros(len(of))
        return found

    covariance = kernel(moves, students, moves, students) + NOISE * np.eye(len(moves))
    across = kernel(new, opinions, moves, students)
    left = logits - centre(students)
    solved = np.linalg.solve(covariance, left)
    own = np.diag(kernel(new, opinions, new, opinions))
    variance = own - np.einsum("ij,ji->i", across, np.linalg.solve(covariance, across.T))
    size = (12 + left @ solved) / (12 + len(left))
    return centre(opinions) + across @ solved, size * np.maximum(variance, 1e-6)


@pytest.mark.parametrize("many", [0, 3], ids=["alone", "students"])
@pytest.mark.parametrize("cuts", [[], [1], [5, 6, 20]], ids=str)
def test_it_is_the_posterior_however_the_answers_come(many: int, cuts: list[int]) -> None:
    moves, students = some_moves(30), some_students(30, many)
    logits = np.random.default_rng(2).normal(size=30) * 2
    new, opinions = some_moves(15, seed=3), some_students(15, many, seed=4)
    portions = np.split(np.arange(30), cuts)
    first = portions[0]
    process = MoveProcess(moves[first], students[first], logits[first])
    for portion in portions[1:]:
        process.learn(moves[portion], students[portion], logits[portion])
    assert len(process) == 30
    for got, wanted in zip(
        process.guess(new, opinions),
        the_long_way(moves, students, logits, new, opinions),
        strict=True,
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-8, atol=1e-9)


def test_slots_may_be_added_between_portions() -> None:
    early, late = some_moves(10, width=3), some_moves(10, width=5, seed=5)
    logits = np.linspace(-2, 2, 20)
    none = np.zeros((20, 0))
    process = MoveProcess(early, none[:10], logits[:10])
    process.learn(late, none[10:], logits[10:])
    whole = MoveProcess(early.padded(5).joined(late), none, logits)
    new = some_moves(7, width=5, seed=6)
    for got, wanted in zip(process.guess(new, none[:7]), whole.guess(new, none[:7]), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-8)


def test_before_any_answer_it_believes_the_students() -> None:
    moves, students = some_moves(6), some_students(6, 3)
    process = MoveProcess(moves[:0], students[:0], np.zeros(0))
    mean, variance = process.guess(moves, students)
    np.testing.assert_allclose(mean, students.mean(axis=1))
    np.testing.assert_allclose(variance, np.diag(kernel(moves, students, moves, students)))
    mean, _ = MoveProcess(moves[:0], students[:0, :0], np.zeros(0)).guess(moves, students[:, :0])
    assert not mean.any()


def test_answers_are_met_and_what_they_say_spreads_to_those_alike() -> None:
    steps = np.array([[0.2], [0.4], [0.6], [0.8]])
    moves = StepMoves(np.zeros((4, 1), np.int8), steps, np.zeros((4, 1), np.int32))
    none = np.zeros((4, 0))
    process = MoveProcess(moves[[0, 3]], none[:2], np.array([0.0, 3.0]))
    mean, variance = process.guess(moves, none)
    assert mean[[0, 3]] == pytest.approx([0.0, 3.0], abs=0.2)
    assert mean[0] < mean[1] < mean[2] < mean[3]  # a step between two lies between them
    assert variance[[0, 3]].max() < variance[[1, 2]].min()
    other = StepMoves(np.full((1, 1), DOWN, np.int8), np.ones((1, 1)), np.zeros((1, 1), np.int32))
    assert process.guess(other, none[:1])[0] == 0  # nothing is known of the other direction


def test_levels_share_little_and_the_same_level_all() -> None:
    level = np.array([[0], [0], [1]], np.int32)
    moves = StepMoves(np.full((3, 1), LEVEL, np.int8), np.ones((3, 1)), level)
    process = MoveProcess(moves[:1], np.zeros((1, 0)), np.array([2.0]))
    mean, _ = process.guess(moves, np.zeros((3, 0)))
    assert mean[0] == mean[1] > 3 * mean[2] > 0


@given(st.integers(0, 10_000), st.sampled_from([0, 2]))
def test_more_answers_leave_less_open(seed: int, many: int) -> None:
    """Before it is scaled by what was left unexplained, variance only shrinks."""
    moves, students = some_moves(20, seed=seed), some_students(20, many, seed)
    new, opinions = some_moves(9, seed=seed + 1), some_students(9, many, seed + 1)
    process = MoveProcess(moves[:0], students[:0], np.zeros(0))
    before = process.guess(new, opinions)[1]
    for start in range(0, 20, 5):
        part = slice(start, start + 5)
        process.learn(moves[part], students[part], students[part].sum(axis=1))
        now = process.guess(new, opinions)[1] / process._size
        assert (now <= before + 1e-6).all()
        assert (now > 0).all()
        before = now


def test_the_same_answer_twice_does_no_harm() -> None:
    moves, none = some_moves(1), np.zeros((5, 0))
    process = MoveProcess(moves[[0] * 5], none, np.full(5, 1.5))
    mean, variance = process.guess(moves, none[:1])
    assert mean == pytest.approx([1.5], abs=0.05)
    assert 0 < variance[0] < NOISE
    process.learn(moves[:0], none[:0], np.zeros(0))
    assert len(process) == 5


def test_how_much_is_left_open_follows_the_surprises() -> None:
    moves, none = some_moves(40), np.zeros((40, 0))
    new = some_moves(5, seed=9)
    wild = np.random.default_rng(0).normal(size=40)
    calm, startled = (
        MoveProcess(moves, none, size * wild).guess(new, none[:5])[1] for size in (0, 9)
    )
    assert (startled > 5 * calm).all()


def test_what_two_share_is_symmetric_and_never_negative() -> None:
    moves, students = some_moves(40), some_students(40, 3)
    opinions = _opinions(students)
    found = _covariance(moves, moves, opinions, opinions)
    np.testing.assert_allclose(found, found.T)
    assert np.linalg.eigvalsh(found).min() > -1e-9
