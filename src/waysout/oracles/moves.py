"""What a proof searches: a query's moves with their costs, and the model's trees over them.

Integers, steps, lists and barred values are settled here, by the levers: each feature becomes the
list of typed values worth moving to, the cheapest one between any two of the model's splits. Links
and one-hot groups become one list of joint moves. The trees are opened with the package treecf and
rebuilt over moves in place of columns.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.domain.distance import Matrix
from waysout.domain.oracle import Oracle
from waysout.domain.problem import Problem
from waysout.domain.rules import Lever
from waysout.domain.schema import LARGEST, MISSING_TOKENS, Row, Value
from waysout.errors import InputError, MissingExtra
from waysout.oracles.adapt import ModelOracle
from waysout.oracles.cache import CachedOracle
from waysout.oracles.inputs import InputLayout

Split = tuple[float, bool]  # where, and whether the value itself goes left

MODELS = (
    "LightGBM, XGBoost, CatBoost, and scikit-learn's RandomForest-, GradientBoosting- and "
    "HistGradientBoostingClassifier, with two classes and numbers as inputs; CatBoost with its own "
    "categories too"
)
_MOST_NUMBERS = 1000  # of an integer that CatBoost takes for a category


@dataclass(frozen=True)
class Moves:
    """What one lever, or several that move together, may do: a row for each move.

    ``at`` are the places of the moves on an axis on which the distance from 0 is the cost. Moves
    that all cost the same have no order: ``at`` are their numbers. At 0 is the query or, where it
    may not stay as it is, the cheapest move; what that costs is the ``toll``, due in any case.
    """

    columns: tuple[int, ...]
    rows: Sequence[Row]
    at: Matrix
    cost: float | None = None  # of each move, where they have no order
    toll: float = 0.0

    def within(self, limit: float) -> Moves:
        """Return the moves that cost no more than a limit, what is due in any case apart."""
        if self.cost is not None:
            kept = np.arange(len(self.rows) if self.cost <= limit else 1)
        else:
            kept = np.flatnonzero(np.abs(self.at) <= limit)
        return replace(self, rows=[self.rows[int(i)] for i in kept], at=self.at[kept])

    def threshold(self, i: int) -> Split:
        """Return the split between a move and the next, closed on the side where it is cheapest."""
        # So the solver, which takes the cheapest point between two splits, takes the move itself.
        return (float(self.at[i + 1]), False) if self.at[i + 1] > 0 else (float(self.at[i]), True)


def all_moves(problem: Problem, query: Row, splits: Mapping[int, list[Split]]) -> list[Moves]:
    """Return every move that rules about the features it touches allow."""
    groups: list[tuple[set[int], list[Row], bool]] = []
    for name, lever in problem.rules.levers(query).items():
        i = problem.schema.index(name)
        if lever.blocked:
            continue
        values = _worth_trying(lever, splits.get(i, []))
        rows = [problem.rules.apply(query, {name: value}) for value in values]
        touched = {i} | {j for row in rows for j in differing(query, row)}
        whole = lever.values is not None
        for other in [group for group in groups if group[0] & touched]:
            groups.remove(other)
            touched, rows, whole = touched | other[0], [*other[1], *rows], whole and other[2]
        groups.append((touched, rows, whole))
    moving = {i for touched, _, _ in groups for i in touched}
    fixed = {name for i, name in enumerate(problem.schema.names) if i not in moving}
    made = (_moves(problem, query, *group, fixed) for group in groups)
    return [moves for moves in made if list(moves.rows) != [query]]


def differing(query: Row, row: Row) -> list[int]:
    """Return the places where two rows differ."""
    return [j for j, (a, b) in enumerate(zip(query, row, strict=True)) if a != b]


def _moves(
    problem: Problem, query: Row, touched: set[int], rows: list[Row], whole: bool, fixed: set[str]
) -> Moves:
    known = fixed | {problem.schema.names[i] for i in touched}
    # Of an interval only the cheapest values are there: another one may keep a rule they break.
    allowed = [r for r in rows if r != query and (not whole or _fits(problem, query, r, known))]
    allowed = list(dict.fromkeys(allowed))
    columns, stays = tuple(sorted(touched)), _fits(problem, query, query, known)
    paid = problem.costs(query, allowed) if allowed else np.zeros(0)
    rows = [query, *allowed] if stays else allowed
    if len(paid) and np.ptp(paid) <= 1e-12 * paid.max():
        numbers, each = np.arange(len(rows), dtype=np.float64), float(paid[0])
        return Moves(columns, rows, numbers, each if stays else 0.0, 0.0 if stays else each)
    if stays and len(columns) == 1 and problem.schema.features[columns[0]].is_numeric:
        # Down is on the other side, so that one of the model's splits is one split of the axis.
        encoded = problem.schema.encode(rows)[:, columns[0]]
        paid = np.where(encoded[1:] < encoded[0], -paid, paid)
    paid = np.array([0.0, *paid]) if stays else paid
    order = np.argsort(paid, kind="stable")
    toll = 0.0 if stays or not len(paid) else float(paid.min())
    at = paid[order] - toll
    for i in range(1, len(at)):  # equal costs are moved apart by the least that a float can tell
        if at[i] <= at[i - 1]:
            at[i] = np.nextafter(at[i - 1], np.inf)
    return Moves(columns, [rows[i] for i in order], at, toll=toll)


def _fits(problem: Problem, query: Row, row: Row, known: Collection[str]) -> bool:
    """Whether a row keeps the rules that speak of nothing but these features."""
    broken = problem.violations(query, row)
    return not any(v.features and set(v.features) <= set(known) for v in broken)


def _worth_trying(lever: Lever, splits: Sequence[Split]) -> list[Value]:
    """Return the values that matter: all of a list; of an interval the cheapest in each cell."""
    choices = lever.choices()
    if choices is not None:
        # The present value too: setting it again may set what follows it right.
        return [*choices] if lever.now is None else [lever.now, *choices]
    ends = sorted({at if inside else math.nextafter(at, -math.inf) for at, inside in splits})
    lows = [-math.inf, *(math.nextafter(end, math.inf) for end in ends)]
    here = float(lever.now) if isinstance(lever.now, (int, float)) else -math.inf
    found: list[Value] = []
    for low, high in zip(lows, [*ends, math.inf], strict=True):
        found += _nearest(lever, max(low, here), high, up=True) if high >= here else []
        found += _nearest(lever, low, min(high, here), up=False) if low < here else []
    return list(dict.fromkeys(found))


def _nearest(lever: Lever, low: float, high: float, *, up: bool) -> list[Value]:
    """Return the first admitted value of an interval, coming from one side, if there is any."""
    for point in _walk(lever, max(low, lever.low) if up else min(high, lever.high), up=up):
        if not low <= point <= high and (point > low) == up:
            return []
        value = lever.feature.coerce(point) if abs(point) <= LARGEST else None
        if value is not None and low <= float(value) <= high and lever.admits(value):
            return [value]
    return []


def _walk(lever: Lever, edge: float, *, up: bool) -> Iterator[float]:
    """Yield the points of a lever's grid from just outside an edge inwards."""
    tries, step = len(lever.never) + 16, lever.step or lever.feature.resolution
    if step is None:
        for _ in range(tries):
            yield edge
            edge = math.nextafter(edge, math.inf if up else -math.inf)
        return
    # A grid point may miss the edge that it stands for by rounding.
    first = round((edge - lever.start) / step) + (-1 if up else 1)
    for k in range(tries):
        point = lever.start + step * (first + k if up else first - k)
        if (point > edge - step / 2) if up else (point < edge + step / 2):
            yield point


