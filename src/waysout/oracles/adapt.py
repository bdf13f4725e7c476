"""From a trained model to an oracle: `as_oracle`.

How rows are handed over is read off the model where it tells (see the module of its kind); where it
does not, they look like the user's own data (``like=``), or a trial on the first batch decides once
(see `waysout.oracles.layout_trial`); ``inputs=`` overrides all of that.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from waysout.domain.card import Card
from waysout.domain.oracle import Answers
from waysout.domain.schema import Row, Scalar, Schema
from waysout.errors import OracleError, WaysoutError, unknown
from waysout.oracles.adapter import Adapter, classes_of
from waysout.oracles.answers import (
    AnswerReading,
    Reader,
    WantedClass,
    as_raised,
    choose_class,
    class_assumed,
    class_taken,
    raised,
)
from waysout.oracles.inputs import (
    InputColumn,
    InputKind,
    InputLayout,
    Inputs,
    check_rows,
    is_generic,
    places,
)
from waysout.oracles.like import like_layout
from waysout.oracles.load import is_address, load_model
from waysout.oracles.watchdog import ROW_SECONDS, check_row_seconds, watched

if TYPE_CHECKING:
    from waysout.oracles.layout_trial import LayoutTrial

# The module of a kind of model, by the package or module that its class, or one it derives from, is
# defined in: no need to import that.
KINDS = {
    "lightgbm": "lightgbm", "xgboost": "xgboost", "catboost": "catboost", "onnxruntime": "onnx",
    "waysout.oracles.onnx": "onnx", "waysout.oracles.http": "http", "keras": "keras",
    "tf_keras": "keras", "torch": "torch",
}  # fmt: skip
# The kinds that do not record the form of their rows: the user's data tells it.
_LIKE_DATA = ("estimators", "keras", "torch")


class ModelOracle:
    """A model that answers for typed rows.

    Where the model does not tell the form of its input, batches are asked in several until the
    answers do. ``model`` is the model itself, for checks that read it; no search does.
    ``labels_only`` of a function is known once it has answered; ``layout``, how the model gets its
    rows column by column, where it is on trial, after the first batch. ``row_seconds`` is how long
    it may take for one row.
    """

    watches = True

    def __init__(
        self,
        adapter: Adapter,
        schema: Schema,
        wanted: WantedClass,
        name: str,
        model: Any,
        row_seconds: float = ROW_SECONDS,
    ) -> None:
        self.name, self.schema, self.model = name, schema, model
        self.row_seconds = row_seconds
        self.labels_only = adapter.gives == "labels"
        self._adapter, self._wanted = adapter, wanted
        self._assumed = self._taken = ""
        self._strange: set[str] = set()  # labels so far, as long as none was a yes
        self._seen_yes = self._gave_scores = False
        if adapter.classes is not None:
            index, assumed = choose_class(adapter.classes, wanted)
            self._taken = class_taken(adapter.classes, index)
            self._assumed = class_assumed(adapter.classes, index, wanted) if assumed else ""
        self._lock = threading.Lock()
        self.layout: InputLayout | None = None
        self._trial: LayoutTrial | None = None
        self._like, self._refused_like, self._refused_rows = adapter.like, "", 0
        if self._like is None:
            self._start_trial()

    def _start_trial(self) -> None:
        """Settle on the only layout there is, or start to find it."""
        layouts, refused = self._adapter.layouts, self._adapter.refused
        if len(layouts) == 1 and not refused:
            self.layout = layouts[0]
            return
        from waysout.oracles.layout_trial import LayoutTrial

        told = (f"like the data: {self._refused_like}",) if self._refused_like else ()
        self._trial = LayoutTrial(layouts, (*told, *refused))

    @property
    def assumed_class(self) -> bool:
        """Whether class 1 was taken for approval because nothing named another."""
        return bool(self._assumed)

    @property
    def assumption(self) -> str:
        """On which assumption something was taken for a yes, if on any; `notes` say it too."""
        return self._assumed

    @property
    def yes_told(self) -> str:
        """What is taken for a yes, and the card's label for it; empty until that is known."""
        label = self._wanted.positive
        return f"{self._taken} is taken for the card's {label!r}" if self._taken else ""

    @property
    def inputs(self) -> InputKind | None:
        """The form in which the model gets its rows; None until the first batch."""
        return self.layout.kind if self.layout else None

    @property
    def extra_rows(self) -> int:
        """How many rows were asked to find the form of the model's rows, beyond those to answer."""
        return self._refused_rows + (self._trial.extra_rows if self._trial else 0)

    @property
    def extra_rows_left(self) -> int:
        """How many more such rows there may be; none once the form is known."""
        return self._trial.rows_left if self._trial else 0

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about how model and card fit together."""
        notes = [*self._adapter.notes, *([self._assumed] if self._assumed else [])]
        if len(self._strange) > 1:
            notes.append(
                f"the model has answered {', '.join(sorted(self._strange)[:8])} so far, and none "
                f"is the card's label for a yes, {self._wanted.positive!r}: name the model's with "
                "positive_class=… if it has another"
            )
        if self._refused_like and self.layout is not None:
            notes.append(
                f"the model refused rows in the form of the data ({self._refused_like:.200}), and "
                f"is given them as {self.layout.kind!r}"
            )
        if self._trial is not None and not self._trial.reacted and self.layout is not None:
            notes.append(
                "no category changed the answers so far, so how the model gets them is unproven"
            )
        return tuple(notes)

    def ask(self, rows: Sequence[Row]) -> Answers:
        """Answer for each row, in order, with one call of the model once its form is known."""
        check_rows(self.schema, rows)
        if not rows:
            return Answers(np.empty(0, dtype=np.float64), np.empty(0, dtype=np.bool_))
        with self._lock:
            if self._like is not None and (answers := self._ask_like(self._like, rows)) is not None:
                return answers
            if self._trial is not None and self._trial.rows_left:
                told = self._trial.ask(self._ask, rows)
                self.layout = self._trial.layouts[0]
                return told
        if self.layout is None:  # no form has answered so far, and none is looked for any more
            assert self._trial is not None
            return self._ask(self._trial.layouts[0], rows)
        return self._ask(self.layout, rows)

    def _ask_like(self, like: InputLayout, rows: Sequence[Row]) -> Answers | None:
        """Answer in the form of the user's data; nothing where the model refuses that form."""
        try:
            answers = self._ask(like, rows)
        except OracleError as error:
            if not error.raised:
                raise
            self._refused_like, self._like = str(error), None
            self._refused_rows = len(rows)
            self._start_trial()
            return None
        self.layout, self._like = like, None
        return answers

    def _ask(self, layout: InputLayout, rows: Sequence[Row]) -> Answers:
        built = layout.build(rows)
        reader = Reader(self.schema, self._wanted, self._adapter, self._gave_scores)

        def call() -> AnswerReading:
            # Also what it returned, and what it raised, may run code of the model when looked at.
            with as_raised("the model", self.schema):
                returned = self._adapter.ask(built)
            with as_raised("what the model returned"):
                return reader.read(returned, rows)

        try:
            reading = watched(call, len(rows), self.row_seconds)
        finally:
            self._gave_scores |= reader.gave_scores
        if self._adapter.gives == "either":
            # A batch of nothing but 0 and 1 may look like labels; what is a fraction cannot be.
            self._gave_scores = self._gave_scores or not reading.labels_only
            self.labels_only = not self._gave_scores
        self._taken, self._assumed = reading.taken, reading.assumed
        self._seen_yes = self._seen_yes or not reading.strange
        self._strange = set() if self._seen_yes else self._strange | reading.strange
        return reading.answers


