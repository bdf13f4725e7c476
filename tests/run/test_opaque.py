"""Opaque columns are carried along: no search changes them, and none is changed by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import waysout
from waysout.domain.distance import Distance
from waysout.domain.key import Key
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.rules import RuleSet
from waysout.domain.schema import Feature, Row, Schema, Value
from waysout.llm.base import Reply, Request
from waysout.llm.simulated import Simulated
from waysout.prompts.propose import Style
from waysout.run.find import find

PLAIN = (
    Feature("a", "integer", range=(0, 20)),
    Feature("b", "number", range=(0, 10), decimals=1),
    Feature("c", "category", levels=("x", "y", "z")),
    Feature("d", "boolean"),
)
QUERY: dict[str, Value] = {"a": 2, "b": 1.5, "c": "x", "d": False}
WITHOUT_LLM = ("wayfinder", "recombine", "random", "nearest", "growing-spheres", "certifai")
WITH_LLM = ("comp-mcts", "lats", "recombine", "wayfinder")

cells = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=20), st.floats(allow_nan=False),
    st.dates(),
)  # fmt: skip


class Scores:
    """Scores the plain features alone, by name."""

    name, labels_only = "scores", False

    def __init__(self, schema: Schema) -> None:
        self._at = [schema.index(feature.name) for feature in PLAIN]

    def ask(self, rows: Sequence[Row]) -> Answers:
        said = []
        for row in rows:
            a, b, c, d = (row[i] for i in self._at)
            score = 0.1 * float(a or 0) + 0.2 * float(b or 0) + (c == "y") + bool(d) - 2.5
            said.append(1 / (1 + np.exp(-score)))
        chances = np.array(said)
        return Answers(chances, chances >= 0.5)


@dataclass(frozen=True)
class Known:
    rows: Sequence[Row]
    labels: Sequence[bool]


def asked(
    features: Sequence[Feature], carried: Mapping[str, object], **options: Any
) -> waysout.Result:
    """Search with a table of these features."""
    schema = Schema(tuple(features))
    rng, rows = np.random.default_rng(1), []
    for i in range(80):
        plain = {"a": int(rng.integers(21)), "b": round(float(rng.uniform(0, 10)), 1),
                 "c": "xyz"[rng.integers(3)], "d": bool(rng.integers(2))}  # fmt: skip
        rows.append(schema.parse({**plain, **{name: f"{name} {i}" for name in carried}}))
    oracle = Scores(schema)
    problem = Problem(schema, RuleSet(schema), Key(schema), Distance.fit(schema, rows), oracle)
    known = Known(rows, oracle.ask(rows).decision.tolist())
    return find(problem, {**QUERY, **carried}, data=known, oracle_rows=40, **options)


@pytest.mark.parametrize("method", WITHOUT_LLM)
def test_every_method_finds_the_same_beside_opaque_columns(method: str) -> None:
    @given(st.lists(st.tuples(cells, st.integers(0, 4)), min_size=1, max_size=3))
    @settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
    def check(extra: list[tuple[object, int]]) -> None:
        features, carried = list(PLAIN), {}
        for i, (cell, at) in enumerate(extra):
            features.insert(at, Feature(f"note{i}", "opaque"))
            carried[f"note{i}"] = cell
        found = asked(features, carried, method=method)
        kept = {f.name: f.parse(carried[f.name]) for f in features if f.is_opaque}
        assert found.options
        for option in found.options:
            assert {name: option.row[name] for name in kept} == kept
        told = [(option.changes, option.probability) for option in found.options]
        assert told == [(option.changes, option.probability) for option in plain.options]
        assert [way.changes for way in found.ways] == [way.changes for way in plain.ways]

    plain = asked(PLAIN, {}, method=method)
    check()


class Listener(Simulated):
    """A simulated LLM that keeps what it was sent."""

    def __init__(self) -> None:
        super().__init__(3)
        self.heard: list[str] = []

    async def complete(self, request: Request) -> Reply:
        self.heard.append(repr(request))
        return await super().complete(request)


@pytest.mark.parametrize("template", ["waysout", "paper"])
@pytest.mark.parametrize("method", WITH_LLM)
def test_an_llm_is_neither_offered_nor_told_what_is_opaque(method: str, template: Any) -> None:
    features = (Feature("name", "opaque"), *PLAIN, Feature("letter", "opaque"))
    carried = {"name": "Josephine Q. Public", "letter": "Dear Sirs, my cat died."}
    llm = Listener()
    style = Style(template)
    found = asked(features, carried, method=method, llm=llm, calls=6, style=style)
    assert llm.heard
    assert not any("Josephine" in text or "my cat" in text for text in llm.heard)
    assert all(option.row["letter"] == carried["letter"] for option in found.options)
