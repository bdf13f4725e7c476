"""Diffusion over rows: what it learns, what it draws, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import rows, schemas
from waysout.bench.methods.learned.coding import Coding
from waysout.bench.methods.learned.diffusion import Diffusion, DiffusionRecipe, Drawing, places
from waysout.bench.methods.learned.training import TrainingTable, Weights, training_table
from waysout.domain.schema import Feature, Row, Schema

torch = pytest.importorskip("torch", reason="diffusion is learned with PyTorch")

SCHEMA = Schema(
    (
        Feature("income", "number", decimals=1),
        Feature("job", "category", levels=("none", "cook", "clerk"), missing="keep"),
        Feature("owns", "boolean"),
    )
)
TINY = DiffusionRecipe(width=8, blocks=1, steps=3)
SMALL = DiffusionRecipe(width=32, blocks=1, steps=300, batch=64, rate=1e-2)


@dataclass(frozen=True)
class People:
    rows: tuple[Row, ...]
    labels: tuple[bool, ...]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Small networks are quickest on one core, above all where others are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def people(count: int) -> People:
    """Clerks own and are approved, cooks do not and are not; a third of each tells no job."""
    found: list[Row] = []
    for i in range(count):
        yes = i % 2 == 0
        job = None if i % 3 == 0 else "clerk" if yes else "cook"
        found.append(((60.0 if yes else 20.0) + i % 10, job, yes))
    return People(tuple(found), tuple(row[2] is True for row in found))


@cache
def small_table() -> TrainingTable:
    return training_table(people(300), SCHEMA)


def trained(recipe: DiffusionRecipe, table: TrainingTable) -> tuple[Weights, dict[str, Any]]:
    return recipe.train(table, torch.device("cpu"), lambda what, share: None)


@cache
def small_model() -> Diffusion:
    weights, _ = trained(SMALL, small_table())
    return SMALL.load(small_table(), weights, torch.device("cpu"))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def vectors(row: Row, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    encoded = np.repeat(SCHEMA.encode([row]), count, axis=0)
    return small_model().coding.encode(encoded, rng())


# What it learns ---------------------------------------------------------------------------------


@pytest.mark.parametrize("approved", [False, True])
def test_it_draws_rows_like_those_of_an_outcome(approved: bool) -> None:
    drawn = SCHEMA.decode(small_model().sample(300, approved, rng()))
    jobs = [row[1] for row in drawn]
    own = sum(row[2] is approved for row in drawn) / len(drawn)
    rich = sum((float(row[0] or 0) >= 60) is approved for row in drawn) / len(drawn)
    other = jobs.count("cook" if approved else "clerk") / len(jobs)
    assert own > 0.9
    assert rich > 0.9
    assert other < 0.1
    assert jobs.count(None) / len(jobs) == pytest.approx(1 / 3, abs=0.12)


def test_guidance_pulls_a_row_to_the_outcome() -> None:
    start = vectors((24.0, "cook", False), 100)

    def owners(guidance: float) -> float:
        drawn = small_model().vary(start, True, Drawing(0.3, guidance, 10), rng())
        return float(small_model().coding.decode(drawn)[:, 2].mean())

    assert owners(0.0) < 0.1
    assert owners(1.0) > 0.9


def test_no_guidance_forgets_the_outcome() -> None:
    start = vectors((24.0, "cook", False), 20)
    how = Drawing(0.7, guidance=0.0, steps=4)
    yes, no = (small_model().vary(start, label, how, rng()) for label in (True, False))
    assert np.array_equal(yes, no)


def test_training_is_the_same_each_time_and_touches_nobodys_draws() -> None:
    before = torch.random.get_rng_state(), np.random.get_state(legacy=False)["state"]["key"]
    first, told = trained(TINY, small_table())
    again, _ = trained(TINY, small_table())
    other, _ = trained(DiffusionRecipe(width=8, blocks=1, steps=3, seed=1), small_table())
    assert {k: v.tobytes() for k, v in first.items()} == {k: v.tobytes() for k, v in again.items()}
    assert any(not np.array_equal(first[name], other[name]) for name in first)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state(legacy=False)["state"]["key"], before[1])
    assert told["steps"] == 3
    assert np.isfinite(told["loss"])


def test_a_few_rows_are_learned_in_a_few_steps() -> None:
    _, told = trained(DiffusionRecipe(width=8, blocks=1), training_table(people(6), SCHEMA))
    assert told["steps"] == 30


def test_it_says_how_far_it_is() -> None:
    heard: list[tuple[str, float]] = []
    recipe = DiffusionRecipe(width=8, blocks=1, steps=60)
    recipe.train(
        small_table(), torch.device("cpu"), lambda what, share: heard.append((what, share))
    )
    assert [share for _, share in heard] == [0.0, 25 / 60, 50 / 60]
    assert all(what.startswith("loss ") for what, _ in heard)


# What it draws ----------------------------------------------------------------------------------


def test_the_same_draws_give_the_same_rows() -> None:
    start, how = vectors((24.0, "cook", False), 8), Drawing(0.6, 2.0, 5)
    first, again, other = (
        small_model().vary(start, True, how, rng(seed)) for seed in (1, 1, 2)
    )  # fmt: skip
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_what_is_held_stays_and_the_rest_fits_it() -> None:
    start = vectors((24.0, "cook", True), 200)
    block = small_model().coding.blocks[2]
    held = np.zeros(start.shape[1], dtype=np.bool_)
    held[block] = True
    drawn = small_model().vary(start, False, Drawing(1.0, 0.0, 20), rng(), held)
    assert np.array_equal(drawn[:, block], start[:, block])
    free = small_model().vary(start, False, Drawing(1.0, 0.0, 20), rng())
    jobs = [small_model().coding.decode(d)[:, 0].mean() for d in (drawn, free)]
    assert jobs[0] > jobs[1] + 5  # owners are rich, whatever the outcome asked for


def test_little_noise_changes_little() -> None:
    start = vectors((24.0, "cook", False), 100)
    decode = small_model().coding.decode
    far = []
    for strength in (0.01, 0.3, 1.0):
        drawn = decode(small_model().vary(start, True, Drawing(strength, 1.0, 10), rng()))
        far.append(float(np.abs(drawn[:, 0] - 24.0).mean()))
    assert far == sorted(far)
    assert far[0] < 3.0 < 20.0 < far[2]


@settings(max_examples=20)
@given(st.data())
def test_any_table_is_learned_and_drawn_from(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    known = tuple(data.draw(st.lists(rows(schema), min_size=4, max_size=8)))
    table = training_table(People(known, (True, True, *[False] * (len(known) - 2))), schema)
    weights, _ = trained(TINY, table)
    model = TINY.load(table, weights, torch.device("cpu"))
    encoded = schema.encode([data.draw(rows(schema))] * 3)
    start = model.coding.encode(encoded, rng())
    drawn = model.vary(start, True, Drawing(0.5, 3.0, 3), rng())
    assert np.isfinite(drawn).all()
    assert len(model.coding.rows(drawn)) == 3


# The network ------------------------------------------------------------------------------------


def test_places_tell_numbers_levels_and_flags_apart() -> None:
    coding = Coding.fit(SCHEMA, SCHEMA.encode(people(6).rows))
    found = places(coding)
    assert (found.width, found.numbers, found.flags) == (7, (0,), (4,))
    assert found.categories == ((1, 2, 3), (5, 6))


def test_what_is_expected_lies_between_the_levels() -> None:
    model = small_model()
    noisy = torch.from_numpy(rng().normal(scale=3.0, size=(50, 7)).astype(np.float32))
    outcome = torch.ones(50, dtype=torch.long)
    with torch.inference_mode():
        clean = model.net.expected(noisy, torch.full((50,), 0.8), outcome, 5.0)
    assert float(clean[:, 1:].abs().max()) <= 1.0
    assert float(clean[:, 0].abs().max()) <= 3.75
    for block in (slice(1, 4), slice(5, 7)):
        chances = (clean[:, block] + 1) / 2
        assert torch.allclose(chances.sum(dim=1), torch.ones(50), atol=1e-5)


def test_guidance_goes_on_from_no_outcome_past_the_one_learned() -> None:
    net = small_model().net
    noisy = torch.from_numpy(rng().normal(size=(50, 7)).astype(np.float32))
    time, outcome = torch.full((50,), 0.5), torch.ones(50, dtype=torch.long)
    with torch.inference_mode():
        zero, one, three, far = (
            net.expected(noisy, time, outcome, guidance)[:, 0]
            for guidance in (0.0, 1.0, 3.0, 1000.0)
        )
    assert float((one - zero).abs().min()) > 1e-4
    assert torch.allclose(three, (zero + 3 * (one - zero)).clamp(-3.75, 3.75), atol=1e-4)
    assert set(far.abs().tolist()) == {3.75}
    assert bool((torch.sign(far) == torch.sign(one - zero)).all())


@given(st.floats(0.01, 0.999), st.floats(0.0, 0.99), st.integers(0, 9))
def test_a_step_back_leaves_as_much_noise_as_belongs_there(
    start: float, share: float, seed: int
) -> None:
    from waysout.bench.methods.learned.diffusion_net import mixture, step_back

    now, later = torch.full((1,), start), torch.full((1,), start * share)
    clean = torch.tensor([[1.5, -1.0]])
    (row, rest), (row_later, rest_later) = mixture(now), mixture(later)
    draws = torch.from_numpy(rng(seed).normal(size=(2, 4000, 2)).astype(np.float32))
    noisy = row * clean + rest * draws[0]
    back = step_back(noisy, clean, now, later, draws[1])
    left = (back - row_later * clean).std(dim=0)
    assert torch.allclose(left, rest_later.expand(1, 2)[0], rtol=0.06, atol=1e-3)
