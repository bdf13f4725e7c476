"""C-CHVAE: rings around a person's point in the latent space of an autoencoder.

Points near the query's decode to realistic rows. The model is conditioned on features that the
rules hold fixed; all others are drawn from its likelihood. Rings grow from the query outwards. The
rows they decode to are projected onto the rules rather than refused (a refused row yields no
information, and a method without rules would look weaker than it is), and sent to the oracle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np

from waysout.bench.methods.learned.coding import Matrix
from waysout.bench.methods.learned.training import import_torch, learned, training_table
from waysout.bench.methods.learned.vae import Draw, Vae, VaeRecipe
from waysout.domain.known import Known, need_known
from waysout.domain.problem import Problem
from waysout.domain.rules import Immutable
from waysout.search.base import Case, Method, OnLearning, Search, ignore_progress, least, within
from waysout.search.batches import BATCH, BatchSearch, Candidate
from waysout.search.space import Space

_SURVEY = 4  # a quarter of the rows goes to rings not visited yet
_FEWEST = 10  # rows of a ring at a second visit
_SHARPEST = 0.1  # a smaller blur counts as none
_TRIES = 4  # draws per wanted row; after them, a ring without new rows is closed
# As published: the defaults of the public code, and as many counterfactuals as the paper has
# candidates in a call. It does not say how many it asked for; more than one, by its figures.
_PUBLIC_RING, _PUBLIC_WIDTH, _PUBLIC_RINGS, _PUBLIC_OPTIONS = 1000, 0.5, 500, 5


@dataclass(frozen=True)
class Cchvae(Method):
    """Learns an autoencoder of the known rows, then searches rings around the query in it.

    The autoencoder has ``latent`` dimensions and ``mixture`` components, trains for ``steps`` and
    weighs the divergence from its prior by ``kl_weight``. There are ``rings`` of equal width, the
    last of which ends at ``reach`` times the distance of known rows from the query. Each is looked
    at once; then the nearest of those that find at least ``share`` of what the best one finds. A
    value drawn that differs from the query's own by less than ``keep`` (deviates of its rank; log
    odds of a level) is blur, and stays the query's; once the rings hold nothing else, ``keep`` is
    halved, and so on.

    ``published`` is the public code's search: rings of width 0.5, 1,000 rows each, one after the
    other from the query outwards, decoded as they come; of each the nearest approved row counts,
    until there are five.
    """

    name: ClassVar[str] = "cchvae"
    about: ClassVar[str] = "rings in the latent space of an autoencoder of your data (C-CHVAE)"
    needs_known: ClassVar[bool] = True

    latent: int = within(1, 256, 4)
    mixture: int = within(1, 100, 3)
    kl_weight: float = within(0, 1000, 0.3)
    steps: int = least(1, 4000)
    rings: int = within(1, 1000, 12)
    reach: float = within(0, 1000, 1.5)
    share: float = within(0, 1, 0.5)
    keep: float = within(0, 100, 0.5)
    batch: int = within(1, 10_000, BATCH)
    device: str = "auto"
    published: bool = False

    def prepare(self) -> None:
        """Raise `MissingExtra` where PyTorch is not installed."""
        import_torch()

    def learn(self, problem: Problem, known: Known | None, tell: OnLearning) -> None:
        """Train the autoencoder, or load it from the cache."""
        self.model(problem, known, tell)

    def start(self, case: Case) -> Search:
        """Return a search of the rings around the query."""
        model = self.model(case.problem, case.known, ignore_progress)
        if self.published:
            return _PublishedRings(case.with_row_limit(), model)
        return _RingSearch(case.with_row_limit(), self, model)

    def model(self, problem: Problem, known: Known | None, tell: OnLearning) -> Vae | None:
        """Return the autoencoder; None where every feature is fixed."""
        known = need_known(known, "the method 'cchvae'")
        fixed = fixed_features(problem)
        if len(fixed) == len(problem.schema):
            return None
        recipe = VaeRecipe(
            fixed, self.latent, self.mixture, kl_weight=self.kl_weight, steps=self.steps
        )
        return learned(recipe, training_table(known, problem.schema), self.device, tell)


def fixed_features(problem: Problem) -> tuple[str, ...]:
    """Return the features that may never change, in the schema's order."""
    rules = [rule for rule in problem.rules.rules if isinstance(rule, Immutable)]
    found = {problem.schema[name].name for rule in rules for name in rule.features}
    return tuple(name for name in problem.schema.names if name in found)


