"""Trying an oracle before anything is spent on it: `probe`, and `check_oracle` for its makers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waysout.domain.oracle import Answers, Oracle
from waysout.domain.schema import Row
from waysout.errors import InputError, OracleError
from waysout.oracles.answers import ask_checked
from waysout.oracles.cache import CachedOracle

# float32 models answer a row of another batch the same only to their own precision.
SAME = 1e-6
ENOUGH_TO_TELL_LABELS = 10
ENOUGH_TO_TELL_CLASSES = 20
BELOW_CHANCE = 0.4


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What a probe found.

    ``rows_asked`` counts every row sent, the second time included. ``agreement`` is the balanced
    accuracy of the decisions against the labels, where there were labels of both kinds.
    """

    rows_asked: int
    stable: bool
    labels_only: bool
    approved_share: float
    agreement: float | None
    notes: tuple[str, ...]


def probe(
    oracle: Oracle,
    rows: Sequence[Row],
    *,
    labels: Sequence[bool] | None = None,
    max_rows: int = 64,
) -> ProbeReport:
    """Ask some rows twice, the second time shuffled and in two batches, and say what is odd.

    ``labels`` tell which rows are labelled positive: decisions clearly worse than chance against
    them mean that the classes are swapped, and raise.
    """
    if not rows:
        raise InputError("there are no rows to probe the model with")
    if labels is not None and len(labels) != len(rows):
        raise InputError(f"{len(rows)} rows were given to probe with, and {len(labels)} labels")
    # A table may be sorted by its label: rows from all over it.
    chosen = np.unique(np.linspace(0, len(rows) - 1, min(max_rows, len(rows))).astype(int))
    sample = [rows[i] for i in chosen]
    model = oracle.oracle if isinstance(oracle, CachedOracle) else oracle
    first = ask_checked(model, sample)
    stable = _alike(first, _ask_shuffled(model, sample))
    agreement = None
    if labels is not None:
        agreement = _agreement(first.decision, np.array([bool(labels[i]) for i in chosen]), model)
    only_labels = model.labels_only or _looks_like_labels(first)
    return ProbeReport(
        rows_asked=2 * len(sample),
        stable=stable,
        labels_only=only_labels,
        approved_share=float(first.decision.mean()),
        agreement=agreement,
        notes=_notes(model, first, stable=stable, labels_only=only_labels),
    )


def check_oracle(oracle: Oracle, rows: Sequence[Row]) -> None:
    """Raise `OracleError` unless the oracle keeps its protocol on these rows.

    It must answer no rows with no answers, every row with a probability and a decision of the
    right type, the same each time, whatever the order and the size of the batch.
    """
    if not rows:
        raise InputError("there are no rows to check the oracle with")
    if not isinstance(oracle.name, str) or not isinstance(oracle.labels_only, bool):
        raise OracleError("an oracle's name is a text and its labels_only a bool")
    ask_checked(oracle, [])
    first = ask_checked(oracle, rows)
    if not _alike(first, ask_checked(oracle, rows)):
        raise OracleError("the oracle gave the same rows different answers the second time")
    if not _alike(first, _ask_shuffled(oracle, rows)):
        raise OracleError("the oracle's answers depend on the order or the size of the batch")
    for i, row in enumerate(rows[:8]):
        alone = ask_checked(oracle, [row])
        if not _alike(alone, Answers(first.probability[i : i + 1], first.decision[i : i + 1])):
            raise OracleError(f"the oracle answered row {i} differently when it was asked alone")


def _ask_shuffled(oracle: Oracle, rows: Sequence[Row]) -> Answers:
    """Ask the rows in another order and in two batches; answer in their own order."""
    order = np.random.default_rng(0).permutation(len(rows))
    half = (len(rows) + 1) // 2
    parts = [ask_checked(oracle, [rows[i] for i in part]) for part in (order[:half], order[half:])]
    back = np.argsort(order)
    return Answers(
        np.concatenate([part.probability for part in parts])[back],
        np.concatenate([part.decision for part in parts])[back],
    )


def _alike(a: Answers, b: Answers) -> bool:
    close = np.allclose(a.probability, b.probability, rtol=0.0, atol=SAME)
    # A decision may turn with the last digit only where the probability lies on the edge.
    firm = np.abs(a.probability - 0.5) > SAME
    return bool(close and np.array_equal(a.decision[firm], b.decision[firm]))


def _looks_like_labels(answers: Answers) -> bool:
    p = answers.probability
    return len(p) >= ENOUGH_TO_TELL_LABELS and bool(np.isin(p, (0.0, 1.0)).all())


def _agreement(
    decision: NDArray[np.bool_], labels: NDArray[np.bool_], oracle: Oracle
) -> float | None:
    yes, no = int(labels.sum()), int((~labels).sum())
    if not yes or not no:
        return None
    balanced = float(decision[labels].mean() + (~decision[~labels]).mean()) / 2
    # How far chance alone would carry a model that approves this share of rows.
    share = float(decision.mean())
    error = 0.5 * math.sqrt(share * (1 - share) * (1 / yes + 1 / no))
    if (
        len(labels) >= ENOUGH_TO_TELL_CLASSES
        and balanced < BELOW_CHANCE
        and 0.5 - balanced > 2 * error
    ):
        raise OracleError(
            f"{oracle.name} disagrees with the labels more than chance would (balanced accuracy "
            f"{balanced:.2f} on {len(labels)} rows): its classes look swapped. Name the one that "
            "means approval with --positive-class (positive_class=…)"
        )
    return balanced


def _notes(oracle: Oracle, answers: Answers, *, stable: bool, labels_only: bool) -> tuple[str, ...]:
    notes = [str(note) for note in getattr(oracle, "notes", ())]
    if getattr(oracle, "assumed_class", False):
        notes.append("class 1 was taken for approval, because no class has the card's label")
    if not stable:
        notes.append("the model gave some rows other answers when they were asked again")
    if labels_only and not oracle.labels_only:
        notes.append("only 0 and 1 came back: the model seems to give labels, not probabilities")
    if len(answers) > 1 and np.ptp(answers.probability) == 0.0:
        notes.append(
            f"the model gave every row the same answer ({answers.probability[0]:.6g}): are the "
            "positive class and the card's columns right?"
        )
    return tuple(notes)
