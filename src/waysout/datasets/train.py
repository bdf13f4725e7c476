"""Training an oracle: LightGBM on label codes, tuned by Optuna, the same file every time.

The held-out fifth both stops the final fit early and measures it, as in the paper, so the accuracy
in the manifest is optimistic. Use it to see that the oracle learnt something, not to rank models.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.datasets.load import HELD_OUT, SEED, Dataset, Indices, indices_sha256, split
from waysout.datasets.manifest import Manifest, level_codes, oracle_dir, save_oracle
from waysout.domain.card import Card, label_text
from waysout.domain.schema import Row, Schema
from waysout.errors import InputError, MissingExtra
from waysout.files import sha256
from waysout.oracles.inputs import InputLayout, places
from waysout.oracles.lightgbm import import_lightgbm

TRIALS = 30
FOLDS = 3
MOST_ROUNDS = 1500
PATIENCE = 50
LARGEST_SEED = 2**31 - 1
PACKAGES = ("waysout", "lightgbm", "optuna", "scikit-learn", "numpy")

Matrix = NDArray[np.float64]
Progress = Callable[[int, int, float], None]

# One thread a fit, and folds side by side: on a busy machine LightGBM's own threads wait for each
# other (ten times slower, measured), and sums in one order need no promise to be the same again.
FIXED: Mapping[str, object] = {
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "objective": "binary",
    "metric": "binary_logloss",
    "bagging_freq": 1,
    "feature_pre_filter": False,
    "verbosity": -1,
}
NOTES = (
    "the held-out rows also stopped the final fit early, so their metrics are optimistic",
    "the same versions, data and seed give the same model file, whatever the number of threads",
)


@dataclass(frozen=True, slots=True)
class Span:
    """Where the search may look for one setting, and where it starts."""

    low: float
    high: float
    start: float
    log: bool = False

    def suggest(self, trial: Any, name: str) -> float:
        """Let Optuna choose; a span of whole numbers gives whole numbers."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            return int(trial.suggest_int(name, self.low, self.high, log=self.log))
        return float(trial.suggest_float(name, self.low, self.high, log=self.log))


SPACE: Mapping[str, Span] = {
    "learning_rate": Span(0.03, 0.2, start=0.1, log=True),
    "num_leaves": Span(7, 127, start=31, log=True),
    "min_data_in_leaf": Span(5, 100, start=20, log=True),
    "feature_fraction": Span(0.4, 1.0, start=1.0),
    "bagging_fraction": Span(0.5, 1.0, start=1.0),
    "lambda_l1": Span(1e-3, 10.0, start=1e-3, log=True),
    "lambda_l2": Span(1e-3, 10.0, start=1e-3, log=True),
}