def import_treecf() -> Any:
    """Return the package, or say which extra to install."""
    try:
        import treecf
    except ImportError:
        raise MissingExtra("treecf", "treecf") from None
    return treecf


def open_trees(oracle: Oracle) -> tuple[Any, InputLayout, dict[int, list[Split]]]:
    """Return the trees behind an oracle, how they get their rows, and their splits.

    The splits are those of the numbers at each position of a row.
    """
    treecf = import_treecf()
    from treecf.ir.model import SplitOp
    from treecf.ir.parsers import parse_model

    while isinstance(oracle, CachedOracle):
        oracle = oracle.oracle
    layout = oracle.layout if isinstance(oracle, ModelOracle) else None
    if not isinstance(oracle, ModelOracle) or oracle.model is None or layout is None:
        raise not_trees(oracle.name, "it cannot be opened")
    names = _category_names(oracle.model, layout)
    try:
        trees = parse_model(oracle.model, names)
    except KeyError:  # of CatBoost, where its trees are not oblivious
        raise not_trees(oracle.name, "its grow_policy is not SymmetricTree") from None
    except treecf.TreecfError as error:
        if names:
            raise _no_statistics(oracle.name, names, str(error)) from None
        raise not_trees(oracle.name, str(error)) from None
    if trees.n_features != len(layout.columns):
        raise not_trees(oracle.name, f"its trees see {trees.n_features} columns")
    found: dict[int, set[Split]] = {}
    for node in (node for tree in trees.trees for node in tree.nodes):
        # An infinite one parts missing values from all others, and no two numbers.
        if node.threshold is not None and math.isfinite(node.threshold):
            position = layout.columns[node.feature].place.position
            found.setdefault(position, set()).add((node.threshold, node.op is SplitOp.LE))
    return trees, layout, {position: sorted(at) for position, at in found.items()}


