"""The autoencoder behind cchvae: its likelihoods, what it learns, and rows there and back."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from baseline_cases import Table

from waysout.bench.methods.learned.coding import Matrix
from waysout.bench.methods.learned.training import TrainingTable, training_table
from waysout.domain.schema import Feature, Row, Schema

torch = pytest.importorskip("torch", reason="the autoencoder is made with PyTorch")

from waysout.bench.methods.learned.vae import Draw, Vae, VaeLayout, VaeRecipe  # noqa: E402
from waysout.bench.methods.learned.vae_net import (  # noqa: E402
    Heads,
    Network,
    Sizes,
    Targets,
    log_likelihood,
)

SCHEMA = Schema(
    (
        Feature("sex", "category", levels=("f", "m")),
        Feature("gain", "integer"),
        Feature("debt", "number", decimals=1, missing="fill"),
        Feature("job", "category", levels=("none", "cook", "clerk"), missing="fill"),
        Feature("school", "category", levels=("basic", "high", "more"), ordered=True),
        Feature("owns", "boolean"),
    )
)
CPU = torch.device("cpu")


def people(count: int = 300) -> Table:
    """Return rows in which job, school and owns follow from one hidden thing, as sex does not."""
    rng = np.random.default_rng(5)
    rows = tuple(_somebody(rng, i) for i in range(count))
    return Table(rows, tuple(i % 3 == 0 for i in range(count)))


def _somebody(rng: np.random.Generator, i: int) -> Row:
    rich = float(rng.normal())
    gain = 0 if rich < 0.5 else round(100 * rich)  # seven of ten have none
    job = None if i % 10 == 0 else ("none" if rich < -1 else "cook" if rich < 0.3 else "clerk")
    debt = None if i % 7 == 0 else round(5 - rich, 1)
    school = "basic" if rich < -0.5 else "high" if rich < 0.8 else "more"
    return ("fm"[int(rng.integers(2))], gain, debt, job, school, rich > 0)


@pytest.fixture(scope="module")
def table() -> TrainingTable:
    return training_table(people(), SCHEMA)


@pytest.fixture(scope="module")
def model(table: TrainingTable) -> Vae:
    recipe = VaeRecipe(fixed=("sex",), latent=4, hidden=32, steps=250, rate=1e-2)
    weights, training = recipe.train(table, CPU, lambda what, share: None)
    assert set(training) == {"steps", "reconstruction", "kl"}
    return recipe.load(table, weights, CPU)


def places_of(heads: Heads) -> list[int]:
    return [part.shape[1] for part in heads]


def test_a_layout_tells_what_is_given_and_what_is_explained(table: TrainingTable) -> None:
    layout = VaeLayout.of(table, ["sex"])
    assert layout.given == (0,)
    assert layout.numbers == (1, 2, 4)  # an ordered category has a rank
    assert layout.levels == (3, 5)
    assert layout.flags == (2, 3)
    assert layout.free == (1, 2, 3, 4, 5)


def test_a_stretch_is_as_wide_as_the_rows_that_share_a_value() -> None:
    rows: tuple[Row, ...] = tuple((value,) for value in (0, 0, 0, 0, 5, 5, 7, 7))
    shared = Table(rows, (True,) * 4 + (False,) * 4)
    schema = Schema((Feature("gain", "integer"),))
    layout = VaeLayout.of(training_table(shared, schema), ())
    low, high = layout.ranges(schema.encode([(0,), (5,), (7,)]))
    assert low[:, 0] == pytest.approx([-50.0, 0.0, 0.6745], abs=1e-3)
    assert high[:, 0] == pytest.approx([0.0, 0.6745, 50.0], abs=1e-3)
    assert layout.places(schema.encode([(0,)]), (0,))[0] == pytest.approx(-0.6745, abs=1e-3)


def likelihood(heads: Heads, low: float, high: float, level: int, *, missing: bool) -> float:
    """Return how likely a row with one number, one level and one flag is."""
    known = torch.tensor([[0.0 if missing else 1.0]])
    targets = Targets(
        low=torch.tensor([[low]]),
        high=torch.tensor([[high]]),
        has_number=known,
        level=torch.tensor([[level]]),
        has_level=known,
        missing=1 - known,
    )
    return float(log_likelihood(heads, targets).exp()[0])


HEADS = Heads(
    mean=torch.tensor([[0.3]]),
    log_scale=torch.tensor([[-0.5]]),
    logits=torch.tensor([[[0.0, 1.0, -torch.inf]]]),
    missing=torch.tensor([[-1.0]]),
)


def test_the_likelihoods_of_all_rows_add_up_to_one() -> None:
    ends = [-50.0, -1.0, 0.2, 0.21, 3.0, 50.0]
    values = list(pairwise(ends))
    known = [
        likelihood(HEADS, *value, level, missing=False) for value in values for level in (0, 1)
    ]
    gone = likelihood(HEADS, 0.0, 1.0, 0, missing=True)
    assert sum(known) + gone == pytest.approx(1.0, abs=1e-5)
    assert gone == pytest.approx(1 / (1 + math.e), abs=1e-5)


def test_a_value_far_from_the_mean_still_has_a_gradient() -> None:
    mean = torch.tensor([[40.0]], requires_grad=True)
    heads = HEADS._replace(mean=mean, log_scale=torch.tensor([[-4.0]]))
    one = torch.ones((1, 1))
    targets = Targets(-one, one, one, one.long(), one, 0 * one)
    log_likelihood(heads, targets).sum().backward()
    assert math.isfinite(float(mean.grad[0, 0]))
    assert float(mean.grad[0, 0]) < 0


def test_levels_a_feature_has_not_are_never_drawn() -> None:
    sizes = Sizes(
        inputs=5, given=0, numbers=0, levels=(3, 2), flags=0, latent=2, mixture=1, hidden=4
    )
    heads = Network(sizes).decode(torch.zeros((500, 2)), torch.zeros((500, 0)))
    assert heads.logits.shape == (500, 2, 3)
    assert torch.isneginf(heads.logits[:, 1, 2]).all()
    draw = Draw.of(Heads(*(p.detach().double().numpy() for p in heads)), np.random.default_rng(0))
    assert set(draw.levels[:, 1].tolist()) == {0, 1}
    assert set(draw.levels[:, 0].tolist()) == {0, 1, 2}


def test_equal_recipes_learn_the_same_and_leave_the_callers_draws_alone(
    table: TrainingTable,
) -> None:
    recipe = VaeRecipe(latent=2, hidden=8, steps=5)
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    weights, again = (recipe.train(table, CPU, lambda what, share: None)[0] for _ in "ab")
    assert all(np.array_equal(weights[name], again[name]) for name in weights)
    assert torch.equal(torch.random.get_rng_state(), before)
    other = VaeRecipe(latent=2, hidden=8, steps=5, seed=1)
    unlike = other.train(table, CPU, lambda what, share: None)[0]
    assert not np.array_equal(weights["prior.weight"], unlike["prior.weight"])


def test_what_is_held_fixed_decides_what_is_learned() -> None:
    assert VaeRecipe(fixed=("sex",)).settings() != VaeRecipe().settings()
    assert VaeRecipe(fixed=("sex", "job")).settings() == VaeRecipe(fixed=("job", "sex")).settings()


def test_who_does_not_want_to_wait_ends_the_learning(table: TrainingTable) -> None:
    shares = []

    def enough(what: str, share: float) -> None:
        shares.append(share)
        if share > 0.3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        VaeRecipe(latent=2, hidden=8, steps=60).train(table, CPU, enough)
    assert shares == sorted(shares)
    assert shares[-1] < 0.4


def test_places_tell_rows_apart(model: Vae) -> None:
    """What the rows are made of is in the latent space, and comes back from there."""
    rows: list[Row] = [
        ("f", 0, 7.0, "none", "basic", False),
        ("f", 150, 3.5, "clerk", "more", True),
    ]
    matrix = SCHEMA.encode(rows)
    heads = model.decode(model.encode(matrix), model.layout.places(matrix, model.layout.given))
    assert places_of(heads) == [3, 3, 2, 2]
    numbers = dict(zip(("gain", "debt", "school"), heads.mean.T, strict=True))
    assert numbers["gain"][1] > numbers["gain"][0] + 0.5
    assert numbers["debt"][1] < numbers["debt"][0] - 0.5
    assert numbers["school"][1] > numbers["school"][0] + 0.5
    jobs = heads.logits[:, 0]
    assert jobs[0].argmax() == 0
    assert jobs[1].argmax() == 2


def test_rows_drawn_look_like_those_known(model: Vae, table: TrainingTable) -> None:
    drawn = SCHEMA.encode(model.sample(3000, np.random.default_rng(0)))
    for j in range(len(SCHEMA)):
        real, made = table.matrix[:, j], drawn[:, j]
        assert np.isnan(made).mean() == pytest.approx(np.isnan(real).mean(), abs=0.08)
        assert np.nanmean(made) == pytest.approx(np.nanmean(real), abs=0.3 * float(np.nanstd(real)))
    assert np.mean(drawn[:, 1] == 0) == pytest.approx(np.mean(table.matrix[:, 1] == 0), abs=0.1)
    both = np.corrcoef(drawn[:, 4], drawn[:, 5])[0, 1]
    assert both > 0.4  # school and owns go together
    assert len(model.sample(0, np.random.default_rng(0))) == 0


def test_what_is_given_is_drawn_from_the_known_rows() -> None:
    only: Matrix = SCHEMA.encode([("m", 0, 1.0, "cook", "high", True)] * 4)
    made = training_table(Table(tuple(SCHEMA.decode(only)), (True, True, False, False)), SCHEMA)
    recipe = VaeRecipe(fixed=("sex", "owns"), latent=2, hidden=8, steps=5)
    small = recipe.load(made, recipe.train(made, CPU, lambda what, share: None)[0], CPU)
    rows = small.sample(20, np.random.default_rng(0))
    assert {(row[0], row[5]) for row in rows} == {("m", True)}
    assert {row[1] for row in rows} == {0}


def test_blur_is_no_change(model: Vae) -> None:
    row: Row = ("f", 0, 5.0, "cook", "high", False)
    person = model.person(row)
    heads = model.decode(person.latent, person.given)
    logits = np.array([[[0.0, 2.0, 2.4], [0.0, 0.6, -np.inf]]])
    draw = Draw(
        numbers=np.array([[0.0, person.low[0, 1] - 0.4, person.high[0, 2] + 0.6]]),
        levels=np.array([[2, 1]]),
        missing=np.zeros((1, 2), np.bool_),
    )
    moved = heads._replace(mean=person.mean - 0.7, logits=logits)
    assert model.blurred(person, moved, draw, 0.5)[0].tolist() == [
        False,  # given, so never drawn
        True,  # 0 is in the stretch that the seven of ten without a gain share
        True,
        True,  # clerk is likelier than cook by less than 0.5
        False,
        False,
    ]
    same = heads._replace(logits=logits)
    assert model.blurred(person, same, draw, 0.5)[0, 4]  # drawn elsewhere by chance alone
    gone = model.person((*row[:3], None, *row[4:]))
    # However much is blur, where nothing is there nothing is blurred.
    assert [model.blurred(who, moved, draw, 100.0)[0, 3] for who in (person, gone)] == [True, False]


def test_a_row_with_gaps_and_unseen_values_has_a_place(model: Vae) -> None:
    person = model.person(("m", 10**6, None, None, "basic", False))
    assert np.isfinite(person.latent).all()
    assert math.isfinite(model.spread(person.latent))


@pytest.mark.parametrize("kind", ["integer", "boolean"])
def test_one_feature_is_enough(kind: str) -> None:
    feature = Feature("x", "integer") if kind == "integer" else Feature("x", "boolean")
    schema = Schema((feature,))
    values: tuple[Row, ...] = (
        ((1,), (2,), (3,), (4,)) if kind == "integer" else ((True,), (False,)) * 2
    )
    made = training_table(Table(values, (True, True, False, False)), schema)
    recipe = VaeRecipe(latent=1, mixture=1, hidden=4, steps=5)
    small = recipe.load(made, recipe.train(made, CPU, lambda what, share: None)[0], CPU)
    assert set(small.sample(200, np.random.default_rng(0))) == set(values)
