"""From a trained model to an oracle: `as_oracle`.

How rows are handed over is read off the model where it tells (see the module of its kind); where it
does not, a trial on the first batch decides once (see `waysout.oracles.layout_trial`); ``inputs=``
overrides both.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from waysout.domain.card import Card
from waysout.domain.oracle import Answers
from waysout.domain.schema import Row, Scalar, Schema
from waysout.errors import OracleError, WaysoutError, unknown
from waysout.oracles.adapter import Adapter, classes_of
from waysout.oracles.answers import Reader, WantedClass, choose_class, raised
from waysout.oracles.inputs import InputKind, InputLayout, Inputs, check_rows, places

if TYPE_CHECKING:
    from waysout.oracles.layout_trial import LayoutTrial

# The module of a kind of model, by the package or module that its class, or one it derives from, is
# defined in: no need to import that.
KINDS = {
    "lightgbm": "lightgbm", "xgboost": "xgboost", "catboost": "catboost", "onnxruntime": "onnx",
    "waysout.oracles.onnx": "onnx",
}  # fmt: skip


class ModelOracle:
    """A model that answers for typed rows.

    Where the model does not tell the form of its input, batches are asked in several until the
    answers do. ``model`` is the model itself, for checks that read it; no search does.
    ``labels_only`` of a function is known once it has answered; ``layout``, how the model gets its
    rows column by column, where it is on trial, after the first batch.
    """

    def __init__(
        self, adapter: Adapter, schema: Schema, wanted: WantedClass, name: str, model: Any
    ) -> None:
        self.name, self.schema, self.model = name, schema, model
        self.labels_only = adapter.gives == "labels"
        self._adapter, self._wanted = adapter, wanted
        self._assumed_class = False
        self._lock = threading.Lock()
        self.layout: InputLayout | None = adapter.layouts[0] if adapter.layouts else None
        self._trial: LayoutTrial | None = None
        if len(adapter.layouts) != 1 or adapter.refused:
            from waysout.oracles.layout_trial import LayoutTrial

            self.layout = None
            self._trial = LayoutTrial(adapter.layouts, adapter.refused)

    @property
    def assumed_class(self) -> bool:
        """Whether class 1 was taken for approval because nothing named another."""
        if self._adapter.classes is not None:
            return choose_class(self._adapter.classes, self._wanted)[1]
        return self._assumed_class

    @property
    def inputs(self) -> InputKind | None:
        """The form in which the model gets its rows; None until the first batch."""
        return self.layout.kind if self.layout else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about how model and card fit together."""
        if self._trial is None or self._trial.reacted or self.layout is None:
            return self._adapter.notes
        return (
            *self._adapter.notes,
            "no category changed the answers so far, so how the model gets them is unproven",
        )

    def ask(self, rows: Sequence[Row]) -> Answers:
        """Answer for each row, in order, with one call of the model once its form is known."""
        check_rows(self.schema, rows)
        if not rows:
            return Answers(np.empty(0, dtype=np.float64), np.empty(0, dtype=np.bool_))
        with self._lock:
            if self._trial is not None and not self._trial.proven:
                answers = self._trial.ask(self._ask, rows)
                self.layout = self._trial.layouts[0]
                return answers
        assert self.layout is not None
        return self._ask(self.layout, rows)

    def _ask(self, layout: InputLayout, rows: Sequence[Row]) -> Answers:
        batch = layout.build(rows)
        try:
            returned = self._adapter.ask(batch)
        except WaysoutError:
            raise
        except Exception as error:
            raise raised(error, self.schema) from error
        reading = Reader(self.schema, self._wanted, self._adapter).read(returned, rows)
        self.labels_only = self.labels_only or reading.labels_only
        self._assumed_class = self._assumed_class or reading.assumed_class
        return reading.answers


def as_oracle(
    model: Any,
    table: Card | Schema,
    *,
    positive: Scalar | None = None,
    positive_class: Scalar | None = None,
    inputs: Inputs = "auto",
    name: str | None = None,
) -> ModelOracle:
    """Make an oracle of a model or a function, for the rows that a card describes.

    ``positive`` is the label for approval (a card knows it, a bare schema does not) and
    ``positive_class`` the model's own name for it, needed only where the two differ. ``inputs``
    says how the model was trained, where it does not tell itself: on the table's own values
    ("raw"), on pandas categories ("category"), on numbers for levels ("codes"); a function may
    also ask for "dicts".

    >>> from waysout.domain.schema import Feature
    >>> schema = Schema((Feature("income", "number"),))
    >>> oracle = as_oracle(lambda frame: frame["income"] / 100, schema, positive="yes")
    >>> oracle.ask([(20.0,), (70.0,)]).decision.tolist()
    [False, True]
    """
    if inputs not in get_args(Inputs):
        raise OracleError(unknown("kind of inputs", inputs, get_args(Inputs)))
    schema = table.schema if isinstance(table, Card) else table
    if positive is None:
        if not isinstance(table, Card):
            raise OracleError("which label means approval? Pass the card, or positive=…")
        positive = table.outcome.positive
    wanted = WantedClass(positive, positive_class)
    try:
        adapter = _adapter(model, schema, inputs)
    except WaysoutError:
        raise
    except Exception as error:
        raise raised(error, schema) from error
    if adapter.classes is not None:
        choose_class(adapter.classes, wanted)
    label = getattr(model, "__name__", type(model).__name__) if name is None else name
    return ModelOracle(adapter, schema, wanted, label, model)


def _adapter(model: Any, schema: Schema, inputs: Inputs) -> Adapter:
    if isinstance(model, type):
        raise OracleError(f"{model.__name__} is a class: pass a fitted model, not its class")
    defined = [base.__module__ for base in type(model).__mro__]
    known = [KINDS.get(module) or KINDS.get(module.split(".")[0]) for module in defined]
    kind = next((kind for kind in KINDS.values() if kind in known), None)
    methods = ("predict_proba", "predict", "decision_function")
    if kind is None and any(hasattr(model, method) for method in methods):
        kind = "estimators"
    if kind is not None:
        of_kind = importlib.import_module(f"waysout.oracles.{kind}")
        return of_kind.adapter(model, schema, inputs)  # type: ignore[no-any-return]
    if callable(model):
        # A function gets the raw DataFrame unless it was asked for otherwise. One number a row is
        # the chance of approval; a bound method such as model.predict_proba brings its owner's
        # classes along.
        form: InputKind = "raw" if inputs == "auto" else inputs
        layout = InputLayout.plain(form, places(schema), named=form != "codes")
        classes = classes_of(getattr(model, "__self__", None))
        return Adapter(model, (layout,), gives="either", classes=classes)
    raise OracleError(
        f"{type(model).__name__} is not a model that Waysout knows: pass a function that takes "
        "a DataFrame and returns probabilities, a scikit-learn estimator, or a LightGBM, XGBoost, "
        "CatBoost or ONNX model"
    )


def model_columns(model: Any) -> tuple[str, ...] | None:
    """Return the columns a model says it was trained on; None where it does not tell."""
    booster = getattr(model, "booster_", model)
    named = getattr(booster, "feature_name", None)
    names = named() if callable(named) else getattr(model, "feature_names_in_", None)
    return None if names is None else tuple(map(str, names))
