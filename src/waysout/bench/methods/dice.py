"""DiCE itself: the package ``dice-ml`` behind an adapter that counts and caps its rows.

DiCE asks for a number of counterfactuals once, and stops. Here it is asked round after round, until
the rows are spent or nothing new comes, and every valid row it meets is an option.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice, repeat
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from waysout.bench.methods.dice_frame import OUTCOME, DiceFrame
from waysout.bench.methods.foreign import PATIENCE, Evaluator, ForeignSearch, words
from waysout.domain.key import Key
from waysout.domain.known import Known, need_known
from waysout.domain.schema import Row
from waysout.errors import MissingExtra
from waysout.search.base import Case, Method, Search, least
from waysout.search.nearest import nearest
from waysout.search.space import Projection

if TYPE_CHECKING:
    import pandas as pd

_DRY_ROUNDS = 3
# So many questions in a row that cost nothing: DiCE looks for what is not there, and sees no end.
_DRY_QUESTIONS = 100
# Sizes that leave DiCE rows for several rounds, or generations, at any budget.
_ROUNDS = 6
_TABLES = 3
_MOST_OPTIONS = 10
_MOST_SAMPLES = 1000
_LEAST_SIZE = 10
_MEASURED_ROWS = 1000


@dataclass(frozen=True)
class Dice(Method):
    """Asks DiCE for ``options`` a round; 0 leaves that, and ``sample_size``, to the row budget.

    ``genetic`` and ``kdtree`` ask the oracle of a whole table first. That of ``table="near"`` has
    the approved rows nearest to the query, made to keep the rules, and a third of the budget at
    most; with "all" it is the data as they are, as published. ``sparsity`` is DiCE's way to move
    numbers back to the query's, which asks row by row and changes little here: a row in the same
    bins as one asked before is not asked again. DiCE is given up when it asks nothing for
    ``patience`` seconds.
    """

    name: ClassVar[str] = "dice"
    about: ClassVar[str] = "DiCE itself, the package dice-ml"

    variant: Literal["random", "genetic", "kdtree"] = "random"
    table: Literal["near", "all"] = "near"
    options: int = least(0, 0)
    sample_size: int = least(0, 0)
    sparsity: Literal["none", "binary", "linear"] = "none"
    patience: float = least(0.01, PATIENCE)

    def prepare(self) -> None:
        """Load DiCE, or say that it is missing."""
        try:
            import dice_ml  # noqa: F401
        except ImportError:
            raise MissingExtra("dice-ml", "dice") from None

    def start(self, case: Case) -> Search:
        """Return a search that has DiCE ask."""
        if self.variant != "random":
            need_known(case.known, f"the variant {self.variant!r} of DiCE")
        case = case.with_row_limit()
        rounds = _Rounds(case, self)
        return ForeignSearch(case, rounds.run, who="DiCE", patience=self.patience)


class _Dry(BaseException):
    """Ends a round in which nothing new is asked any more."""


class _Model:
    """The oracle as DiCE wants a model to be."""

    def __init__(self, frame: DiceFrame, evaluate: Evaluator) -> None:
        self._frame = frame
        self._evaluate = evaluate
        self._dry = 0

    def predict_proba(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """Return the scores of "no" and "yes" for each row."""
        before = self._evaluate.asked
        yes = self._evaluate(self._frame.rows(table))
        self._dry = 0 if self._evaluate.asked > before else self._dry + 1
        if self._dry == _DRY_QUESTIONS:
            raise _Dry
        return np.column_stack([1.0 - yes, yes])


class _Rounds:
    """Has DiCE ask, with other draws or another table each round."""

    def __init__(self, case: Case, method: Dice) -> None:
        self._case = case
        self._method = method
        self._budget = case.budget.oracle_rows or 0

    @cached_property
    def _frame(self) -> DiceFrame:
        return DiceFrame(self._case)

    def run(self, evaluate: Evaluator) -> str:
        """Ask until nothing new comes, and say so."""
        if not self._frame.varied:
            return "no feature may change"
        dry, last_words, options = 0, "", self._options
        for table in self._tables():
            before = evaluate.asked
            try:
                self._round(table, options, evaluate)
            except _Dry:
                pass
            except Exception as error:  # DiCE breaks off where it finds nothing, and elsewhere
                last_words = words(error)
            new = evaluate.asked - before
            if 2 * new < self._samples and self._method.variant == "random":
                # Whoever wants few is given simple ones, and those have mostly been asked.
                options *= 2
            dry = 0 if new else dry + 1
            if dry == _DRY_ROUNDS:
                said = f" (it says: {last_words})" if last_words else ""
                return f"DiCE asked nothing new in {dry} rounds{said}"
        return "DiCE has been through all of your data"

    def _round(self, rows: Sequence[Row], options: int, evaluate: Evaluator) -> None:
        import dice_ml

        frame, method = self._frame, self._method
        table = frame.table([self._case.query, *rows])
        data = dice_ml.Data(
            dataframe=table.assign(**{OUTCOME: 0}),
            continuous_features=[column.name for column in frame.numbers],
            continuous_features_precision={c.name: c.decimals for c in frame.numbers},
            outcome_name=OUTCOME,
            permitted_range=self._permitted(table),
        )
        model = dice_ml.Model(model=_Model(frame, evaluate), backend="sklearn")
        explainer = dice_ml.Dice(data, model, method=method.variant)
        query = table.iloc[:1]
        data.set_continuous_feature_indexes(query)
        # Past the public method for many queries, which starts a progress bar and a thread for it.
        explainer._generate_counterfactuals(
            query,
            total_CFs=options,
            desired_class=1,
            features_to_vary=[column.name for column in frame.varied],
            **self._sparsity(),
            **self._own_settings(),
        )

    def _permitted(self, table: pd.DataFrame) -> dict[str, list[Any]]:
        permitted = self._frame.permitted()
        if self._method.variant != "genetic":
            return permitted
        # This variant numbers the levels that its table holds, and breaks off at any other.
        for column in self._frame.columns:
            if not column.feature.is_numeric:
                held = set(table[column.name])
                permitted[column.name] = [v for v in permitted[column.name] if v in held]
        return permitted

    # Sizes and settings -------------------------------------------------------------------------

    @property
    def _table_size(self) -> int:
        return max(_LEAST_SIZE, self._budget // _TABLES)

    @property
    def _options(self) -> int:
        if self._method.options:
            return min(self._method.options, self._budget)
        # A genetic population is ten times this, and filled up row by row where it has too few.
        per_option = 20 * _TABLES if self._method.variant == "genetic" else 15
        return min(max(1, self._budget // per_option), _MOST_OPTIONS)

    @property
    def _samples(self) -> int:
        fitting = min(max(_LEAST_SIZE, self._budget // _ROUNDS), _MOST_SAMPLES)
        return min(self._method.sample_size or fitting, max(_LEAST_SIZE, self._budget))

    def _sparsity(self) -> dict[str, Any]:
        if self._method.sparsity == "none":
            return {"posthoc_sparsity_param": None}
        return {"posthoc_sparsity_algorithm": self._method.sparsity}

    def _own_settings(self) -> dict[str, Any]:
        if self._method.variant == "random":
            return {"sample_size": self._samples}
        if self._method.variant == "kdtree":
            return {}
        numbers, scales = self._frame.numbers, self._case.problem.distance.scales
        # As DiCE weighs them, but for its rounding: two decimals make nothing of large numbers.
        weights = {column.name: 1.0 / scales[column.feature.name] for column in numbers}
        return {"feature_weights": weights, **({} if numbers else {"proximity_weight": 0.0})}

    # Tables -------------------------------------------------------------------------------------

    def _tables(self) -> Iterator[Sequence[Row]]:
        """Return the rows of each round, without end where other draws make a difference."""
        method, known = self._method, self._case.known
        if method.variant == "random" or known is None:
            return repeat(self._measured())
        tables = iter([known.rows]) if method.table == "all" else self._near(known)
        return tables if method.variant == "kdtree" else cycle(tables)

    def _measured(self) -> Sequence[Row]:
        """Return rows from which DiCE may measure what is a small change."""
        known = self._case.known
        if known is None or self._method.sparsity == "none":
            return ()
        return known.rows[:: -(-len(known.rows) // _MEASURED_ROWS) or 1]

    def _near(self, known: Known) -> Iterator[Sequence[Row]]:
        """Yield approved rows, nearest first, a table at a time; an empty one if there are none."""
        problem, query = self._case.problem, self._case.query
        project = Projection(problem, query)
        numbers = nearest(problem, query, known, max(1, len(known.rows)))
        rows = _distinct((project(known.rows[number]) for number in numbers), problem.key)
        table = list(islice(rows, self._table_size))
        yield table
        while table := list(islice(rows, self._table_size)):
            yield table


def _distinct(rows: Iterable[Row], key: Key) -> Iterator[Row]:
    seen = set[str]()
    for row in rows:
        if (told := key(row)) not in seen:
            seen.add(told)
            yield row
