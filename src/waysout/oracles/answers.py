"""From what a model returns to `Answers`: every value checked, the wanted class found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.domain.card import label_text
from waysout.domain.oracle import Answers, Oracle
from waysout.domain.schema import Row, Scalar, Schema
from waysout.errors import OracleError, OracleTimeout, shown
from waysout.oracles.adapter import Adapter, Output
from waysout.oracles.watchdog import ROW_SECONDS, watched

# Probabilities of float32 models miss 0, 1 and a sum of one by rounding.
RANGE_TOLERANCE = 1e-6
SUM_TOLERANCE = 1e-3

_ZERO_ONE = (0, 1, False, True)


@dataclass(frozen=True, slots=True)
class WantedClass:
    """What counts as approval: the card's positive label, and the model's own name for it."""

    positive: Scalar
    positive_class: Scalar | None = None


@dataclass(frozen=True, slots=True)
class AnswerReading:
    """A batch of answers, and what was learnt about the model by reading them.

    ``taken`` says what was taken for a yes, ``assumed`` on which assumption, if on any.
    ``strange`` are labels without a yes among them, of a model that does not name its classes.
    """

    answers: Answers
    labels_only: bool
    taken: str
    assumed: str = ""
    strange: frozenset[str] = frozenset()


def same(a: object, b: object) -> bool:
    """Whether two labels are the same: as values, or as text (``1``, ``"1"`` and ``1.0``).

    >>> same(np.int64(1), "1"), same("1.0", 1), same(True, 1), same("yes", "no")
    (True, True, True, False)
    """
    return bool(a == b) or label_text(a) == label_text(b)


def choose_class(
    classes: Sequence[Any], wanted: WantedClass, *, numbered: bool = True
) -> tuple[int, bool]:
    """Return the index of the approval class, and whether it had to be assumed to be class 1.

    It is the one the user names; else the card's positive value, if the model has it; else class 1
    of 0 and 1, which `probe` checks against the table's labels.
    """
    named = wanted.positive if wanted.positive_class is None else wanted.positive_class
    found = [i for i, c in enumerate(classes) if same(c, named)]
    if found and (numbered or wanted.positive_class is not None):
        # Typed equality goes first: a model may tell 1 from "1".
        return next((i for i in found if type(classes[i]) is type(named)), found[0]), False
    texts = {label_text(c) for c in classes} if len(classes) == 2 else set()
    zero_one = texts in ({"0", "1"}, {"False", "True"})
    if wanted.positive_class is None and numbered and zero_one:
        return next(i for i, c in enumerate(classes) if same(c, 1) or same(c, True)), True
    whose = "the card's label for a yes" if wanted.positive_class is None else "positive_class"
    raise OracleError(
        f"the model's classes are {_listed(classes)}, and {whose} is {_plain(named)!r}, which is "
        f"known to be none of them: name the class that means a yes with "
        f"positive_class={_plain(classes[-1])!r}, or whichever it is"
    )


def class_taken(classes: Sequence[Any], index: int) -> str:
    """Say which class is taken for a yes."""
    return f"class {_plain(classes[index])!r} of {_listed(classes)}"


def class_assumed(classes: Sequence[Any], index: int, wanted: WantedClass) -> str:
    """Say that class 1 was assumed to be a yes, on what grounds, and what to do if it is not."""
    return (
        f"the model's classes are {_listed(classes)}, and the card's label for a yes is "
        f"{_plain(wanted.positive)!r}: class {_plain(classes[index])!r} was taken for a yes; pass "
        f"positive_class={_plain(classes[1 - index])!r} if it is the other"
    )


def _listed(classes: Sequence[Any]) -> str:
    return ", ".join(repr(_plain(c)) for c in classes[:20]) + (", …" if len(classes) > 20 else "")


def _choose_column(width: int, wanted: WantedClass, *, numbered: bool) -> tuple[int, bool]:
    """Return the approval's column among nameless ones, and whether it had to be assumed."""
    if wanted.positive_class is not None or not numbered:
        return choose_class(range(width), wanted, numbered=numbered)
    column = {"0": 0, "1": 1, "False": 0, "True": 1}.get(label_text(wanted.positive))
    if width == 2 and column is not None:
        return column, True
    # Of the labels 1 and 2 the column 1 would be the wrong one, so a number must be 0 or 1.
    if width == 2 and not _is_number(wanted.positive):
        return 1, True
    raise OracleError(
        f"the model returned {width} columns without names, so which of them is "
        f"{wanted.positive!r} is not known: name its number with positive_class=…, or return a "
        "DataFrame whose columns are named by class"
    )


