"""Random schemas, rows and rules for the property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from waysout.domain.schema import Feature, Kind, Row, Schema, Value

names = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp", "Zs")), min_size=1, max_size=12
)
numbers = st.floats(-1e12, 1e12, allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0)
integers = st.integers(-(10**12), 10**12)
levels = st.lists(
    st.text(st.characters(categories=("L", "Nd")), min_size=1, max_size=6), min_size=1, max_size=5,
    unique=True,
)  # fmt: skip


@st.composite
def features(draw: st.DrawFn, name: str | None = None) -> Feature:
    kinds: list[Kind] = ["number", "integer", "category", "boolean"]
    kind = draw(st.sampled_from(kinds))
    return Feature(
        name=name or draw(names),
        kind=kind,
        levels=tuple(draw(levels)) if kind == "category" else (),
        ordered=kind == "category" and draw(st.booleans()),
        missing=draw(st.sampled_from(["refuse", "keep", "fill"])),
        missing_tokens=("",),
    )


def values(feature: Feature, *, missing: bool = True) -> st.SearchStrategy[Value]:
    present: st.SearchStrategy[Value]
    if feature.kind == "number":
        present = numbers
    elif feature.kind == "integer":
        present = integers
    else:
        present = st.sampled_from(feature.values())
    return present | st.none() if missing and feature.missing != "refuse" else present


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    found = draw(st.lists(features(), min_size=1, max_size=6, unique_by=lambda f: f.name))
    return Schema(tuple(found))


def rows(schema: Schema) -> st.SearchStrategy[Row]:
    return st.tuples(*(values(f) for f in schema))