def _category_names(model: Any, layout: InputLayout) -> dict[str, list[str]] | None:
    """Return the texts of the categories that CatBoost knows by their hashes alone.

    They are in the order of the codes that `parse_model` gives them.
    """
    if not type(model).__module__.startswith("catboost"):
        return None
    found: dict[str, list[str]] = {}
    for i in model.get_cat_feature_indices():
        column, feature = layout.columns[i], layout.columns[i].place.feature
        values: Sequence[Value] = feature.values() if not feature.is_numeric else ()
        low, high = feature.range or (0.0, math.inf)
        if feature.kind == "integer" and high - low <= _MOST_NUMBERS:
            values = range(int(low), int(high) + 1)
        blank: Row = (None,) * (1 + max(c.place.position for c in layout.columns))
        at = column.place.position
        rows = [(*blank[:at], value, *blank[at + 1 :]) for value in (*values, None)]
        texts = [*map(_category_text, column.cells(rows)), *MISSING_TOKENS]
        # Unnamed columns are called by their number.
        found[model.feature_names_[i]] = found[f"f{i}"] = list(dict.fromkeys(texts))
    return found or None


def _category_text(cell: object) -> str:
    """Return a cell as CatBoost writes it before it takes the hash."""
    return str(int(cell)) if isinstance(cell, (bool, np.bool_)) else str(cell)


def _no_statistics(name: str, names: Mapping[str, list[str]], reason: str) -> InputError:
    """Return the error for categories that CatBoost does not take one by one."""
    most = max(len(set(texts) - set(MISSING_TOKENS)) for texts in names.values())
    return InputError(
        f"no proof for {name}: {reason}. CatBoost puts statistics (CTRs) in the place of "
        f"categories unless they are few; trained with one_hot_max_size={most} it can be proved"
    )


def not_trees(name: str, reason: str) -> InputError:
    """Return the error for a model that cannot be opened, naming those that can."""
    return InputError(f"a proof needs a model of trees ({MODELS}), and {name} is none: {reason}")


