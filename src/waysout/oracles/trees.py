"""A model's trees, opened with the package treecf and rebuilt over moves in place of columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.domain.oracle import Oracle
from waysout.domain.schema import Row
from waysout.errors import InputError, MissingExtra
from waysout.oracles.adapt import ModelOracle
from waysout.oracles.cache import CachedOracle
from waysout.oracles.inputs import InputLayout
from waysout.oracles.moves import Matrix, Moves, Split

MODELS = (
    "LightGBM, XGBoost, CatBoost, and scikit-learn's RandomForest-, GradientBoosting- and "
    "HistGradientBoostingClassifier, with two classes and numbers as inputs"
)


def import_treecf() -> Any:
    """Return the package, or say which extra to install."""
    try:
        import treecf
    except ImportError:
        raise MissingExtra("treecf", "treecf") from None
    return treecf


def opened(oracle: Oracle) -> tuple[Any, InputLayout]:
    """Return the trees behind an oracle, and how they get their rows."""
    treecf = import_treecf()
    from treecf.ir.parsers import parse_model

    while isinstance(oracle, CachedOracle):
        oracle = oracle.oracle
    layout = oracle.layout if isinstance(oracle, ModelOracle) else None
    if not isinstance(oracle, ModelOracle) or oracle.model is None or layout is None:
        raise not_trees(oracle.name, "it cannot be opened")
    try:
        trees = parse_model(oracle.model)
    except treecf.TreecfError as error:
        raise not_trees(oracle.name, str(error)) from None
    if trees.n_features != len(layout.columns):
        raise not_trees(oracle.name, f"its trees see {trees.n_features} columns")
    return trees, layout


def not_trees(name: str, reason: str) -> InputError:
    """Say why a model cannot be opened, and which can."""
    return InputError(f"a proof needs a model of trees ({MODELS}), and {name} is none: {reason}")


def splits_of(trees: Any, layout: InputLayout) -> dict[int, list[Split]]:
    """Return where the model splits the numbers of each column of a row."""
    from treecf.ir.model import SplitOp

    found: dict[int, set[Split]] = {}
    for tree in trees.trees:
        for node in tree.nodes:
            # An infinite one parts missing values from all others, and no two numbers.
            if node.threshold is not None and math.isfinite(node.threshold):
                position = layout.columns[node.feature].place.position
                found.setdefault(position, set()).add((node.threshold, node.op is SplitOp.LE))
    return {position: sorted(at) for position, at in found.items()}


def _goes_left(node: Any, numbers: Matrix) -> NDArray[np.bool_]:
    from treecf.ir.model import SplitOp

    if node.categories is not None:
        left = np.isin(numbers, list(node.categories))
    else:
        at = node.threshold
        left = numbers < at if node.op is SplitOp.LT else numbers <= at
    return np.where(np.isnan(numbers), bool(node.missing_left), left)


@dataclass
class Rebuilt:
    """The model's trees over moves in place of columns; what no move reaches is cut away."""

    trees: Any
    layout: InputLayout
    query: Row
    moves: Sequence[Moves]
    _known: dict[tuple[Any, ...], NDArray[np.bool_]] = field(default_factory=dict)

    def ensemble(self) -> Any:
        """Return the ensemble that the solver gets."""
        from treecf.ir.model import CategoricalFeature, Tree

        unordered = {i: m for i, m in enumerate(self.moves) if m.cost is not None}
        return replace(
            self.trees,
            trees=tuple(Tree(tuple(self._tree(tree.nodes))) for tree in self.trees.trees),
            n_features=len(self.moves),
            feature_names=tuple(f"m{i}" for i in range(len(self.moves))),
            categorical={i: CategoricalFeature(len(m.rows)) for i, m in unordered.items()},
        )

    def _tree(self, nodes: Sequence[Any]) -> list[Any]:
        made: list[Any] = []
        self._grow(nodes, 0, {}, made)
        return made

    def _grow(
        self, nodes: Sequence[Any], i: int, open_: dict[int, NDArray[np.intp]], made: list[Any]
    ) -> int:
        """Copy what moves still ``open_`` reach of a subtree, and return its new number."""
        node, number = nodes[i], len(made)
        if node.feature is None:
            made.append(replace(node, node_id=number))
            return number
        owner, left = self._reading(node)
        if owner is None:
            return self._grow(nodes, node.left if left[0] else node.right, open_, made)
        still = open_.get(owner, np.arange(len(left)))
        goes = left[still]
        if goes.all() or not goes.any():
            return self._grow(nodes, node.left if goes[0] else node.right, open_, made)
        made.append(None)
        first, others, split = self._cut(owner, still, goes)
        # Where the moves go left and right by turns, the same node is asked again in each half.
        ends = [self._end(node, i, left[part]) for part in (first, others)]
        children = [
            self._grow(nodes, end, {**open_, owner: part}, made)
            for end, part in zip(ends, (first, others), strict=True)
        ]
        made[number] = replace(
            node, node_id=number, feature=owner, missing_left=False, left=children[0],
            right=children[1], **split,
        )  # fmt: skip
        return number

    @staticmethod
    def _end(node: Any, i: int, goes: NDArray[np.bool_]) -> int:
        if goes.all():
            return int(node.left)
        return i if goes.any() else int(node.right)

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
        op = SplitOp.LE if inside else SplitOp.LT
        return still[: turn + 1], still[turn + 1 :], {
            "categories": None, "threshold": at, "op": op,
        }  # fmt: skip

    def _reading(self, node: Any) -> tuple[int | None, NDArray[np.bool_]]:
        """Return whose moves a split tells apart, and which go left; None where nothing moves."""
        position = self.layout.columns[node.feature].place.position
        owner = self._owners.get(position)
        key = (node.feature, node.threshold, node.op, node.categories, node.missing_left)
        if key not in self._known:
            self._known[key] = _goes_left(node, self._numbers[node.feature])
        return owner, self._known[key]

    @cached_property
    def _owners(self) -> dict[int, int]:
        return {column: i for i, moves in enumerate(self.moves) for column in moves.columns}

    @cached_property
    def _numbers(self) -> list[Matrix]:
        """What the model sees in each column, for each move of its owner."""
        found = []
        for column in self.layout.columns:
            owner = self._owners.get(column.place.position)
            rows = [self.query] if owner is None else self.moves[owner].rows
            feature = column.place.feature
            if feature.is_numeric and column.table is not None and owner is not None:
                raise not_trees("this one", f"{feature.name!r} is a category to it")
            try:
                found.append(np.array(column.cells(rows), dtype=np.float64))
            except (TypeError, ValueError):
                raise not_trees("this one", f"it gets {feature.name!r} as text") from None
        return found
