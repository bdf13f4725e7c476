"""A model, a data frame, one line: `find` and `Explainer`.

What a card says is inferred from the frame, and said in the result's notes; whoever has a card
passes it, or makes a `Problem` of it. docs/python.md leads through it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Unpack, cast

from waysout.datasets.frames import Frame, row_of
from waysout.domain.card import Card
from waysout.domain.known import Known
from waysout.domain.oracle import Goal
from waysout.domain.problem import Problem
from waysout.domain.rules import Rule
from waysout.domain.schema import Scalar
from waysout.errors import InputError
from waysout.oracles.inputs import Inputs
from waysout.report.result import Result
from waysout.report.results import Results
from waysout.run import find as run
from waysout.run.options import Options, SearchOptions
from waysout.run.set_up import Given, Order, SetUp, set_up

if TYPE_CHECKING:
    from waysout.serve.background import ServedPage

_SET_UP = "y", "features", "positive", "fixed", "only_up", "only_down", "free", "rules", "card"


def find(
    model: Any,
    row: Any,
    *,
    data: Any = None,
    y: Any = None,
    positive: Scalar | None = None,
    fixed: Sequence[str] = (),
    only_up: Order = (),
    only_down: Order = (),
    free: Sequence[str] = (),
    rules: Sequence[Rule] = (),
    features: Sequence[str] | None = None,
    card: Card | None = None,
    positive_class: Scalar | None = None,
    inputs: Inputs = "auto",
    goal: Goal | None = None,
    row_seconds: float | None = None,
    **options: Unpack[SearchOptions],
) -> Result:
    """Find the ways from a model's no to a yes for one person.

    ``model`` is anything that predicts: a fitted scikit-learn, LightGBM, XGBoost, CatBoost, Keras,
    torch or ONNX model, a function of a frame, an HTTP address; or a `Problem`, which has a model
    and rules already. ``row`` is a row of ``data`` (``X.iloc[3]``) or a mapping. ``data`` holds the
    rows the model was trained on or similar ones, as the model takes them.

    >>> import waysout
    >>> people = waysout.load_dataset("synthetic")
    >>> X, y = people.to_frame(), people.labels
    >>> def model(frame):  # yours: anything that predicts
    ...     score = frame["credit_score"] + frame["savings"] / 100 - frame["loan_amount"] / 200
    ...     return 1 / (1 + 2.718 ** ((660 - score) / 20))
    >>> result = waysout.find(model, X.iloc[11], data=X)
    >>> result = waysout.find(
    ...     model, X.iloc[11], data=X, y=y, fixed=["age", "co_signer"], only_up=["education"]
    ... )
    >>> "savings" in result.ways[0].changes, "co_signer" in result.ways[0].changes
    (True, False)

    ``data``, ``y``, ``fixed``, ``only_up``, ``only_down``, ``free``, ``rules`` and the rest of the
    set-up are those of `Explainer`, which sets up once for many people. The search takes
    ``oracle_rows`` (150: the most rows the model is asked, besides at most 60 for set-up),
    ``seconds``, ``seed``, ``method``, ``llm``, ``run`` (a file to keep and resume it in) and the
    other keywords of docs/search.md; ``goal`` is what counts as a yes (see `waysout.Goal`).
    """
    if isinstance(model, Problem):
        given = (y, features, positive, fixed, only_up, only_down, free, rules, card)
        for name, value in zip(_SET_UP, given, strict=True):
            if value is not None and len(value if isinstance(value, Collection) else "x"):
                raise InputError(
                    f"{name}=… sets up a model, and a Problem is set up already: leave it out, or "
                    "change the problem (problem.with_rules)"
                )
        return run.find(model, row, **_with_data(options, data))
    if data is None and card is None:
        raise InputError(
            "data is missing: pass the rows the model was trained on, data=X, so that it is known "
            "what the columns hold (or a card=…)"
        )
    explainer = Explainer(
        model, data, y, positive=positive, fixed=fixed, only_up=only_up, only_down=only_down,
        free=free, rules=rules, features=features, card=card, positive_class=positive_class,
        inputs=inputs, goal=goal, row_seconds=row_seconds,
    )  # fmt: skip
    return explainer.find(row, **options)


class Explainer:
    """A model and its table, set up once for many people.

    ``y`` are the labels of ``data``, or the name of the column that holds them; ``positive`` is the
    label that means yes (of 0 and 1, it is 1). With labels the model is checked against them, and
    searches learn from them; without, the rows measure distances only.

    ``fixed`` may not change; ``only_up`` and ``only_down`` may change in one direction (for levels
    without an order, give it: ``only_up={"education": ["school", "college"]}``). What a person is,
    such as age and sex, is fixed unless it is ``free``. ``rules`` are any others (`waysout.rules`).
    ``features`` are the columns the model takes, where it does not tell itself; those of a numpy
    array are named by it. ``row_seconds`` (60; for an address 120) is how long the model may take
    for a row.

    Nothing is asked of the model before the first search.

    >>> import waysout
    >>> people = waysout.load_dataset("synthetic")
    >>> X = people.to_frame()
    >>> explainer = waysout.Explainer(lambda frame: frame["savings"] >= 9000, data=X, fixed=["age"])
    >>> result = explainer.find(X.iloc[828], oracle_rows=40)
    >>> result.ways[0].changes
    {'savings': (7500, 9000)}
    >>> len(explainer.batch(X.iloc[820:830], oracle_rows=20))
    10
    """

    def __init__(
        self,
        model: Any,
        data: Any = None,
        y: Any = None,
        *,
        positive: Scalar | None = None,
        fixed: Sequence[str] = (),
        only_up: Order = (),
        only_down: Order = (),
        free: Sequence[str] = (),
        rules: Sequence[Rule] = (),
        features: Sequence[str] | None = None,
        card: Card | None = None,
        positive_class: Scalar | None = None,
        inputs: Inputs = "auto",
        goal: Goal | None = None,
        row_seconds: float | None = None,
    ) -> None:
        self.model = model
        self._given = Given(
            data, y, positive, positive_class, _named(features), card, _named(fixed),
            _named(only_up), _named(only_down), _named(free), tuple(rules), inputs, goal,
            row_seconds,
        )  # fmt: skip
        self._set_up: SetUp | None = None

    @property
    def _made(self) -> SetUp:
        # No `cached_property`: in Python 3.11 one lock of it is shared by all explainers, and a
        # model may hang. Two threads that come first at once do the same twice.
        if self._set_up is None:
            self._set_up = set_up(self.model, self._given)
        return self._set_up

    @property
    def problem(self) -> Problem:
        """Model, schema, rules and distance, bound together: what `find_many` and others take."""
        return self._made.problem

    @property
    def card(self) -> Card:
        """What each column is taken for, and what may change."""
        return self._made.card

    @property
    def data(self) -> Known | None:
        """The rows with their outcomes, if there are labels."""
        return self._made.known

    @property
    def notes(self) -> tuple[str, ...]:
        """What was inferred or assumed, as results say it too."""
        return self.problem.notes

    def find(self, row: Any, **options: Unpack[SearchOptions]) -> Result:
        """Find the ways for one person; ``options`` are those of `waysout.find`."""
        made = self._made
        raw = row_of(row, made.columns)
        result = run.find(made.problem, raw, **_with_data(options, made.known))
        return _like(result, made.like)

    def find_many(self, rows: Any, **options: Unpack[SearchOptions]) -> Iterator[Result]:
        """Yield the result of each row of a frame when it is ready (see `waysout.find_many`)."""
        made = self._made
        results = run.find_many(made.problem, self._people(rows), **_with_data(options, made.known))
        return (_like(result, made.like) for result in results)

    def batch(self, rows: Any, **options: Unpack[SearchOptions]) -> Results:
        """Find the ways for everyone in a frame, in this process; in the frame's order.

        Whoever has a yes already has a result that says so. For tables of many thousands use
        ``waysout batch``, which runs on all cores or a cluster and resumes.
        """
        people = self._people(rows)
        with _progress(len(people)) as advance:
            found = []
            for result in self.find_many(people, **options):
                found.append(result)
                advance()
        return Results(sorted(found, key=lambda result: result.index))

    def serve(
        self, *, host: str = "127.0.0.1", port: int = 8765, block: bool = True, llm: Any = None
    ) -> ServedPage:
        """Show the page for this model in a browser, until Ctrl-C.

        With ``block=False`` it is served in the background: the returned page has an ``url``, and
        ``close()`` ends it.
        """
        from waysout.serve.background import serve_in_background

        page = serve_in_background(
            self.problem, self.data, self.problem.examples, host=host, port=port, llm=llm
        )
        if block:
            page.wait()
        return page

    def _people(self, rows: Any) -> list[Any]:
        names = self._made.columns
        if isinstance(rows, list) or not (hasattr(rows, "columns") or hasattr(rows, "ndim")):
            return [row_of(row, names) for row in rows]
        if getattr(rows, "ndim", 2) != 2:
            raise InputError("batch takes a frame of people; for one of them use find(row)")
        frame = Frame.of(rows, names if not hasattr(rows, "columns") else None)
        return list(frame.table().records)

    def __repr__(self) -> str:
        return f"<Explainer of {type(self.model).__name__}>"


def _named(names: Any) -> Any:
    """Return names of columns as the card has them: pandas' may be numbers, or tuples."""
    if names is None or isinstance(names, str):
        return names
    if isinstance(names, Mapping):
        return {str(name): levels for name, levels in names.items()}
    return [str(name) for name in names]


def _like(result: Result, frame: Any) -> Result:
    """Let a result give frames of the user's kind; of an array there are none."""
    return result.with_like(frame) if hasattr(frame, "columns") else result


def _with_data(options: SearchOptions, data: Known | None) -> Options:
    return cast(Options, {**options} if data is None else {**options, "data": data})


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """Show on a terminal how many people are done."""
    from rich.console import Console
    from rich.progress import Progress

    shown_on = Console(stderr=True)
    off = not shown_on.is_terminal
    with Progress(console=shown_on, disable=off, transient=True) as bars:
        bar = bars.add_task("people", total=total)
        yield lambda: bars.advance(bar)
