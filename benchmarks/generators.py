"""How like the real rows are those that a learned method draws.

    python benchmarks/generators.py loan heloc --out FILE.jsonl --figures docs/figures
    python benchmarks/generators.py adult --device cuda

A model learns from the rows the oracle was trained on, and draws as many rows as were held out, in
the same shares of both outcomes. Printed are how well a classifier tells them from the rows held
out (AUC, 0.5 means not at all), beside other real rows and rows of independent features; how near
they are to the training rows, and how many are copies; and how long training and drawing took. The
figures hold counts only, and no row of the data. Needs scikit-learn, torch, and for
figures matplotlib.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from timing import DATASETS

from waysout.bench.methods.learned.coding import Matrix
from waysout.bench.methods.learned.diffusion import DiffusionRecipe
from waysout.bench.methods.learned.training import (
    MANIFEST_FILE,
    Recipe,
    TrainingTable,
    learned,
    learned_dir,
    training_table,
)
from waysout.bench.methods.learned.vae import Vae, VaeRecipe
from waysout.datasets.load import Dataset, load_dataset, split
from waysout.domain.distance import Distance
from waysout.domain.schema import Feature, Row

SEED = 0
MOST_COMPARED = 1000  # rows whose nearest neighbour is looked for

Sample = Callable[[int, bool, np.random.Generator], Matrix]
"""Draws a number of rows of an outcome, encoded by `Schema.encode`."""


@dataclass(frozen=True)
class Generator:
    """How a model is learned, and how to draw from it."""

    recipe: Recipe[Any]
    sample: Callable[[Any], Sample]


def _either(model: Vae) -> Sample:
    """Draw from a model that knows no outcomes."""
    return lambda rows, label, rng: model.schema.encode(model.sample(rows, rng))


GENERATORS: Mapping[str, Generator] = {
    "tabular-diffusion": Generator(DiffusionRecipe(), lambda model: model.sample),
    "cchvae": Generator(VaeRecipe(), _either),
}


@dataclass(frozen=True)
class Part:
    """Some rows of a data set, with their labels."""

    rows: tuple[Row, ...]
    labels: tuple[bool, ...]

    @classmethod
    def of(cls, data: Dataset, numbers: Any) -> Part:
        """Return the rows of some numbers."""
        rows = tuple(data.rows[i] for i in numbers)
        return cls(rows, tuple(data.labels[i] for i in numbers))


@dataclass(frozen=True)
class Compared:
    """Rows learned from, rows held out and rows drawn, encoded; and how long drawing took."""

    table: TrainingTable
    real: Matrix
    drawn: Matrix
    seconds: float


def compare(data: Dataset, generator: Generator, device: str) -> Compared:
    """Learn from the training rows, unless a model of them is kept, and draw."""
    learned_from, held_out = (Part.of(data, numbers) for numbers in split(data))
    table = training_table(learned_from, data.card.schema)
    model = learned(generator.recipe, table, device, _tell)
    sample, rng = generator.sample(model), np.random.default_rng(SEED)
    yes = sum(held_out.labels)
    began = time.perf_counter()
    parts = [sample(count, label, rng) for label, count in
             ((True, yes), (False, len(held_out.labels) - yes))]  # fmt: skip
    seconds = time.perf_counter() - began
    return Compared(table, data.card.schema.encode(held_out.rows), np.vstack(parts), seconds)


def _tell(what: str, share: float) -> None:
    print(f"\r{what} {share:.0%}   ", end="\n" if share == 1 else "", flush=True)


# Measures --------------------------------------------------------------------------------------


def measure(found: Compared, recipe: Recipe[Any]) -> dict[str, Any]:
    """Return the measures of a model."""
    rng = np.random.default_rng(SEED)
    learned_from = found.table.matrix
    numbers = rng.choice(len(learned_from), min(len(found.real), len(learned_from)), replace=False)
    others = learned_from[numbers]
    independent = np.column_stack([rng.permutation(column) for column in others.T])
    kept = json.loads((learned_dir(recipe, found.table) / MANIFEST_FILE).read_text("utf-8"))
    return {
        "rows": len(found.real),
        "auc": told_apart(found.real, found.drawn),
        "auc_real": told_apart(found.real, others),
        "auc_independent": told_apart(found.real, independent),
        **{f"drawn_{name}": value for name, value in nearness(found.table, found.drawn).items()},
        **{f"real_{name}": value for name, value in nearness(found.table, found.real).items()},
        "rows_a_second": round(len(found.drawn) / found.seconds),
        "training_seconds": kept["seconds"],
        "device": kept["device"],
        "versions": kept["versions"],
    }


def told_apart(real: Matrix, other: Matrix) -> float:
    """Return the AUC of a classifier that has not seen the rows it is asked about."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    rows, labels = np.vstack([real, other]), np.repeat([0, 1], [len(real), len(other)])
    folds = StratifiedKFold(5, shuffle=True, random_state=SEED)
    judge = HistGradientBoostingClassifier(random_state=SEED)
    chances = cross_val_predict(judge, rows, labels, cv=folds, method="predict_proba")
    return round(float(roc_auc_score(labels, chances[:, 1])), 3)


