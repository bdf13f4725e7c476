"""Tabular diffusion: noise is added to a rejected row, which is then denoised as an approved one.

With more noise (a higher strength) more rows are approved, but they have less in common with the
row they started from. So the strength rises only while too few are approved: this keeps options
near the person where it can, and still finds some for everyone else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from waysout.bench.methods.learned.diffusion import Diffusion, DiffusionRecipe, Drawing
from waysout.bench.methods.learned.training import import_torch, learned, training_table
from waysout.domain.known import Known, need_known
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.search.base import Case, Method, OnLearning, Search, ignore_progress, least, within
from waysout.search.batches import BatchSearch, Candidate
from waysout.search.space import Projection

BATCH = 25


@dataclass(frozen=True)
class TabularDiffusion(Method):
    """Draws rows from a diffusion model of the known rows, guided to approved ones.

    Each starts from the query, noised to ``strength`` (1: nothing is left of it). After a batch of
    which less than ``enough`` was approved, the strength rises by ``rise``; 0 keeps it constant.
    ``guidance`` is the weight of classifier-free guidance towards approved rows, ``steps`` the
    number of denoising steps. ``width``, ``blocks`` and ``training_steps`` are the network's.

    Features that the rules hold fixed overwrite every denoised estimate, so that the others adapt
    to them; a model trained for inpainting would adapt more. After ``tries`` drawings in a row
    without anything new that the rules allow, the search ends.

    ``published`` is as the paper describes its own: the strength stays what it is, and each drawing
    costs a row, be it known already. All that are approved count.
    """

    name: ClassVar[str] = "tabular-diffusion"
    about: ClassVar[str] = "the row noised, and denoised as an approved one"
    needs_known: ClassVar[bool] = True

    strength: float = within(0.01, 1.0, 0.4)
    rise: float = within(0.0, 1.0, 0.1)
    enough: float = within(0.0, 1.0, 0.2)
    guidance: float = within(0.0, 20.0, 3.0)
    steps: int = within(1, 1000, 20)
    batch: int = within(1, 10_000, BATCH)
    tries: int = least(1, 15)
    width: int = within(1, 4096, DiffusionRecipe.width)
    blocks: int = within(0, 100, DiffusionRecipe.blocks)
    training_steps: int = least(1, DiffusionRecipe.steps)
    device: str = "auto"
    published: bool = False

    def prepare(self) -> None:
        """Raise `MissingExtra` where PyTorch is not installed."""
        import_torch()

    def learn(self, problem: Problem, known: Known | None, tell: OnLearning) -> None:
        """Train the model, or load it from the cache."""
        self._model(problem, known, tell)

    def start(self, case: Case) -> Search:
        """Return a search whose draws follow from the seed and the query."""
        model = self._model(case.problem, case.known, ignore_progress)
        return _DiffusionSearch(case.with_row_limit(), model, self)

    def _model(self, problem: Problem, known: Known | None, tell: OnLearning) -> Diffusion:
        known = need_known(known, f"the method {self.name!r}")
        recipe = DiffusionRecipe(self.width, self.blocks, self.training_steps)
        return learned(recipe, training_table(known, problem.schema), self.device, tell)


class _DiffusionSearch(BatchSearch):
    def __init__(self, case: Case, model: Diffusion, method: TabularDiffusion) -> None:
        super().__init__(case, method.batch, published=method.published)
        self._model, self._method, self._rng = model, method, case.generator()
        self._projection = Projection(case.problem, case.query)
        self._query = case.problem.schema.encode([case.query])
        self._strength = method.strength
        self._asked_here = self._found_here = 0
        self._drawn: list[Row] = []
        self._closed = False
        self._movable = case.problem.rules.movable(case.query)
        # The positions of features that no edit moves.
        self._held = np.zeros(model.coding.width, dtype=np.bool_)
        names, coding = case.problem.schema.names, model.coding
        for name, value, code, block in zip(
            names, case.query, coding.codes, coding.blocks, strict=True
        ):
            # Where no row lacks a value, the model cannot express that it is missing.
            is_known = value is not None or code.may_be_missing
            self._held[block] = name not in self._movable and is_known

    @property
    def thinks(self) -> bool:
        """Whether `ask` may take long: a batch is drawn in about a tenth of a second."""
        return True

    def close(self) -> None:
        """Draw no more."""
        self._closed = True

    def _batch(self, most: int) -> list[Candidate]:
        batch: list[Candidate] = []
        method, coding = self._method, self._model.coding
        for _ in range(method.tries if self._movable else 0):
            if self._closed:
                break
            before = len(batch)
            if not self._drawn:  # the last comes first
                vectors = coding.encode(np.repeat(self._query, method.batch, axis=0), self._rng)
                how = Drawing(self._strength, method.guidance, method.steps)
                drawn = self._model.vary(vectors, True, how, self._rng, self._held)
                self._drawn = list(coding.rows(drawn))
            while self._drawn and len(batch) < most:
                candidate = self._candidate(self._projection(self._drawn.pop()))
                if candidate is not None:
                    batch.append(candidate)
            if len(batch) == most:
                break
            if len(batch) == before and not self._published:
                self._go_deeper()
        return batch

    def _go_deeper(self) -> None:
        self._strength = min(1.0, self._strength + self._method.rise)
        self._drawn.clear()
        self._asked_here = self._found_here = 0

    def _learn(
        self, batch: Sequence[Candidate], chances: Sequence[float], valid: Sequence[bool]
    ) -> None:
        # All batches of a strength count: one with bad luck says little.
        self._asked_here += len(batch)
        self._found_here += sum(valid)
        if self._published:
            for candidate, chance, is_valid in zip(batch, chances, valid, strict=True):
                if is_valid:
                    self._return(candidate, chance)
        elif self._found_here < self._method.enough * self._asked_here:
            self._go_deeper()

    def _nothing_left(self) -> str:
        if not self._movable:
            return "no feature may change"
        return f"{self._method.tries} drawings in a row gave nothing new that the rules allow"