def _is_number(label: object) -> bool:
    if isinstance(label, (bool, np.bool_)):
        return True
    try:
        return bool(np.isfinite(float(label_text(label))))
    except ValueError:
        return False


def _has_float(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


@dataclass(slots=True)
class Reader:
    """Reads what one model returns; ``gave_scores`` once it has returned a probability."""

    schema: Schema
    wanted: WantedClass
    adapter: Adapter
    gave_scores: bool = False

    def read(self, returned: Any, rows: Sequence[Row]) -> AnswerReading:
        """Check one batch and find the wanted class in it."""
        output = returned
        if not isinstance(returned, Output):
            classes, columns = self.adapter.classes, list(getattr(returned, "columns", ()))
            if classes is None and len(columns) > 1 and columns != list(range(len(columns))):
                classes = tuple(columns)
            output = Output(returned, classes)
        given = _in_order(output.values, len(rows))
        try:
            values = np.asarray(given)
            if values.dtype.kind == "U":  # a text among numbers makes texts of them all
                values = np.asarray(given, dtype=object)
        except ValueError as error:
            raise OracleError(f"the model returned rows of different lengths: {error}") from error
        if values.dtype.kind in "cmM":  # as numbers, times would count nanoseconds
            raise OracleError(f"the model returned {values.dtype} where a probability was expected")
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim not in (1, 2) or len(values) != len(rows):
            raise OracleError(
                f"the model was asked for {len(rows)} rows and returned "
                f"{type(output.values).__name__} of shape {values.shape}: it must return one "
                "probability or label a row, or one row of class probabilities"
            )
        labels = self.adapter.gives == "labels"
        if self.adapter.gives == "either" and values.ndim == 1:
            labels = values.dtype.kind != "f"
            if values.dtype == object:
                labels = not all(isinstance(v, (float, np.floating)) for v in values)
                self._check_alike(values, rows)
        return (self._labels if labels else self._scores)(values, output, rows)

    def _scores(self, values: NDArray[Any], output: Output, rows: Sequence[Row]) -> AnswerReading:
        try:
            scores = values.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            odd = next((value for value in values.flat if not _has_float(value)), values)
            raise OracleError(
                f"the model returned {shown(odd, 80)} where a probability was expected"
            ) from None
        wrong = ~np.isfinite(scores) | (np.abs(scores - 0.5) > 0.5 + RANGE_TOLERANCE)
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            raise self._fault(
                rows,
                int(at[0]),
                f"the model returned {scores[at]!s} where a probability from 0 to 1 was expected",
                "If these are scores or margins, wrap the model in a function that returns "
                "probabilities; if they are labels, return them as text or integers",
            )
        scores, classes = np.clip(scores, 0.0, 1.0), output.classes
        if scores.ndim == 1:
            index, taken, note = 1, "the number it returns", ""
            if classes is not None:
                index, taken, note = self._of_classes(classes)
            elif self.wanted.positive_class is not None:
                # One number a row is the chance of approval, unless the user says it is another's.
                index, _ = choose_class((0, 1), self.wanted)
                taken = taken if index == 1 else "one less the number it returns"
            chance = scores if index == 1 else 1.0 - scores
            return AnswerReading(Answers(chance, chance >= 0.5), False, taken, note)
        width = scores.shape[1]
        if classes is not None and len(classes) != width:
            raise OracleError(f"the model has {len(classes)} classes and returned {width} columns")
        sums = scores.sum(axis=1)
        off = np.flatnonzero(np.abs(sums - 1.0) > SUM_TOLERANCE)
        if self.adapter.sums_to_one and len(off):
            raise self._fault(
                rows,
                int(off[0]),
                f"the class probabilities add up to {sums[off[0]]:.6g}, not to 1",
                "Return probabilities, or wrap the model in a function that makes them",
            )
        if classes is None:
            index, assumed = _choose_column(width, self.wanted, numbered=output.numbered)
            taken = f"column {index} of {width}"
            note = (
                f"the model returned {width} columns without names; column {index} was taken for "
                f"a yes: pass positive_class={1 - index} if it is the other"
            )
            note = note if assumed else ""
        else:
            index, taken, note = self._of_classes(classes)
        chance = np.ascontiguousarray(scores[:, index])
        # Of two equal chances the first class wins, as in scikit-learn's own `predict`: forests
        # are often undecided, and what is called a yes must be one to whoever asks the model.
        decision = scores.argmax(axis=1) == index
        return AnswerReading(Answers(chance, decision), False, taken, note)

    def _of_classes(self, classes: Sequence[Any]) -> tuple[int, str, str]:
        """Return the index of a yes, what it is, and the assumption that took, if any."""
        index, assumed = choose_class(classes, self.wanted)
        note = class_assumed(classes, index, self.wanted) if assumed else ""
        return index, class_taken(classes, index), note

    def _labels(self, values: NDArray[Any], output: Output, rows: Sequence[Row]) -> AnswerReading:
        if values.ndim != 1:
            raise OracleError(f"the model returned labels of shape {values.shape}, not one a row")
        labels = [_plain(v) for v in values]
        for i, label in enumerate(labels):
            fraction = output.classes is None and isinstance(label, float) and label % 1
            # As a float it is infinite, and would pass for the text of another class.
            too_long = isinstance(label, int) and not -(2**63) <= label < 2**64
            if not isinstance(label, (str, int, float)) or label != label or fraction or too_long:
                raise self._fault(
                    rows,
                    i,
                    f"the model returned {shown(label)} where a class label was expected",
                    "A regression model has no classes: wrap it in a function that returns the "
                    "probability of approval",
                )
        distinct, positive, note = set(labels), self.wanted.positive, ""
        if output.classes is not None:
            index, taken, note = self._of_classes(output.classes)
            positive = output.classes[index]
        elif self.wanted.positive_class is not None:
            positive = self.wanted.positive_class
        elif all(any(same(s, c) for c in _ZERO_ONE) for s in distinct):
            if not any(same(positive, c) for c in _ZERO_ONE):
                note, positive = class_assumed((0, 1), 1, self.wanted), 1
        else:
            self._check_labels(distinct)
        if output.classes is None:
            taken = f"the label {_plain(positive)!r}"
        yes = {seen: same(seen, positive) for seen in distinct}
        decision = np.array([yes[seen] for seen in labels], dtype=np.bool_)
        known = output.classes is not None or any(yes.values())
        strange = frozenset[str]() if known else frozenset(map(repr, distinct))
        answers = Answers(decision.astype(np.float64), decision)
        return AnswerReading(answers, True, taken, note, strange)

    def _check_alike(self, values: NDArray[Any], rows: Sequence[Row]) -> None:
        """Raise where a text is among probabilities: read as labels, all of them would be a no."""
        text = next((i for i, v in enumerate(values) if isinstance(v, str)), None)
        if any(isinstance(v, float) and v % 1 for v in values):
            self.gave_scores = True  # also where it fails, so that the text is told when alone
        if text is not None and self.gave_scores:
            what = f"the model returned {values[text]!r:.80} where a probability was expected"
            raise self._fault(rows, text, what, "Return one kind of answer")

    def _check_labels(self, seen: set[Any]) -> None:
        """Raise where the labels are text and the card's is a number, or the other way round."""
        positive = self.wanted.positive
        alike = {_is_number(label) for label in seen}
        if _is_number(positive) not in alike and not any(same(s, positive) for s in seen):
            raise OracleError(
                f"the model returned the labels {_listed(sorted(seen, key=str))}, and the card's "
                f"label for a yes is {_plain(positive)!r}, which can be none of them: "
                "name the model's label for a yes with positive_class=…"
            )

    def _fault(self, rows: Sequence[Row], i: int, what: str, remedy: str) -> OracleError:
        """Say what came back, for which row, and what to do."""
        row = ", ".join(f"{k}={v}" for k, v in self.schema.format(rows[i]).items())
        row = row if len(row) <= 300 else row[:300] + "…"
        return OracleError(f"{what}, for row {i} of the batch ({row}). {remedy}")


def _in_order(values: Any, count: int) -> Any:
    """Return what a model returned in the order of its rows, and nothing for what it masked.

    The index of a pandas object tells which answer is whose: every frame is given with 0, 1, 2 …,
    and a model may sort or group its rows.
    """
    if isinstance(values, np.ma.MaskedArray) and np.any(values.mask):
        nothing: Any = np.nan if values.dtype.kind == "f" else None
        return np.where(values.mask, nothing, values.data)  # what is behind it must not count
    if not hasattr(values, "iloc"):
        return values
    index, rows = np.asarray(values.index), np.arange(count)
    if index.dtype.kind not in "iu" or np.array_equal(index, rows):
        return values
    return values.iloc[np.argsort(index)] if np.array_equal(np.sort(index), rows) else values


@contextmanager
def as_raised(who: str, schema: Schema | None = None) -> Iterator[None]:
    """Make one kind of error of whatever a model raises, in a thread of its own.

    What is no `Exception` (a panic of a Rust library, a ``sys.exit``) is an error of the model like
    any other: it would end the event loop, the worker or the service. So is an error that the
    model borrows from us: a search takes an `OracleError` for a row's failure, and no other. The
    text is taken here, where it is watched: it may be the model's own code as well.
    """
    try:
        yield
    except OracleError as error:
        kind = OracleTimeout if isinstance(error, OracleTimeout) else OracleError
        raise kind(str(error)) from error
    except BaseException as error:
        raise raised(error, who, schema) from error


def raised(error: BaseException, who: str, schema: Schema | None = None) -> OracleError:
    """Turn what a model raised into an error that names the column, where the message tells."""
    message = str(error).split("\nStack trace")[0].strip()
    message = message if len(message) <= 600 else message[:600] + "…"
    where = "" if schema is None else _where(message, schema)
    return OracleError(f"{who} raised {type(error).__name__}{where}: {message}", raised=True)


def _where(message: str, schema: Schema) -> str:
    quoted = set(re.findall(r"['\"‘]([^'\"’]+)['\"’]", message))
    lines = {line.strip(" -*") for line in message.splitlines()}
    columns = [name for name in schema.names if name in quoted | lines]
    if not columns:
        columns = [f.name for f in schema if quoted & {*f.level_texts, *map(str, f.levels)}]
    return f" (column {', '.join(map(repr, columns[:3]))})" if columns else ""


def ask_checked(oracle: Oracle, rows: Sequence[Row]) -> Answers:
    """Ask any oracle, within its time, and check that its answers are well formed.

    An oracle may set ``row_seconds``. One that has ``watches`` limits its own calls: a lock of its
    own is then not held by a call that hangs.
    """
    if getattr(oracle, "watches", False):
        return _checked(oracle, rows, oracle.ask(rows))

    def call() -> Answers:
        with as_raised(oracle.name):
            return _checked(oracle, rows, oracle.ask(rows))

    return watched(call, len(rows), getattr(oracle, "row_seconds", ROW_SECONDS))


def _checked(oracle: Oracle, rows: Sequence[Row], answers: Answers) -> Answers:
    if not isinstance(answers, Answers):
        raise OracleError(f"the oracle returned {type(answers).__name__} instead of Answers")
    for name, dtype in (("probability", np.dtype(np.float64)), ("decision", np.dtype(np.bool_))):
        array = getattr(answers, name)
        if not isinstance(array, np.ndarray) or array.dtype != dtype:
            raise OracleError(f"the oracle's {name} must be a numpy array of {dtype}")
        if array.shape != (len(rows),):
            raise OracleError(
                f"the oracle was asked for {len(rows)} rows and its {name} has the shape "
                f"{array.shape}"
            )
    # Copied, as an oracle may reuse its arrays for the next batch.
    answers = Answers(np.array(answers.probability), np.array(answers.decision))
    p = answers.probability
    wrong = np.flatnonzero(~((p >= 0.0) & (p <= 1.0)))
    if len(wrong):
        i = int(wrong[0])
        raise OracleError(f"the oracle's probability is {p[i]} for the row {rows[i]!r:.300}")
    if oracle.labels_only and not np.array_equal(p, answers.decision):
        raise OracleError("an oracle that gives labels only must answer 1.0 for yes and 0.0 for no")
    return answers
