"""Whether options last: would a model trained again approve them?

For each table there are 15 models trained as its oracle was, each on a bootstrap of the oracle's
training rows and with a seed of its own, and three random forests on those training rows. They are
trained once, take some seconds a table, and are kept in the cache. Beside what they say of options
stands what they say of real applicants: held-out rows to which the oracle gives the same chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waysout.domain.distance import Distance, Matrix
from waysout.domain.schema import Row, Schema
from waysout.errors import MissingExtra

if TYPE_CHECKING:
    from waysout.bench.measure import Environment

SEEDS = tuple(range(1, 16))
"""The seeds of the models trained again."""
FOREST_SEEDS = (1, 2, 3)
TREES, LEAST_LEAF = 100, 5
APPLICANTS = 60
"""So many real applicants, those nearest in the oracle's chance, stand beside an option."""
NEIGHBOURS = 5
WORDS = (
    f"{len(SEEDS)} models trained as the oracle was, on bootstraps of its training rows (seeds "
    f"{SEEDS[0]} to {SEEDS[-1]}), and {len(FOREST_SEEDS)} random forests of {TREES} trees with at "
    f"least {LEAST_LEAF} rows a leaf (seeds {FOREST_SEEDS[0]} to {FOREST_SEEDS[-1]})"
)
"""Which models these are, for the notes of tables."""

_VERSION = 1  # of how they are trained: another one is another folder

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Successors:
    """The models that might come after the oracle."""

    schema: Schema
    positive_class: int
    boosters: Sequence[Any]
    forests: Sequence[Any]

    def approve(self, rows: Sequence[Row]) -> tuple[Flags, Flags]:
        """Return which model approves which row: a line for each model, and for each forest."""
        from waysout.datasets.train import model_matrix

        matrix = model_matrix(self.schema, rows)
        yes = self.positive_class
        chances = [booster.predict(matrix, num_threads=1) for booster in self.boosters]
        again = np.array([chance if yes else 1.0 - chance for chance in chances]) >= 0.5
        trees = np.array([_votes(forest, matrix)[:, yes] for forest in self.forests]) >= 0.5
        return again, trees

    def shares(self, rows: Sequence[Row]) -> tuple[list[float], list[float]]:
        """Return for each row the share of the models, and of the forests, that approve it."""
        if not rows:
            return [], []
        again, trees = self.approve(rows)
        return again.mean(axis=0).tolist(), trees.mean(axis=0).tolist()


class TableFacts:
    """What a table's options are measured with: its training rows, answered, and successors."""

    def __init__(self, place: Environment) -> None:
        self._place = place
        self.schema = place.data.card.schema
        self.successors = _successors(place)
        scales = place.data.card.scales_beside(place.training)
        self.distance = Distance.fit(self.schema, place.training, scales)
        self.matrix = self.schema.encode(place.training)
        # Past the cache of answers: that many rows would drive out those of searches.
        self.approved = place.oracle.oracle.ask(place.training).decision

    def ynn(self, rows: Sequence[Row]) -> list[float]:
        """Return for each row the share of its nearest training rows that the oracle approves."""
        return [
            float(self.approved[nearest(self.distance, row, self.matrix)].mean())
            for row in self.schema.encode(rows)
        ]

    @cached_property
    def reference_cost(self) -> float:
        """What it costs to become the nearest applicant the oracle approves: the stored queries'
        median, without regard to rules."""
        from waysout.datasets.queries import queries

        data = self._place.data
        people = self.schema.encode([data.rows[i] for i in queries(data.name)])
        there = self.matrix[self.approved]
        return float(np.median([self.distance.costs(one, there).min() for one in people]))

    def real(self, rows: Sequence[Row]) -> list[float]:
        """Return for each row the share of the models that approve applicants of its chance."""
        if not rows:
            return []
        chances, lasts = self._applicants
        return of_equal_chance(self._place.oracle.oracle.ask(rows).probability, chances, lasts)

    @cached_property
    def _applicants(self) -> tuple[Matrix, Matrix]:
        """The chances of held-out rows that the oracle approves, and how they last."""
        from waysout.datasets.load import split
        from waysout.datasets.manifest import load_oracle_model

        data = self._place.data
        _, held_out = split(data, load_oracle_model(data.name)[1].seed)
        rows = [data.rows[i] for i in held_out]
        answers = self._place.oracle.oracle.ask(rows)
        yes = np.flatnonzero(answers.decision)
        lasts, _ = self.successors.shares([rows[i] for i in yes.tolist()])
        return answers.probability[yes], np.array(lasts)