def as_oracle(
    model: Any,
    table: Card | Schema,
    *,
    positive: Scalar | None = None,
    positive_class: Scalar | None = None,
    inputs: Inputs = "auto",
    name: str | None = None,
    like: Any = None,
    row_seconds: float | None = None,
) -> ModelOracle:
    """Make an oracle of a model, a function or an address, for the rows that a card describes.

    ``positive`` is the label for approval (a card knows it, a bare schema does not) and
    ``positive_class`` the model's own name for it, needed only where the two differ. ``inputs``
    says how the model was trained, where it does not tell itself: on the table's own values
    ("raw"), on pandas categories ("category"), on numbers for levels ("codes"); a function may
    also ask for "dicts". ``like`` is a pandas or polars frame or a numpy matrix in the form the
    model takes: its rows are handed over in exactly that form, with its columns, their order and
    types, unless the model refuses it. (Of boosters, what they recorded tells first.)
    ``row_seconds`` (60; for an address 120) is how long the model may take for a row, and a
    hundredth of that more for each row of a batch: what it has not answered by then, it counts as
    having failed on.

    >>> import waysout
    >>> schema = waysout.Schema((waysout.Feature("income", "number"),))
    >>> oracle = waysout.as_oracle(lambda frame: frame["income"] / 100, schema, positive="yes")
    >>> oracle.ask([(20.0,), (70.0,)]).decision.tolist()
    [False, True]
    """
    if inputs not in get_args(Inputs):
        raise OracleError(unknown("kind of inputs", inputs, get_args(Inputs)))
    limit = check_row_seconds(row_seconds)
    schema = table.schema if isinstance(table, Card) else table
    if positive is None:
        if not isinstance(table, Card):
            raise OracleError("which label means approval? Pass the card, or positive=…")
        positive = table.outcome.positive
    wanted = WantedClass(positive, positive_class)
    if isinstance(model, str) and is_address(model):
        model = load_model(model)

    def look() -> tuple[Adapter, str, bool]:
        try:
            label = getattr(model, "__name__", type(model).__name__) if name is None else name
            return _adapter(model, schema, inputs, like), str(label), _kind(model) == "http"
        except WaysoutError:
            raise
        except BaseException as error:
            raise raised(error, "the model", schema) from error

    # A property of the model may be code of its own.
    adapter, label, is_server = watched(look, 1, limit)
    if is_server:
        from waysout.oracles.http import HttpOracle

        label = model.name if name is None else name
        limit = max(limit, model.deadline) if row_seconds is None else limit
        return HttpOracle(adapter, schema, wanted, label, model, limit)
    return ModelOracle(adapter, schema, wanted, label, model, limit)