@dataclass
class RebuiltTrees:
    """The model's trees over moves in place of columns; what no move reaches is cut away."""

    trees: Any
    layout: InputLayout
    query: Row
    moves: Sequence[Moves]
    _known: dict[tuple[Any, ...], NDArray[np.bool_]] = field(default_factory=dict)

    def ensemble(self) -> Any:
        """Return the ensemble that the solver gets."""
        from treecf.ir.model import CategoricalFeature, Tree

        rebuilt = []
        for tree in self.trees.trees:
            made: list[Any] = []
            self._grow(tree.nodes, 0, {}, made)
            rebuilt.append(Tree(tuple(made)))
        unordered = {i: m for i, m in enumerate(self.moves) if m.cost is not None}
        return replace(
            self.trees,
            trees=tuple(rebuilt),
            n_features=len(self.moves),
            feature_names=tuple(f"m{i}" for i in range(len(self.moves))),
            categorical={i: CategoricalFeature(len(m.rows)) for i, m in unordered.items()},
        )

    def _grow(
        self, nodes: Sequence[Any], i: int, open_: dict[int, NDArray[np.intp]], made: list[Any]
    ) -> int:
        """Copy what moves still ``open_`` reach of a subtree, and return its new number."""
        node, number = nodes[i], len(made)
        if node.feature is None:
            made.append(replace(node, node_id=number))
            return number
        owner = self._owners.get(self.layout.columns[node.feature].place.position)
        left = self._goes_left(node)
        if owner is None:
            return self._grow(nodes, node.left if left[0] else node.right, open_, made)
        still = open_.get(owner, np.arange(len(left)))
        goes = left[still]
        if goes.all() or not goes.any():
            return self._grow(nodes, node.left if goes[0] else node.right, open_, made)
        made.append(None)
        first, others, split = self._cut(owner, still, goes)
        children = []
        for part in (first, others):
            # Where the moves go left and right by turns, the same node is asked again in each half.
            mixed = left[part].any() and not left[part].all()
            end = i if mixed else int(node.left if left[part].any() else node.right)
            children.append(self._grow(nodes, end, {**open_, owner: part}, made))
        made[number] = replace(
            node, node_id=number, feature=owner, missing_left=False, left=children[0],
            right=children[1], **split,
        )  # fmt: skip
        return number

    def _cut(
        self, owner: int, still: NDArray[np.intp], goes: NDArray[np.bool_]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], dict[str, Any]]:
        """Return two parts of some moves, and the split that parts them."""
        from treecf.ir.model import SplitOp

        moves = self.moves[owner]
        if moves.cost is not None:
            members = frozenset(map(int, still[goes]))
            return still[goes], still[~goes], {"categories": members, "threshold": None, "op": None}
        turns = np.flatnonzero(goes[1:] != goes[:-1])
        turn = int(turns[len(turns) // 2])
        at, inside = moves.threshold(int(still[turn]))
        split = {"categories": None, "threshold": at, "op": SplitOp.LE if inside else SplitOp.LT}
        return still[: turn + 1], still[turn + 1 :], split

    def _goes_left(self, node: Any) -> NDArray[np.bool_]:
        """Return which moves of the owner of a node's column go left."""
        from treecf.ir.model import SplitOp

        key = (node.feature, node.threshold, node.op, node.categories, node.missing_left)
        if key not in self._known:
            numbers, at = self._numbers[node.feature], node.threshold
            if node.categories is not None:
                left = np.isin(numbers, list(node.categories))
            else:
                left = numbers < at if node.op is SplitOp.LT else numbers <= at
            self._known[key] = np.where(np.isnan(numbers), bool(node.missing_left), left)
        return self._known[key]

    def _codes(self, column: int) -> dict[str, int]:
        """Return the codes of the categories of one of CatBoost's columns; none elsewhere."""
        known = self.trees.categorical.get(column)
        if self.trees.meta.get("source") != "catboost" or known is None:
            return {}
        return {text: code for code, text in enumerate(known.categories or ())}

    @cached_property
    def _owners(self) -> dict[int, int]:
        return {column: i for i, moves in enumerate(self.moves) for column in moves.columns}

    @cached_property
    def _numbers(self) -> list[Matrix]:
        """What the model sees in each column, for each move of its owner."""
        found: list[Matrix] = []
        for column in self.layout.columns:
            owner = self._owners.get(column.place.position)
            rows = [self.query] if owner is None else self.moves[owner].rows
            feature, codes = column.place.feature, self._codes(len(found))
            listed = column.table is not None or codes
            if feature.is_numeric and listed and owner is not None:
                raise not_trees("this one", f"{feature.name!r} is a category to it")
            cells = column.cells(rows)
            if codes:  # what is in no list goes where no category goes
                cells = [codes.get(_category_text(cell), -1) for cell in cells]
            try:
                found.append(np.array(cells, dtype=np.float64))
            except (TypeError, ValueError):
                raise not_trees("this one", f"it gets {feature.name!r} as text") from None
        return found