def train_oracle(
    dataset: Dataset,
    *,
    out: Path | None = None,
    trials: int = TRIALS,
    seed: int = SEED,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Train an oracle and save it in ``out`` (default: the cache, under the data set's name).

    ``threads`` is how many folds of the search run at once. ``progress(done, trials, best log
    loss)`` is called after every trial.
    """
    if trials < 1 or (threads is not None and threads < 1):
        raise InputError(f"trials and threads are at least 1, not {trials} and {threads}")
    if not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"seed is 0 to {LARGEST_SEED}, not {seed}")
    started = time.perf_counter()
    task = _Task(dataset, seed)
    study = _search(task, trials, threads or usual_threads(), progress)
    booster = task.fit(study.best_params, task.train, task.held_out)
    model = booster.model_to_string(num_iteration=booster.best_iteration)
    manifest = Manifest(
        dataset=dataset.name,
        data_sha256=dataset.sha256,
        inputs=level_codes(dataset.card.schema),
        positive=dataset.card.outcome.positive,
        positive_class=positive_class(dataset.card),
        model_sha256=sha256(model.encode()),
        seed=seed,
        split={
            "by": "sklearn.model_selection.train_test_split, stratified by outcome, indices sorted",
            "held_out": HELD_OUT,
            "rows": {name: len(part) for name, part in task.parts.items()},
            "sha256": {name: indices_sha256(part) for name, part in task.parts.items()},
        },
        search={
            "by": "optuna TPESampler",
            "trials": trials,
            "folds": FOLDS,
            "minimised": "mean log loss over the folds",
            "best": round(study.best_value, 6),
            "space": {n: [s.low, s.high, "log" if s.log else "linear"] for n, s in SPACE.items()},
            "most_rounds": MOST_ROUNDS,
            "patience": PATIENCE,
        },
        params=study.best_params,
        rounds=booster.best_iteration,
        metrics={name: task.measure(booster, part) for name, part in task.parts.items()},
        positive_share={
            name: float(np.mean(np.array(dataset.labels)[part]))
            for name, part in task.parts.items()
        },
        versions={name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        seconds=round(time.perf_counter() - started, 1),
        notes=NOTES,
    )
    save_oracle(out or oracle_dir(dataset.name), model, manifest)
    return manifest


def retrain(
    dataset: Dataset, manifest: Manifest, seeds: Sequence[int], threads: int = 1
) -> list[str]:
    """Train an oracle again for each seed, and return the models as LightGBM writes them.

    Everything is as it was but the seed and the rows: as many as before, drawn with replacement
    from those it was trained on. So the held-out rows are new to all of these models as well.
    """
    task = _Task(dataset, manifest.seed)

    def fit(seed: int) -> str:
        on = np.random.default_rng(seed).choice(task.train, size=len(task.train))
        booster = task.fit(manifest.params, on, task.held_out, seed)
        return str(booster.model_to_string(num_iteration=booster.best_iteration))

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(fit, seeds))


def model_matrix(schema: Schema, rows: Sequence[Row]) -> Matrix:
    """Return one line of numbers a row: level codes, numbers, NaN where a value is missing.

    Opaque features are left out: an identifier or a text is nothing to learn from.
    """
    spots = [spot for spot in places(schema) if not spot.feature.is_opaque]
    layout = InputLayout.plain("codes", spots, named=False)
    matrix: Matrix = layout.build(rows)
    return matrix


def positive_class(card: Card) -> int:
    """Return the class that means yes: 1, or 0 where the table itself writes its yes as 0.

    So a model file says the same as the table's own labels, and loading it with the card finds
    the right class.
    """
    return 0 if label_text(card.outcome.positive) == "0" else 1


def usual_threads() -> int:
    """Return how many folds to run at once: as many as there are cores for."""
    affinity = getattr(os, "sched_getaffinity", None)
    available = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(available, FOLDS)


class _Task:
    """The data of one training, split and encoded, and the two things done with it."""

    def __init__(self, dataset: Dataset, seed: int) -> None:
        self.lightgbm = import_lightgbm("train")
        self.seed = seed
        self.x = model_matrix(dataset.card.schema, dataset.rows)
        yes = np.array(dataset.labels)
        self.y = (yes == bool(positive_class(dataset.card))).astype(np.float64)
        # LightGBM refuses JSON's own characters and spaces in names.
        learnt = [feature.name for feature in dataset.card.schema if not feature.is_opaque]
        names = [re.sub(r'[\s\[\]{}":,]', "_", name) for name in learnt]
        distinct = len(set(names)) == len(names)
        self.names = names if distinct else [f"f{i}" for i in range(len(names))]
        self.train, self.held_out = split(dataset, seed)

    @property
    def parts(self) -> dict[str, Indices]:
        return {"train": self.train, "held_out": self.held_out}

    @cached_property
    def folds(self) -> list[tuple[Indices, Indices]]:
        from sklearn.model_selection import StratifiedKFold

        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=self.seed)
        cut = folds.split(self.train, self.y[self.train])
        return [(self.train[fit], self.train[check]) for fit, check in cut]

    def fit(
        self, params: Mapping[str, float], on: Indices, check: Indices, seed: int | None = None
    ) -> Any:
        """Fit on some rows and stop when others no longer improve."""
        data = self.lightgbm.Dataset(self.x[on], self.y[on], feature_name=self.names)
        return self.lightgbm.train(
            {**FIXED, **params, "seed": self.seed if seed is None else seed},
            data,
            num_boost_round=MOST_ROUNDS,
            valid_sets=[data.create_valid(self.x[check], self.y[check])],
            valid_names=["check"],
            callbacks=[self.lightgbm.early_stopping(PATIENCE, verbose=False)],
        )

    def measure(self, booster: Any, part: Indices) -> dict[str, float]:
        from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

        truth = self.y[part]
        p = booster.predict(self.x[part])
        return {
            "accuracy": round(float(accuracy_score(truth, p >= 0.5)), 6),
            "auc": round(float(roc_auc_score(truth, p)), 6),
            "log_loss": round(float(log_loss(truth, p)), 6),
        }


def _search(task: _Task, trials: int, threads: int, progress: Progress | None) -> Any:
    """Look for the settings with the least log loss in cross-validation on the training rows."""
    try:
        import optuna
    except ImportError:
        raise MissingExtra("optuna", "train") from None

    def objective(trial: Any) -> float:
        params = {name: span.suggest(trial, name) for name, span in SPACE.items()}
        fitted = pool.map(lambda fold: task.fit(params, *fold), task.folds)
        return float(np.mean([fit.best_score["check"]["binary_logloss"] for fit in fitted]))

    def after(study: Any, trial: Any) -> None:
        if progress is not None:
            progress(trial.number + 1, trials, study.best_value)

    before = optuna.logging.get_verbosity()
    # At WARNING, Ctrl-C would print a traceback for the trial it ended.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with ThreadPoolExecutor(threads) as pool:
            study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=task.seed))
            study.enqueue_trial({name: span.start for name, span in SPACE.items()})
            study.optimize(objective, n_trials=trials, callbacks=[after])
    finally:
        optuna.logging.set_verbosity(before)
    return study