class _RingSearch(BatchSearch):
    """Takes each batch from one ring."""

    def __init__(self, case: Case, method: Cchvae, model: Vae | None) -> None:
        super().__init__(case, method.batch)
        self._keep = method.keep
        self._rng = case.generator()
        self._space = Space(case.problem, case.query)
        self._drawn = {self._space.start.tobytes()}  # checking rules costs more than drawing again
        self._rings = LatentRings(method.rings if model and self._space.levers else 0, method.share)
        self._survey = int(self.rows_left) // (_SURVEY * method.rings)
        if model is not None:
            self._model, self._person = model, model.person(case.query)
            self._width = method.reach * model.spread(self._person.latent) / method.rings

    @property
    def thinks(self) -> bool:
        """Whether `ask` may take long: decoding does."""
        return True

    def _batch(self, most: int) -> list[Candidate]:
        batch = self._look(most)
        while not batch and self._keep > 0:
            # Smaller differences are better than ending the search.
            self._keep = self._keep / 2 if self._keep > _SHARPEST else 0.0
            self._rings.reopen()
            batch = self._look(most)
        return batch

    def _look(self, most: int) -> list[Candidate]:
        while (ring := self._rings.next()) is not None:
            fewest = _FEWEST if self._rings.asked[ring] else 1
            wanted = min(most, max(self._survey, fewest))
            batch = list(islice(self._make_candidates(ring, wanted), wanted))
            if batch:
                return batch
            self._rings.close(ring)
        return []

    def _make_candidates(self, ring: int, wanted: int) -> Iterator[Candidate]:
        """Decode points of a ring; skip rows that were drawn before."""
        model, person, start = self._model, self._person, self._space.start
        for _ in range(_TRIES):
            heads = model.decode(self._places(ring, max(wanted, _FEWEST)), person.given)
            draw = Draw.of(heads, self._rng)
            found = model.values(draw)
            own = model.blurred(person, heads, draw, self._keep) | np.isnan(found)
            drawn = {row.tobytes(): row for row in np.where(own, start, found)}
            fresh = [key for key in drawn if key not in self._drawn]
            matrix = np.array([drawn[key] for key in fresh]).reshape(-1, found.shape[1])
            for key, row in zip(fresh, self._space.rows(matrix), strict=True):
                self._drawn.add(key)
                candidate = self._candidate(row)
                if candidate is not None:
                    yield candidate

    def _places(self, ring: int, count: int) -> Matrix:
        return ring_places(self._person.latent, ring, self._width, count, self._rng)

    def _learn(
        self, batch: Sequence[Candidate], chances: Sequence[float], valid: Sequence[bool]
    ) -> None:
        self._rings.note(len(batch), sum(valid))

    def _nothing_left(self) -> str:
        if not self._rings.asked.size:
            return "no feature may change"
        rings = len(self._rings.asked)
        return f"draws from {rings} rings around the query gave nothing new that is allowed"


class _PublishedRings(BatchSearch):
    """C-CHVAE as published: a ring a batch, the nearest approved row of each returned."""

    def __init__(self, case: Case, model: Vae | None) -> None:
        super().__init__(case, _PUBLIC_RING, published=True)
        self._rng = case.generator()
        self._space = Space(case.problem, case.query)
        self._model = model if self._space.levers else None
        self._person = None if self._model is None else self._model.person(case.query)
        self._ring = self._returned = 0

    @property
    def thinks(self) -> bool:
        """Whether `ask` may take long: decoding does."""
        return True

    def _batch(self, most: int) -> list[Candidate]:
        model, person = self._model, self._person
        if model is None or person is None or self._returned == _PUBLIC_OPTIONS:
            return []
        while self._ring < _PUBLIC_RINGS:
            places = ring_places(person.latent, self._ring, _PUBLIC_WIDTH, self._size, self._rng)
            found = model.values(Draw.of(model.decode(places, person.given), self._rng))
            matrix = np.where(np.isnan(found), self._space.start, found)
            self._ring += 1
            if batch := self._candidates(self._space.rows(matrix), self._size):
                return batch
        return []

    def _learn(
        self, batch: Sequence[Candidate], chances: Sequence[float], valid: Sequence[bool]
    ) -> None:
        apart = {i: sum(self._space.sizes(batch[i].row)) for i, yes in enumerate(valid) if yes}
        if apart:
            nearest = min(apart, key=apart.__getitem__)
            self._return(batch[nearest], chances[nearest])
            self._returned += 1

    def _nothing_left(self) -> str:
        if self._model is None:
            return "no feature may change"
        return f"the published search returned {self._returned} rows of {self._ring} rings"


def ring_places(
    here: Matrix, ring: int, width: float, count: int, rng: np.random.Generator
) -> Matrix:
    """Draw latent points in a ring around one, in all directions."""
    ways = rng.standard_normal((count, here.shape[1]))
    lengths = width * (ring + rng.random(count))
    places: Matrix = here + ways * (lengths / np.linalg.norm(ways, axis=1))[:, None]
    return places


class LatentRings:
    """Chooses rings: each once, then the nearest of those with a high yield."""

    def __init__(self, count: int, share: float) -> None:
        self.asked = np.zeros(count, np.int64)
        self.found = np.zeros(count, np.int64)
        self._left = np.ones(count, np.bool_)
        self._share = share
        self._last = 0

    def next(self) -> int | None:
        """Return the next ring; ``None`` if all are closed."""
        open_ = np.flatnonzero(self._left)
        if not len(open_):
            return None
        asked, found = self.asked[open_], self.found[open_]
        if found.any() and asked.all():
            rates = found / asked
            chosen = open_[rates >= self._share * rates.max()][0]
        else:
            chosen = open_[np.argmin(asked)]
        self._last = int(chosen)
        return self._last

    def close(self, ring: int) -> None:
        """Close a ring."""
        self._left[ring] = False

    def reopen(self) -> None:
        """Open all rings again."""
        self._left[:] = True

    def note(self, asked: int, found: int) -> None:
        """Record the oracle rows and the options found in the last ring."""
        self.asked[self._last] += asked
        self.found[self._last] += found