def of_equal_chance(wanted: Matrix, chances: Matrix, lasts: Matrix) -> list[float]:
    """Return how the applicants last, on average, whose chances are nearest to those wanted.

    >>> of_equal_chance(np.array([0.5]), np.linspace(0, 1, 121), np.arange(121) >= 75)
    [0.25]
    """
    gaps = np.abs(wanted[:, None] - chances)
    near = np.argsort(gaps, axis=1, kind="stable")[:, :APPLICANTS]
    found: list[float] = lasts[near].mean(axis=1).tolist()
    return found


def _votes(forest: Any, matrix: Matrix) -> Matrix:
    """Return what a forest's `predict_proba` returns, in a tenth of the time for a few rows."""
    rows = matrix.astype(np.float32)
    votes: Matrix = np.mean([tree.tree_.predict(rows) for tree in forest.estimators_], axis=0)
    return votes


def nearest(distance: Distance, row: Matrix, rows: Matrix) -> NDArray[np.intp]:
    """Return which encoded rows are nearest to one, the first of equals."""
    far = distance.between(row, rows)
    return np.argsort(far, kind="stable")[:NEIGHBOURS]


def table_facts(place: Environment) -> TableFacts:
    """Return what options of a table are measured with, made once; models are kept on disk."""
    return place.once("table facts", lambda: TableFacts(place))


def cache_folder(place: Environment) -> Path:
    """Return the folder for what belongs to one oracle, whatever was searched."""
    from waysout.files import cache_dir

    return cache_dir() / "bench" / f"{place.data.name}-{place.sha256[:12]}"


def _successors(place: Environment) -> Successors:
    from waysout.datasets.manifest import load_oracle_model
    from waysout.oracles.lightgbm import import_lightgbm
    from waysout.oracles.load import load_model

    folder = cache_folder(place) / f"successors-{_VERSION}"
    models = [folder / f"model-{seed}.txt" for seed in SEEDS]
    forests = [folder / f"forest-{seed}.skops" for seed in FOREST_SEEDS]
    if not all(path.exists() for path in (*models, *forests)):
        _train(place, models, forests)
    lightgbm = import_lightgbm("train")
    manifest = load_oracle_model(place.data.name)[1]
    return Successors(
        place.data.card.schema,
        manifest.positive_class,
        [lightgbm.Booster(model_file=str(path)) for path in models],
        [load_model(path, trusted_types=["sklearn.tree._tree.Tree"]) for path in forests],
    )


def _train(place: Environment, models: Sequence[Path], forests: Sequence[Path]) -> None:
    from waysout.datasets.load import split
    from waysout.datasets.manifest import load_oracle_model
    from waysout.datasets.train import model_matrix, retrain
    from waysout.files import write_atomically
    from waysout.run.machine import cores

    try:
        import skops.io
    except ImportError:
        raise MissingExtra("skops", "skops") from None
    try:
        from sklearn.ensemble import RandomForestClassifier
    except ImportError:
        raise MissingExtra("scikit-learn", "train") from None
    data, manifest = place.data, load_oracle_model(place.data.name)[1]
    texts = retrain(data, manifest, SEEDS, cores())
    for path, text in zip(models, texts, strict=True):
        write_atomically(path, text.encode())
    train, _ = split(data, manifest.seed)
    matrix = model_matrix(data.card.schema, [data.rows[i] for i in train])
    yes = np.array(data.labels)[train] == bool(manifest.positive_class)
    for path, seed in zip(forests, FOREST_SEEDS, strict=True):
        forest = RandomForestClassifier(
            TREES, min_samples_leaf=LEAST_LEAF, random_state=seed, n_jobs=cores()
        ).fit(matrix, yes.astype(int))
        forest.set_params(n_jobs=1)  # a few rows at a time: starting threads would take longer
        write_atomically(path, skops.io.dumps(forest))