def model_columns(model: Any) -> tuple[str, ...] | None:
    """Return the columns a model says it was trained on; None where it does not tell.

    A pipeline that drops columns does not name those, and names that a library made up for columns
    without any ("f0") are none. LightGBM and ONNX converters write "loan amount" as "loan_amount".

    >>> model_columns(lambda frame: frame["income"] / 100) is None
    True
    """

    def look() -> list[str]:
        owner = getattr(model, "__self__", model)  # the owner of model.predict_proba
        kind = None if isinstance(owner, type) else _kind(owner)
        module = importlib.import_module(f"waysout.oracles.{kind}")
        return [str(name) for name in module.columns(owner)]

    try:
        columns = watched(look, 1, ROW_SECONDS)
    except WaysoutError:
        return None  # it has no names, or is not fitted: `as_oracle` says what is wrong
    return None if not columns or is_generic(columns) else tuple(columns)


def _kind(model: Any) -> str | None:
    """Return the module of a kind of model; None for a function and for what is no model."""
    defined = [base.__module__ for base in type(model).__mro__]
    known = [KINDS.get(module) or KINDS.get(module.split(".")[0]) for module in defined]
    kind = next((kind for kind in KINDS.values() if kind in known), None)
    methods = ("predict_proba", "predict", "decision_function")
    if kind is None and any(hasattr(model, method) for method in methods):
        kind = "estimators"
    if kind == "torch" and hasattr(model, "predict_proba"):
        kind = "estimators"  # A module that knows what to do with a table.
    return kind


def _adapter(model: Any, schema: Schema, inputs: Inputs, like: Any) -> Adapter:
    if isinstance(model, type):
        raise OracleError(f"{model.__name__} is a class: pass a fitted model, not its class")
    kind = _kind(model)
    if kind is None and not callable(model):
        raise OracleError(
            f"{type(model).__name__} is not a model that Waysout knows: pass a function that takes "
            "a DataFrame and returns probabilities, a scikit-learn estimator, a torch module, or a "
            "LightGBM, XGBoost, CatBoost, ONNX or Keras model, or an address (http://…)"
        )
    like = like if inputs == "auto" else None
    if kind is not None and kind not in _LIKE_DATA:
        try:
            return _of_kind(kind, model, schema, inputs)
        except OracleError:
            if like is None or not hasattr(model, "predict_proba"):
                raise
            kind = "estimators"  # What it recorded does not tell; the data does.
    if like is None:
        return _of_kind(kind, model, schema, inputs)
    layout, notes = like_layout(like, schema, model_columns(model))
    adapter = _of_kind(kind, model, schema, inputs, like=layout)
    return replace(adapter, notes=(*adapter.notes, *notes))


def _of_kind(
    kind: str | None, model: Any, schema: Schema, inputs: Inputs, **options: Any
) -> Adapter:
    if kind is None:
        return _of_function(model, schema, inputs, **options)
    module = importlib.import_module(f"waysout.oracles.{kind}")
    return module.adapter(model, schema, inputs, **options)  # type: ignore[no-any-return]


def _of_function(
    function: Any, schema: Schema, inputs: Inputs, like: InputLayout | None = None
) -> Adapter:
    """Adapt a function, which gets the raw DataFrame unless it was asked for otherwise.

    One number a row is the chance of approval; a bound method such as model.predict_proba brings
    its owner's classes along.
    """
    classes = classes_of(getattr(function, "__self__", None))
    if like is not None:  # and nothing else: another form would hide what the function raises
        return Adapter(function, (like,), gives="either", classes=classes)
    form: InputKind = "raw" if inputs == "auto" else inputs
    layout = InputLayout.plain(form, places(schema), named=form != "codes")
    if form == "raw":
        columns = tuple(InputColumn.as_written(column.place) for column in layout.columns)
        layout = replace(layout, columns=columns)
    return Adapter(function, (layout,), gives="either", classes=classes)
