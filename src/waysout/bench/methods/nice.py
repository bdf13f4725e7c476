"""NICE itself: the package ``NICEx`` behind an adapter that counts and caps its rows.

After Brughmans, Leyman and Martens (2023): from the query towards its nearest unlike neighbour, one
feature at a time, always the one that earns most, until the oracle approves. Here it goes on with
the next neighbours until the rows are spent, and every approved row on the way is an option.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from waysout.bench.methods.foreign import PATIENCE, Evaluator, ForeignSearch
from waysout.bench.methods.rows import encoded
from waysout.domain.known import Known, PerData, need_known
from waysout.domain.schema import Row, Schema
from waysout.errors import MissingExtra, UnavailableError
from waysout.search.base import Case, Method, Search, least
from waysout.search.candidates import DECIMALS
from waysout.search.nearest import NEIGHBOURS
from waysout.search.space import Matrix, Projection, Space

_MISSING_LEVEL = -1.0
_VARIANCE_KEPT = 0.9
_NO, _YES = 0, 1


@dataclass(frozen=True)
class Nice(Method):
    """Walks towards the ``neighbours`` nearest approved rows; to one only if not ``extend``.

    ``optimization`` says what a step is to earn: a higher chance ("sparsity"), more of it per
    distance ("proximity"), or more of it where the row also becomes more usual ("plausibility");
    with "none" the neighbours themselves are the answer. NICE asks the model about all known rows
    first; here their labels stand for that, and a neighbour is asked before it is walked to.
    """

    name: ClassVar[str] = "nice"
    about: ClassVar[str] = "NICE itself, the package NICEx: towards the nearest approved rows"
    needs_known: ClassVar[bool] = True

    optimization: Literal["sparsity", "proximity", "plausibility", "none"] = "sparsity"
    extend: bool = True
    neighbours: int = least(1, NEIGHBOURS)
    patience: float = least(0.01, PATIENCE)

    def prepare(self) -> None:
        """Raise `MissingNice` where NICE is not installed."""
        try:
            import nice  # noqa: F401
        except ImportError:
            raise MissingNice from None

    def start(self, case: Case) -> Search:
        """Return a search that passes on NICE's requests."""
        known = need_known(case.known, "the method 'nice'")
        walks = _Walks(case, known, self)
        return ForeignSearch(case, walks.run, who="NICE", patience=self.patience)


class MissingNice(MissingExtra):
    """NICEx is not installed. It is no extra: its metadata asks for old numpy and pandas."""

    def __init__(self) -> None:
        UnavailableError.__init__(
            self,
            f"this needs the package 'NICEx': {sys.executable} -m pip install --no-deps NICEx "
            "(it asks for old releases of numpy and pandas, but works with new ones)",
        )
        self.package, self.extra = "NICEx", ""

    def __reduce__(self) -> tuple[type[MissingNice], tuple[()]]:  # type: ignore[override]
        """Pickle without arguments."""
        return type(self), ()


class _Walks:
    """Runs NICE towards one neighbour after the other."""

    def __init__(self, case: Case, known: Known, method: Nice) -> None:
        self._case = case
        self._known = known
        self._method = method

    @cached_property
    def _frame(self) -> _Frame:
        return _Frame(self._case, self._known)

    def run(self, evaluate: Evaluator) -> str:
        """Walk until the neighbours are used up, and return the reason."""
        if not self._frame.space.levers:
            return "no feature may change"
        if not any(self._known.labels):
            return f"none of the {len(self._known.rows)} rows of your data is labelled approved"
        frame, model = self._frame, _Model(self._frame, evaluate)
        explainer = self._explainer(model)
        walked = found = 0
        for neighbour in self._neighbours(explainer):
            walked += 1
            if model(neighbour).argmax() != _YES:
                continue
            found += 1
            if self._method.optimization != "none":
                explainer.optimizer.optimize(neighbour)
            if not self._method.extend:
                return "NICE has found its counterfactual"
        nearest = f"all {walked} nearest approved rows of your data"
        return f"NICE has walked to {nearest}" if found else f"{nearest} are {frame.no}"

    def _explainer(self, model: _Model) -> Any:
        """Return NICE, fitted to the known rows and the query."""
        import nice

        frame, method, schema = self._frame, self._method, self._case.problem.schema
        numeric, code = [feature.is_numeric for feature in schema], None
        if method.optimization == "plausibility":
            code = _linear_code(self._known, schema).errors
        explainer = nice.NICE(
            predict_fn=model,
            X_train=frame.table,
            y_train=frame.labels,
            cat_feat=[i for i, number in enumerate(numeric) if not number],
            num_feat=[i for i, number in enumerate(numeric) if number],
            optimization=method.optimization,
            auto_encoder=code,
        )
        explainer.data.fit_to_X(frame.query.copy(), [_YES])
        return explainer

    def _neighbours(self, explainer: Any) -> Iterator[Matrix]:
        """Yield the approved rows nearest by NICE's own distance, as far as the rules allow."""
        frame, project = self._frame, Projection(self._case.problem, self._case.query)
        distances = explainer.distance_metric.measure(frame.query, explainer.data.candidates_view)
        # The last digits of sums differ from processor to processor.
        nearest = np.argsort(np.round(distances, DECIMALS), kind="stable")
        numbers, seen = np.flatnonzero(explainer.data.mask), {self._case.query}
        for number in numbers[nearest[: self._method.neighbours]].tolist():
            row = project(self._known.rows[number])
            if row not in seen:
                seen.add(row)
                yield frame.levers_of(row)


