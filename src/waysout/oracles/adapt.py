"""From a trained model to an oracle: `as_oracle`.

How rows are handed over is read off the model where it tells (see the family's adapter); where it
does not, a trial on the first batch decides once (see `waysout.oracles.trial`); ``inputs=``
overrides both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, get_args

from waysout.domain.card import Card
from waysout.domain.oracle import Answers
from waysout.domain.schema import Row, Scalar, Schema
from waysout.errors import OracleError, WaysoutError, unknown
from waysout.oracles.adapter import Adapter
from waysout.oracles.answers import Reader, WantedClass, choose_class, empty, raised
from waysout.oracles.boosters import from_catboost, from_lightgbm, from_xgboost
from waysout.oracles.estimators import from_callable, from_estimator
from waysout.oracles.inputs import InputKind, InputLayout, Inputs, build, check_rows
from waysout.oracles.onnx import OnnxModel, from_onnx
from waysout.oracles.trial import Trial

Family = Callable[[Any, Schema, Inputs], Adapter]

# By the package a model's class, or one it derives from, is defined in: no need to import it.
FAMILIES: tuple[tuple[str, Family], ...] = (
    ("lightgbm", from_lightgbm),
    ("xgboost", from_xgboost),
    ("catboost", from_catboost),
    ("onnxruntime", from_onnx),
)


class ModelOracle:
    """A model that answers for typed rows.

    Where the model does not tell the form of its input, batches are asked in several until the
    answers do.
    """

    def __init__(
        self,
        adapter: Adapter,
        schema: Schema,
        *,
        positive: Scalar,
        positive_class: Scalar | None = None,
        name: str = "model",
        model: Any = None,
    ) -> None:
        self._adapter = adapter
        self._model = model
        self._schema = schema
        self._wanted = WantedClass(positive, positive_class)
        self._name = name
        sure = len(adapter.layouts) == 1 and not adapter.refused
        self._trial = Trial(adapter.layouts, adapter.refused, proven=sure)
        self._labels_only = adapter.gives == "labels"
        self._assumed_class = False
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """A short name for logs and reports."""
        return self._name

    @property
    def schema(self) -> Schema:
        """What the rows hold."""
        return self._schema

    @property
    def labels_only(self) -> bool:
        """Whether the model gives labels only; of a function it is known once it has answered."""
        return self._labels_only

    @property
    def assumed_class(self) -> bool:
        """Whether class 1 was taken for approval because nothing named another."""
        if self._adapter.classes is not None:
            return choose_class(self._adapter.classes, self._wanted)[1]
        return self._assumed_class

    @property
    def inputs(self) -> InputKind | None:
        """The form in which the model gets its rows; None until the first batch."""
        known = self._trial.proven or self._trial.started
        return self._trial.layouts[0].kind if known else None

    @property
    def layout(self) -> InputLayout | None:
        """How the model gets its rows, column by column; None until the first batch."""
        return self._trial.layouts[0] if self.inputs else None

    @property
    def model(self) -> Any:
        """The model itself, for checks that read it; no search does."""
        return self._model

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about how model and card fit together."""
        if self._trial.reacted or not self._trial.started:
            return self._adapter.notes
        return (
            *self._adapter.notes,
            "no category changed the answers so far, so how the model gets them is unproven",
        )

    def ask(self, rows: Sequence[Row]) -> Answers:
        """Answer for each row, in order, with one call of the model once its form is known."""
        check_rows(self._schema, rows)
        if not rows:
            return empty()
        with self._lock:
            if not self._trial.proven:
                return self._trial.ask(self._ask, rows)
        return self._ask(self._trial.layouts[0], rows)

    def _ask(self, layout: InputLayout, rows: Sequence[Row]) -> Answers:
        adapter = self._adapter
        batch = build(layout, rows)
        try:
            returned = adapter.ask(batch)
        except WaysoutError:
            raise
        except Exception as error:
            raise raised(error, self._schema) from error
        reader = Reader(
            self._schema, self._wanted, adapter.gives, adapter.classes, adapter.sums_to_one
        )
        reading = reader.read(returned, rows)
        self._labels_only = self._labels_only or reading.labels_only
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
    try:
        adapter = _family(model)(model, schema, inputs)
    except WaysoutError:
        raise
    except Exception as error:
        raise raised(error, schema) from error
    if adapter.classes is not None:
        choose_class(adapter.classes, WantedClass(positive, positive_class))
    label = getattr(model, "__name__", type(model).__name__) if name is None else name
    return ModelOracle(
        adapter, schema, positive=positive, positive_class=positive_class, name=label, model=model
    )


def _family(model: Any) -> Family:
    if isinstance(model, type):
        raise OracleError(f"{model.__name__} is a class: pass a fitted model, not its class")
    packages = {base.__module__.split(".")[0] for base in type(model).__mro__}
    for package, family in FAMILIES:
        if package in packages:
            return family
    if isinstance(model, OnnxModel):
        return from_onnx
    if any(hasattr(model, method) for method in ("predict_proba", "predict", "decision_function")):
        return from_estimator
    if callable(model):
        return from_callable
    raise OracleError(
        f"{type(model).__name__} is no model Waysout knows: pass a function that takes a DataFrame "
        "and returns probabilities, a scikit-learn estimator, or a LightGBM, XGBoost, CatBoost or "
        "ONNX model"
    )
