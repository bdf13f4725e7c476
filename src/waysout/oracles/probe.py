"""Checks before any budget is spent: `probe`, and `check_oracle` for authors of oracles."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from waysout.domain.oracle import Answers, Oracle
from waysout.domain.schema import Row, Schema
from waysout.errors import InputError, OracleError, OracleTimeout
from waysout.oracles.answers import ask_checked
from waysout.oracles.cache import CachedOracle
from waysout.oracles.watchdog import at_most

# float32 models answer a row of another batch the same only to their own precision.
SAME = 1e-6
ENOUGH_TO_TELL_LABELS = 10
ENOUGH_TO_TELL_CLASSES = 20
BELOW_CHANCE = 0.4
# A model that raises on as many rows, from all over the sample, is given up; and after so many rows
# on which it hangs, the others are, whatever it says of some: each takes as long as a row may.
ENOUGH_TO_GIVE_UP, ENOUGH_HANGS = 16, 3


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What a probe found.

    ``rows_asked`` counts every row sent, those sent a second time included, and those with which
    the form of the model's rows was found (`ModelOracle.extra_rows`). ``approved_share`` is that
    of all the rows, as far as the sample tells. ``agreement`` is the balanced accuracy of the
    decisions against the labels, where there were labels of both kinds.
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
    again: int | None = None,
    seconds: float | None = None,
) -> ProbeReport:
    """Ask some rows, and some of them again, shuffled and in two batches; report what is odd.

    At most ``max_rows`` are asked, and ``again`` of them a second time (all of them where it is not
    given): half of these are the rows that the model is least sure of, since a yes turns into a no
    there first. After ``seconds`` nothing more is asked, and no call takes more than a quarter of
    them: what has come by then is judged.

    ``labels`` tell which rows are labelled positive: as many of either kind are asked as there are,
    and probabilities clearly worse than chance against them mean that the classes are swapped,
    and raise; so does one and the same answer for all. Labels that agree confirm what the oracle
    had to assume, and no note is needed.

    A row on which the model raises tells of that row: it is left out, and noted. To find it, rows
    are asked alone, which counts as any asking: fewer rows are tried then. Where the model raises
    on every row tried, that is raised.

    >>> import waysout
    >>> data = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["credit_score"] / 1400, data.card)
    >>> found = waysout.probe(oracle, data.rows, labels=data.labels)
    >>> found.stable, found.labels_only, found.rows_asked
    (True, False, 128)
    """
    if not rows:
        raise InputError("there are no rows to probe the model with")
    if labels is not None and len(labels) != len(rows):
        raise InputError(f"{len(rows)} rows were given to probe with, and {len(labels)} labels")
    truth = None if labels is None else np.array([bool(label) for label in labels])
    chosen = _spread(np.arange(len(rows)), max_rows) if truth is None else _of_both(truth, max_rows)
    sample = [rows[i] for i in chosen]
    model = oracle.oracle if isinstance(oracle, CachedOracle) else oracle
    asker = _Asker(model, math.inf if seconds is None else seconds)
    # In two batches: one bad row then spoils half of them, and leaves rows enough to find it.
    first, good, tried, failure = _ask_what_answers(
        asker, sample, at_once=math.ceil(len(sample) / 2), most=len(sample)
    )
    chosen = chosen[good]
    sample = [sample[i] for i in good]
    twice = _to_ask_again(first, len(sample) if again is None else again)
    unstable, away = _ask_again(asker, [sample[i] for i in twice], first, twice)
    all_alone = failure is not None and len(good) == tried
    if all_alone and away is not None:
        assert failure is not None
        raise failure  # each row is answered alone, and no batch is
    share, agreement, confirmed = float(first.decision.mean()), None, False
    if truth is not None and 0 < truth[chosen].sum() < len(chosen):
        confirmed = _held_against(first.probability, truth[chosen], model)
        yes, no = first.decision[truth[chosen]].mean(), first.decision[~truth[chosen]].mean()
        share = float(truth.mean() * yes + (1 - truth.mean()) * no)
        agreement = float(yes + 1 - no) / 2
    p = first.probability
    zero_one = len(p) >= ENOUGH_TO_TELL_LABELS and bool(np.isin(p, (0.0, 1.0)).all())
    assumption = getattr(model, "assumption", "") if confirmed else ""
    notes = [str(note) for note in getattr(model, "notes", ()) if note != assumption]
    if all_alone:
        notes.append(f"some rows had an answer only when they were asked alone: {failure}")
    elif failure is not None:
        notes.append(f"{tried - len(good)} of {tried} rows tried have no answer: {failure}")
    if unstable:
        notes.append(unstable)
    if zero_one and not model.labels_only:
        notes.append("only 0 and 1 came back: the model seems to give labels, not probabilities")
    if len(p) > 1 and np.ptp(p) == 0.0:
        notes.append(
            f"the model gave every row the same answer ({p[0]:.6g}): are the "
            "positive class and the card's columns right?"
        )
    only_labels = model.labels_only or zero_one
    return ProbeReport(asker.sent, not unstable, only_labels, share, agreement, tuple(notes))


def extra_rows(oracle: Oracle) -> int:
    """Return how many rows an oracle has asked to find the form of its rows (`ModelOracle`)."""
    return int(getattr(oracle, "extra_rows", 0))


def form_told(oracle: Oracle, each: str = "") -> str:
    """Say what finding the form of the model's rows may cost besides, where it is not known."""
    most = getattr(oracle, "extra_rows_left", 0)
    who = f" for each {each}" if each else ""
    how = "in which form the model takes its rows (unless inputs are named)"
    return f" (and up to {most:,}{who} to find out {how})" if most else ""


