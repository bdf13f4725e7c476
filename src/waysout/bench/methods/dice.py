"""DiCE itself: the package ``dice-ml`` behind an adapter that counts and caps its rows.

DiCE itself generates a given number of counterfactuals and stops. Here it runs round after round,
until the rows are spent or nothing new comes, and every valid row it requests is an option: so all
methods are counted in the same way, and the baseline is as strong as it can be. As published, only
what DiCE returns is an option, and its sizes are its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import cycle, repeat
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from waysout.bench.methods.dice_frame import OUTCOME, DiceFrame
from waysout.bench.methods.foreign import PATIENCE, Evaluator, ForeignSearch, words
from waysout.domain.known import Known, need_known
from waysout.domain.schema import Row
from waysout.errors import MissingExtra
from waysout.search.base import Case, Method, Search, least
from waysout.search.nearest import nearest
from waysout.search.space import Projection

if TYPE_CHECKING:
    import pandas as pd

_DRY_ROUNDS = 3
# After this many requests in a row without a new row, DiCE looks for something that does not exist,
# and would not end.
_DRY_REQUESTS = 100
# Sizes come from the row budget, and leave DiCE rows for several rounds, or generations: its own
# defaults spend 1,000 rows or more before they look at an answer.
_ROUNDS = 6
_TABLES = 3
_MOST_OPTIONS = 10
_MOST_SAMPLES = 1000
_LEAST_SIZE = 10
_MEASURED_ROWS = 1000
# As published. The paper does not say how many counterfactuals it asks for; its figures fit one at
# a time, again and again: there is at most one for each 2,100 to 2,500 rows, which is what the
# query, two steps of DiCE's default of 1,000 samples and its steps back cost.
_PUBLIC_OPTIONS, _PUBLIC_SAMPLES, _PUBLIC_SPARSITY = 1, 1000, "linear"


@dataclass(frozen=True)
class Dice(Method):
    """Runs DiCE for ``options`` per round; 0 derives it, or ``sample_size``, from the row budget.

    ``genetic`` and ``kdtree`` first send a whole table to the oracle. With ``table="near"`` it has
    the approved rows nearest to the query, projected onto the rules, and takes at most a third of
    the budget; with "all" it is the unchanged data, as published. ``sparsity`` is DiCE's own step
    that moves numbers back to the query's, with a row for each move: "linear" by the smallest move
    there is, which costs more rows than it earns, "binary" by halves. DiCE is abandoned when it
    makes no request for ``patience`` seconds.

    With ``published`` DiCE has its own defaults (1,000 samples, "linear"), and is asked for one
    option (or ``options``) again and again. Each of its requests is paid for in full, and what it
    returns counts; a round that the rows do not pay for returns nothing.
    """

    name: ClassVar[str] = "dice"
    about: ClassVar[str] = "DiCE itself, the package dice-ml"

    variant: Literal["random", "genetic", "kdtree"] = "random"
    table: Literal["near", "all"] = "near"
    options: int = least(0, 0)
    sample_size: int = least(0, 0)
    sparsity: Literal["none", "binary", "linear"] = "none"
    patience: float = least(0.01, PATIENCE)
    published: bool = False

    def prepare(self) -> None:
        """Raise `MissingExtra` where DiCE is not installed."""
        try:
            import dice_ml  # noqa: F401
        except ImportError:
            raise MissingExtra("dice-ml", "dice") from None

    def start(self, case: Case) -> Search:
        """Return a search that passes on DiCE's requests."""
        if self.variant != "random":
            need_known(case.known, f"the variant {self.variant!r} of DiCE")
        case = case.with_row_limit()
        rounds = _Rounds(case, self)
        return ForeignSearch(
            case, rounds.run, who="DiCE", patience=self.patience, published=self.published
        )


class _Dry(BaseException):
    """Ends a round in which DiCE requests nothing new any more."""


class _Model:
    """The oracle with the interface that DiCE expects of a model."""

    def __init__(self, frame: DiceFrame, evaluate: Evaluator) -> None:
        self._frame = frame
        self._evaluate = evaluate
        self._dry = 0

    def predict_proba(self, table: pd.DataFrame, *, by_row: bool = False) -> NDArray[np.float64]:
        """Return the scores of "no" and "yes" for each row."""
        before = self._evaluate.asked
        yes = self._evaluate(self._frame.rows(table), by_row=by_row)
        self._dry = 0 if self._evaluate.asked > before else self._dry + 1
        if self._dry == _DRY_REQUESTS:
            raise _Dry
        return np.column_stack([1.0 - yes, yes])