def nearness(table: TrainingTable, rows: Matrix) -> dict[str, float]:
    """Return how far rows are from the nearest learned from, and which share is one of those."""
    distance = Distance.fit(table.schema, table.schema.decode(table.matrix))
    some = np.random.default_rng(SEED).permutation(rows)[:MOST_COMPARED]
    nearest = np.array([distance.between(row, table.matrix).min() for row in some])
    return {
        "distance": round(float(np.median(nearest)), 3),
        "copies": round(float(np.mean(nearest == 0)), 4),
    }


# Figures ---------------------------------------------------------------------------------------

ACROSS, BINS, MOST_LEVELS = 6, 20, 12


def figure(found: Compared, title: str, file: Path) -> None:
    """Write a panel for each feature: shares of real rows, filled, and of drawn ones, a line."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("figures need matplotlib: pip install matplotlib") from None
    schema = found.table.schema
    down = -(-len(schema) // ACROSS)
    # The same file each time: no ids drawn at random, and no date.
    with mpl.rc_context({"svg.hashsalt": "waysout", "svg.fonttype": "none", "font.size": 7}):
        drawing = Figure(figsize=(1.8 * ACROSS, 0.7 + 1.3 * down), layout="constrained")
        for j, feature in enumerate(schema):
            panel = drawing.add_subplot(down, ACROSS, j + 1)
            _draw(panel, feature, found.real[:, j], found.drawn[:, j])
        drawing.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=2)
        drawing.suptitle(title)
        file.parent.mkdir(parents=True, exist_ok=True)
        drawing.savefig(file, metadata={"Date": None, "Creator": None})
    print(file)


def _draw(panel: Any, feature: Feature, real: Matrix, drawn: Matrix) -> None:
    edges = _edges(feature, real)
    heights = [np.histogram(_within(feature, column, edges), edges)[0] / len(column)
               for column in (real, drawn)]  # fmt: skip
    # Bins may be of any width: what is drawn is their number, and the share in each.
    places = np.arange(len(edges))
    panel.stairs(heights[0], places, fill=True, color="0.75", label="real, held out")
    panel.stairs(heights[1], places, color="tab:blue", linewidth=1.2, label="drawn")
    panel.set_title(feature.name, fontsize=7)
    panel.set_xticks([0, len(edges) - 1], [_word(feature, edges[0]), _word(feature, edges[-1])])
    panel.set_yticks([0, round(float(max(heights[0].max(), heights[1].max())), 2)])


def _edges(feature: Feature, real: Matrix) -> Matrix:
    """Return where bins end: levels apart, few values apart, many in equal steps."""
    if not feature.is_numeric:
        missing = int(np.isnan(real).any())  # then a last bin is for that
        levels: Matrix = np.arange(len(feature.values()) + 1.0 + missing) - 0.5
        return levels
    values = np.unique(real[~np.isnan(real)])
    if len(values) <= MOST_LEVELS:
        return np.append(values, values[-1] + 1.0)
    # A few very large numbers would leave one bin for all others.
    low, high = np.nanquantile(real, [0.01, 0.99])
    steps: Matrix = np.linspace(low, max(high, low + 1e-9), BINS + 1)
    return steps


def _within(feature: Feature, column: Matrix, edges: Matrix) -> Matrix:
    """Return the values within the bins; a missing level has a bin of its own, a number none."""
    known = (
        column[~np.isnan(column)] if feature.is_numeric else np.nan_to_num(column, nan=edges[-1])
    )
    return np.clip(known, edges[0], edges[-1])


def _word(feature: Feature, edge: float) -> str:
    if feature.is_numeric:
        return f"{edge:.4g}"
    texts = [feature.format(value) for value in feature.values()]
    return texts[0][:12] if edge < 0 else texts[-1][:12]


# Command line ----------------------------------------------------------------------------------


def main() -> None:
    """Train, draw, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("datasets", nargs="+", choices=DATASETS)
    parser.add_argument("--generator", choices=GENERATORS, default="tabular-diffusion")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="a file to add a line for each data set to")
    parser.add_argument("--figures", type=Path, help="a folder")
    given = parser.parse_args()
    generator = GENERATORS[given.generator]
    for name in given.datasets:
        data = load_dataset(name)
        found = compare(data, generator, given.device)
        told = measure(found, generator.recipe)
        line = json.dumps({"data": name, "generator": given.generator, **told})
        print(line, flush=True)
        if given.out:
            with given.out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        if given.figures:
            title = f"{data.card.title}: rows held out and rows drawn by {given.generator}"
            figure(found, title, given.figures / f"generated-{name}.svg")


if __name__ == "__main__":
    main()