@dataclass
class _Asker:
    """Asks an oracle for a number of seconds at most, and counts the rows that it is sent."""

    oracle: Oracle
    seconds: float = math.inf
    _sent: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.seconds
        self._extra_before = extra_rows(self.oracle)

    @property
    def sent(self) -> int:
        """How many rows were sent, whatever for."""
        return self._sent + extra_rows(self.oracle) - self._extra_before

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self._end

    def ask(self, rows: Sequence[Row]) -> Answers:
        """Return the answers to some rows."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise OracleTimeout(
                f"{self.oracle.name} was still being tried when the deadline of {self.seconds:g} "
                "seconds passed: allow more time, or fix the model"
            )
        self._sent += len(rows)
        # A row on which it hangs is asked among others and then alone: that leaves time for them.
        with at_most(min(left, self.seconds / 4)):
            return ask_checked(self.oracle, rows)


def ask_each(
    oracle: Oracle, rows: Sequence[Row]
) -> tuple[Answers, NDArray[np.intp], OracleError | None, int]:
    """Ask some rows, one by one where they cannot be asked together.

    Return the answers, the places of the rows that have one, why the first other has none, and how
    many rows were sent. After a few hangs the other rows have none either. Where all of them answer
    alone, that they did not together is no matter here.
    """
    asker = _Asker(oracle)
    answers, good, _, failure = _ask_what_answers(
        asker, rows, at_once=len(rows), most=2 * len(rows)
    )
    return answers, good, failure, asker.sent


def _ask_what_answers(
    asker: _Asker, rows: Sequence[Row], *, at_once: int, most: int
) -> tuple[Answers, NDArray[np.intp], int, OracleError | None]:
    """Ask rows in batches, and those of a batch that fails one by one, as far as ``most`` goes.

    Return the answers, the places of the rows that have one, how many rows were tried, and why the
    first other has none.
    """
    found: dict[int, tuple[float, bool]] = {}
    together: OracleError | None = None  # why a batch failed
    alone: OracleError | None = None  # why a row did
    left, tried, alone_tried, hung = most, 0, 0, 0

    def ask(places: Sequence[int]) -> OracleError | None:
        nonlocal left
        left -= len(places)
        try:
            answers = asker.ask([rows[i] for i in places])
        except OracleError as error:
            return error
        said = zip(answers.probability.tolist(), answers.decision.tolist(), strict=True)
        found.update(zip(places, said, strict=True))
        return None

    # In no order of the table, which may be sorted: that it begins with bad rows tells little.
    order = np.random.default_rng(0).permutation(len(rows)).tolist()
    for start in range(0, len(rows), at_once):
        batch = order[start : start + at_once]
        if len(batch) > left or hung >= ENOUGH_HANGS:
            break
        tried += len(batch)
        error = ask(batch)
        if error is None:
            continue
        if len(rows) == 1:
            raise error
        together = together or error
        for i in batch:
            given_up = hung >= ENOUGH_HANGS or (not found and alone_tried >= ENOUGH_TO_GIVE_UP)
            if given_up or not left or asker.is_over:
                break
            alone_tried += 1
            if (error := ask([i])) is not None:
                alone = alone or error
                hung += isinstance(error, OracleTimeout)
    if together is not None and not found:
        raise together
    good = sorted(found)
    answers = Answers(
        np.array([found[i][0] for i in good], dtype=np.float64),
        np.array([found[i][1] for i in good], dtype=np.bool_),
    )
    return answers, np.array(good, dtype=np.intp), tried, alone or together


def _ask_again(
    asker: _Asker, rows: Sequence[Row], first: Answers, twice: NDArray[np.intp]
) -> tuple[str, OracleError | None]:
    """Ask rows again; say why the model cannot be relied on to answer as before, if it cannot.

    Also return the error, where it does not answer at all.
    """
    try:
        second = _ask_shuffled(asker, rows)
    except OracleError as error:
        return f"whether the model gives the same answer each time is not known: {error}", error
    if not _alike(Answers(first.probability[twice], first.decision[twice]), second):
        return "the model gave some rows other answers when they were asked again", None
    return "", None


def _to_ask_again(first: Answers, most: int) -> NDArray[np.intp]:
    """Return which rows to ask again: half of them the least sure, the others from all over."""
    every = np.arange(len(first.probability))
    unsure = np.argsort(np.abs(first.probability - 0.5), kind="stable")[: most // 2]
    others = _spread(np.setdiff1d(every, unsure), most - len(unsure))
    return np.union1d(unsure, others)


def _of_both(truth: NDArray[np.bool_], most: int) -> NDArray[np.intp]:
    """Return rows from all over the table (it may be sorted), half of either label if possible."""
    positive, negative = np.flatnonzero(truth), np.flatnonzero(~truth)
    count = min(len(positive), max(most // 2, most - len(negative)))
    return np.sort(np.concatenate([_spread(positive, count), _spread(negative, most - count)]))


def _spread(of: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    if not len(of) or most < 1:
        return of[:0]
    at = np.linspace(0, len(of) - 1, min(most, len(of))).astype(np.intp)
    return np.unique(of[at])


def check_oracle(
    oracle: Oracle, rows: Sequence[Row], *, expected: Sequence[float] | None = None
) -> None:
    """Raise `OracleError` unless the oracle keeps its protocol on these rows.

    It must answer no rows with no answers, every row with a probability and a decision of the
    right type, the same each time, whatever the order and the size of the batch. ``expected`` are
    the probabilities of approval that the model itself gave for these rows where it was trained:
    the one check that proves that it is asked the way it was trained. (Numbers that were
    label-encoded cannot be seen otherwise.)

    >>> import waysout
    >>> data = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["credit_score"] / 1400, data.card)
    >>> scores = [data.card.schema.as_dict(row)["credit_score"] for row in data.rows[:20]]
    >>> waysout.check_oracle(oracle, data.rows[:20], expected=[score / 1400 for score in scores])
    """
    if not rows:
        raise InputError("there are no rows to check the oracle with")
    if not isinstance(oracle.name, str) or not isinstance(oracle.labels_only, bool):
        raise OracleError("an oracle's name must be a string and its labels_only a bool")
    ask_checked(oracle, [])
    first = ask_checked(oracle, rows)
    if not _alike(first, ask_checked(oracle, rows)):
        raise OracleError("the oracle gave the same rows different answers the second time")
    if not _alike(first, _ask_shuffled(_Asker(oracle), rows)):
        raise OracleError("the oracle's answers depend on the order or the size of the batch")
    for i, row in enumerate(rows[:8]):
        alone = ask_checked(oracle, [row])
        if not _alike(alone, Answers(first.probability[i : i + 1], first.decision[i : i + 1])):
            raise OracleError(f"the oracle answered row {i} differently when it was asked alone")
    if expected is None:
        return
    wanted, p = np.asarray(expected, dtype=np.float64), first.probability
    if wanted.shape != (len(rows),):
        raise InputError(
            f"there are {len(rows)} rows, and expected has the shape {wanted.shape}: pass one "
            "probability of approval for each row"
        )
    off = np.flatnonzero(~(np.abs(p - wanted) <= SAME))  # NaN is not an answer either
    shown, schema = "", getattr(oracle, "schema", None)
    for i in off[:3]:
        cells = map(repr, rows[i])
        if isinstance(schema, Schema):
            cells = map("=".join, schema.format(rows[i]).items())
        shown += f"\n  row {i} ({', '.join(cells):.200}): {p[i]:.6g} here, {wanted[i]:.6g} expected"
    if len(off):
        raise OracleError(
            f"{oracle.name} answers {len(off)} of {len(rows)} rows differently than expected:"
            f"{shown}\nThe card and the model do not fit: compare levels, codes and missing values "
            "with what it was trained on, and name the form (inputs=…) and the class "
            "(positive_class=…)"
        )


def _ask_shuffled(asker: _Asker, rows: Sequence[Row]) -> Answers:
    """Ask the rows in another order and in two batches; answer in their own order."""
    order = np.random.default_rng(1).permutation(len(rows))  # not that of the first asking
    half = (len(rows) + 1) // 2
    parts = [asker.ask([rows[i] for i in part]) for part in (order[:half], order[half:])]
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


def _held_against(chance: NDArray[np.float64], labels: NDArray[np.bool_], oracle: Oracle) -> bool:
    """Raise where positives rank below negatives more than chance explains, or all are alike.

    Return whether they rank above more than chance explains. Ranks (the area under the ROC curve)
    see it also where every decision is a no.
    """
    yes, no = chance[labels], chance[~labels]
    above = (yes[:, None] > no).mean() + 0.5 * (yes[:, None] == no).mean()
    n, told = len(chance), getattr(oracle, "yes_told", "")
    told = f": {told}" if told else ""
    # Equal probabilities leave less to chance (the tie correction of Mann and Whitney).
    ties = sum(t**3 - t for t in Counter(chance.tolist()).values()) / max(1, n * (n - 1))
    error = math.sqrt(max(0.0, n + 1 - ties) / (12 * len(yes) * len(no)))
    if n < ENOUGH_TO_TELL_CLASSES:
        return False
    if np.ptp(chance) == 0.0:
        raise OracleError(
            f"{oracle.name} gave {len(yes)} rows that are labelled positive and {len(no)} that are "
            f"not one and the same answer, {chance[0]:.6g}{told}. Name the class that means a yes "
            "(positive_class=…), check that the card's columns and levels are those the model was "
            "trained on, or name the form of its rows (inputs=…)"
        )
    if above < BELOW_CHANCE and 0.5 - above > 2 * error:
        raise OracleError(
            f"{oracle.name} disagrees with the labels more than chance would (it ranks a row "
            f"labelled positive above another one {above:.0%} of the time, on {n} rows){told}. Its "
            "classes look swapped. Are the labels the right way round? If so, name the class of "
            "the model that means a yes with positive_class=…, or let a function return 1 - p"
        )
    return bool(above - 0.5 > 2 * error)