class _Rounds:
    """Runs DiCE round after round, each with other draws or another table."""

    def __init__(self, case: Case, method: Dice) -> None:
        self._case = case
        self._method = method
        self._budget = case.budget.oracle_rows or 0

    @cached_property
    def _frame(self) -> DiceFrame:
        return DiceFrame(self._case)

    def run(self, evaluate: Evaluator) -> str:
        """Run rounds until nothing new comes, and return the reason."""
        if not self._frame.varied:
            return "no feature may change"
        dry, last_error, options = 0, "", self._options
        for table in self._tables():
            before = evaluate.asked
            try:
                self._round(table, options, evaluate)
            except _Dry:
                pass
            except Exception as error:  # DiCE raises where it finds nothing, among others
                last_error = words(error)
            new = evaluate.asked - before
            if self._method.published:
                pass  # it is asked for the same again and again
            elif 2 * new < self._samples and self._method.variant == "random":
                # DiCE meets small requests with simple rows, which are mostly known already.
                options *= 2
            dry = 0 if new else dry + 1
            if dry == _DRY_ROUNDS:
                why = f" ({last_error})" if last_error else ""
                return f"DiCE requested nothing new in {dry} rounds{why}"
        return "DiCE has used all of your data"

    def _round(self, rows: Sequence[Row], options: int, evaluate: Evaluator) -> None:
        import dice_ml

        frame, method = self._frame, self._method
        table, permitted = frame.table([self._case.query, *rows]), frame.permitted()
        if method.variant == "genetic":
            # This variant numbers the levels in its table, and fails on any other level.
            for column in frame.columns:
                if not column.feature.is_numeric:
                    held = set(table[column.name])
                    permitted[column.name] = [v for v in permitted[column.name] if v in held]
        data = dice_ml.Data(
            dataframe=table.assign(**{OUTCOME: 0}),
            continuous_features=[column.name for column in frame.numbers],
            continuous_features_precision={c.name: c.decimals for c in frame.numbers},
            outcome_name=OUTCOME,
            permitted_range=permitted,
        )
        oracle = _Model(frame, evaluate)
        model = dice_ml.Model(model=oracle, backend="sklearn")
        explainer = dice_ml.Dice(data, model, method=method.variant)
        # This step walks within bins; what it is told there must be the row's own answer.
        explainer.predict_fn_for_sparsity = partial(oracle.predict_proba, by_row=True)
        query = table.iloc[:1]
        data.set_continuous_feature_indexes(query)
        # Not the public method, which starts a progress bar and a thread for it.
        found = explainer._generate_counterfactuals(
            query,
            total_CFs=options,
            desired_class=1,
            features_to_vary=[column.name for column in frame.varied],
            **self._own_settings(),
        )
        if method.published:
            sparse = found.final_cfs_df_sparse
            returned = found.final_cfs_df if sparse is None else sparse
            evaluate.returned += [] if returned is None else frame.rows(returned)

    # Sizes and settings -------------------------------------------------------------------------

    @property
    def _options(self) -> int:
        if self._method.options:
            return min(self._method.options, self._budget)
        if self._method.published:
            return _PUBLIC_OPTIONS
        # A genetic population is ten times this, and filled up row by row where it has too few.
        per_option = 20 * _TABLES if self._method.variant == "genetic" else 15
        return min(max(1, self._budget // per_option), _MOST_OPTIONS)

    @property
    def _samples(self) -> int:
        if self._method.published:
            return self._method.sample_size or _PUBLIC_SAMPLES
        fitting = min(max(_LEAST_SIZE, self._budget // _ROUNDS), _MOST_SAMPLES)
        return min(self._method.sample_size or fitting, max(_LEAST_SIZE, self._budget))

    @property
    def _sparsity(self) -> str:
        return _PUBLIC_SPARSITY if self._method.published else self._method.sparsity

    def _own_settings(self) -> dict[str, Any]:
        """Return the arguments that depend on the variant and on ``sparsity``."""
        method, found = self._method, dict[str, Any]()
        if self._sparsity == "none":
            found["posthoc_sparsity_param"] = None
        else:
            found["posthoc_sparsity_algorithm"] = self._sparsity
        if method.variant == "random":
            found["sample_size"] = self._samples
        elif method.variant == "genetic":
            numbers, scales = self._frame.numbers, self._case.problem.distance.scales
            # DiCE's own weights, but not rounded: two decimals turn small weights into 0.
            found["feature_weights"] = {c.name: 1.0 / scales[c.feature.name] for c in numbers}
            found |= {} if numbers else {"proximity_weight": 0.0}
        return found

    # Tables -------------------------------------------------------------------------------------

    def _tables(self) -> Iterator[Sequence[Row]]:
        """Return the rows of each round, endlessly where new draws make a difference."""
        method, known = self._method, self._case.known
        if method.variant == "random" or known is None:
            return repeat(self._measured())
        tables = iter([known.rows]) if method.table == "all" else self._near(known)
        return tables if method.variant == "kdtree" else cycle(tables)

    def _measured(self) -> Sequence[Row]:
        """Return rows from which DiCE measures what a small change is."""
        known = self._case.known
        if known is None or self._sparsity == "none":
            return ()
        return known.rows[:: -(-len(known.rows) // _MEASURED_ROWS) or 1]

    def _near(self, known: Known) -> Iterator[Sequence[Row]]:
        """Yield approved rows, nearest first, a table at a time; an empty one if there are none."""
        problem, query = self._case.problem, self._case.query
        project, size = Projection(problem, query), max(_LEAST_SIZE, self._budget // _TABLES)
        table, seen = list[Row](), set[str]()
        for number in nearest(problem, query, known, max(1, len(known.rows))):
            row = project(known.rows[number])
            key = problem.key(row)
            if key not in seen:
                seen.add(key)
                table.append(row)
            if len(table) == size:
                yield table
                table = []
        if table or not seen:
            yield table