class _Model:
    """The oracle with the interface that NICE expects: the scores of "no" and "yes" for each row.

    NICE compares the scores of "yes" with each other, and takes the larger of the two for the
    verdict. So that of "yes" is how good the chance is, and that of "no" only gives the verdict.
    """

    def __init__(self, frame: _Frame, evaluate: Evaluator) -> None:
        self._frame = frame
        self._evaluate = evaluate

    def __call__(self, matrix: Matrix) -> Matrix:
        if matrix is self._frame.table:
            return np.eye(2)[self._frame.labels]
        scores = self._evaluate(self._frame.rows(matrix), by_row=True)
        approved = scores > 0.5
        # Scores of the evaluator jump at the verdict; a step's gain is measured without that.
        worth = (scores - 0.51 * approved) / 0.49
        return np.column_stack([np.where(approved, -1.0, 2.0), worth])


class _Frame:
    """The known rows and the query as matrices for NICE, which knows no missing values.

    A missing level is a level of its own. A missing number of a known row is the query's, since one
    cannot become like it in that; one of the query is a number that occurs nowhere else.
    """

    def __init__(self, case: Case, known: Known) -> None:
        schema, table = case.problem.schema, encoded(known, case.problem.schema)
        self.space = Space(case.problem, case.query)
        self.no = case.problem.no
        numeric = np.array([feature.is_numeric for feature in schema])
        below_all = np.fmin.reduce(table, axis=0, initial=0.0) - 1.0
        gaps, start = np.where(numeric, below_all, _MISSING_LEVEL), self.space.start
        self._own = np.where(np.isnan(start), gaps, start)
        self._fill = np.where(numeric, self._own, _MISSING_LEVEL)
        self._columns = list(self.space.levers)
        self.query: Matrix = self._own[None, :]
        self.table: Matrix = self._filled(table)
        self.labels: NDArray[np.intp] = np.asarray(known.labels, dtype=np.intp)
        self._schema = schema

    def _filled(self, matrix: Matrix) -> Matrix:
        return np.where(np.isnan(matrix), self._fill, matrix)

    def levers_of(self, row: Row) -> Matrix:
        """Return a row for NICE in which only levers differ from the query.

        What a lever takes along, by a link or in a one-hot group, follows when it is read.
        """
        matrix, found = self._filled(self._schema.encode([row])), self.query.copy()
        found[:, self._columns] = matrix[:, self._columns]
        return found

    def rows(self, matrix: Matrix) -> list[Row]:
        """Return the typed rows nearest to NICE's that keep the rules, where any do."""
        return self.space.rows(np.where(matrix == self._own, self.space.start, matrix))


class _LinearCode:
    """A linear autoencoder: rows, one-hot and scaled, on the main axes of the known ones.

    NICE takes any autoencoder; this one needs no training and no other package.
    """

    def __init__(self, known: Known, schema: Schema) -> None:
        self._schema = schema
        table = encoded(known, schema)
        present = np.ma.masked_invalid(table)
        self._middle = np.ma.filled(present.mean(axis=0), 0.0)
        deviations = np.ma.filled(present.std(axis=0), 0.0)
        self._scale = np.where(deviations > 0, deviations, 1.0)
        wide = self._wide(table)
        self._mean = wide.mean(axis=0)
        _, sizes, axes = np.linalg.svd(wide - self._mean, full_matrices=False)
        shares = np.cumsum(sizes**2) / max(float(np.sum(sizes**2)), 1e-12)
        self._axes = axes[: 1 + int(np.searchsorted(shares, _VARIANCE_KEPT))]

    def _wide(self, matrix: Matrix) -> Matrix:
        """Return encoded rows with numbers scaled and a column for each level."""
        blocks: list[Matrix] = []
        for column, feature in enumerate(self._schema):
            values = matrix[:, column]
            if feature.is_numeric:
                filled = np.where(np.isnan(values), self._middle[column], values)
                blocks.append(((filled - self._middle[column]) / self._scale[column])[:, None])
            else:
                blocks.append(values[:, None] == np.arange(len(feature.values())))
        return np.column_stack(blocks).astype(np.float64)

    def errors(self, matrix: Matrix) -> Matrix:
        """Return how badly each row is reproduced."""
        centred = self._wide(matrix) - self._mean
        missed = centred - centred @ self._axes.T @ self._axes
        found: Matrix = np.round(np.einsum("ij,ij->i", missed, missed), DECIMALS)
        return found


@PerData
def _linear_code(known: Known, schema: Schema) -> _LinearCode:
    return _LinearCode(known, schema)
