"""Two tables of scikit-learn with models nobody tuned, each under the card that is inferred.

They measure whether what was chosen on our own tables serves others without a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from waysout.bench.hard_cases import KnownRows, Trial
from waysout.datasets.infer import infer_card
from waysout.datasets.load import labelled, split
from waysout.datasets.table import Table
from waysout.domain.card import Card
from waysout.domain.problem import Problem
from waysout.errors import MissingExtra
from waysout.oracles.adapt import as_oracle

QUERIES = 20
_TARGET = "outcome"


def table_trials(name: str, queries: int | None = None) -> Iterator[Trial]:
    """Return refused rows of a table's held-out part; what any arm found is the least known."""
    try:
        model, table = TABLES[name]()
    except ImportError:
        raise MissingExtra("scikit-learn", "train") from None
    card = Card.parse(infer_card(table, target=_TARGET, positive="yes", name=name), source=name)
    dataset = labelled(card, table)
    train, held_out = (part.tolist() for part in split(dataset))
    rows, labels = dataset.rows, dataset.labels
    known = KnownRows([rows[i] for i in train], [labels[i] for i in train])
    model.fit(card.schema.encode(known.rows), ["yes" if label else "no" for label in known.labels])
    problem = Problem.from_card(card, as_oracle(model, card), training=known.rows)
    refused = ~problem.oracle.ask([rows[i] for i in held_out]).decision
    places = (i for i, no in zip(held_out, refused.tolist(), strict=True) if no)
    return (Trial(problem, rows[i], known) for i in islice(places, queries or QUERIES))


def _table(bunch: Any, positive: int) -> Table:
    names = [str(name) for name in bunch.feature_names]
    records = [
        {**dict(zip(names, values, strict=True)), _TARGET: "yes" if label == positive else "no"}
        for values, label in zip(bunch.data.tolist(), bunch.target.tolist(), strict=True)
    ]
    return Table((*names, _TARGET), records, "scikit-learn")


def _breast_cancer() -> tuple[Any, Table]:
    """Thirty numbers, whether a tumour is benign, and a neural network."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = make_pipeline(StandardScaler(), MLPClassifier(max_iter=500, random_state=0))
    return network, _table(load_breast_cancer(), 1)


def _wine() -> tuple[Any, Table]:
    """Thirteen numbers, whether a wine is of the first cultivar, and a random forest."""
    from sklearn.datasets import load_wine
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(random_state=0), _table(load_wine(), 0)


TABLES: Mapping[str, Callable[[], tuple[Any, Table]]] = {
    "breast-cancer": _breast_cancer,
    "wine": _wine,
}
