"""Where a problem comes from: a card, a model and a goal, as text that a run can keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from waysout.datasets import registry
from waysout.datasets.manifest import load_oracle
from waysout.domain.card import Card
from waysout.domain.oracle import Goal, Oracle
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.errors import InputError, unknown
from waysout.files import file_sha256
from waysout.oracles.adapt import as_oracle
from waysout.oracles.load import load_model


@dataclass(frozen=True)
class Trust:
    """What the user has given their word for. It is never stored: a resumed run asks again."""

    pickle: bool = False
    types: tuple[str, ...] = ()
    code: bool = False


@dataclass(frozen=True)
class Source:
    """What a problem is made of, as text that a run can keep."""

    data: str
    card: str = ""
    model: str = ""
    rules: str = ""
    positive_class: str = ""
    inputs: str = "auto"
    at_least: float | None = None
    rise: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, with paths that hold wherever the run is resumed from."""
        found = asdict(self)
        for name in ("data", "card", "model"):
            place = Path(found[name]) if found[name] else None
            if place is not None and place.is_file():
                found[name] = str(place.resolve())
        return found

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of the files that answers depend on."""
        files = {"model": Path(self.model), "data": Path(self.data)}
        return {name: file_sha256(file) for name, file in files.items() if file.is_file()}


def card_of(source: Source, trust: Trust) -> Card:
    """Return the card of a source: its own, or that of the data set."""
    name = source.card or _own_card(source.data)
    if name in registry.DATASETS:
        return registry.card(name)
    return Card.load(name, trust_code=trust.code)


def problem_of(source: Source, trust: Trust, card: Card, training: Sequence[Row]) -> Problem:
    """Load the model of a source, and bind it to the card."""
    return Problem.from_card(
        card,
        _oracle(source, trust, card),
        training=training,
        rule_set=source.rules or None,
        goal=_goal(source),
    )


def _own_card(data: str) -> str:
    if data in registry.DATASETS:
        return data
    if Path(data).exists():
        raise InputError(
            f"the table {data} needs its card: --card CARD.toml (waysout card infer makes one)"
        )
    raise InputError(
        f"there is no file {data}, and no such data set: "
        f"{unknown('data set', data, registry.DATASETS)}"
    )


def _oracle(source: Source, trust: Trust, card: Card) -> Oracle:
    if not source.model:
        if source.data not in registry.DATASETS:
            raise InputError("name the model that decides: --model FILE")
        return load_oracle(card)
    loaded = load_model(Path(source.model), trust_pickle=trust.pickle, trusted_types=trust.types)
    return as_oracle(
        loaded,
        card,
        positive_class=source.positive_class or None,
        inputs=source.inputs,  # type: ignore[arg-type]
        name=Path(source.model).name,
    )


def _goal(source: Source) -> Goal:
    if source.at_least is not None and source.rise is not None:
        raise InputError("--at-least and --rise contradict each other")
    return Goal(at_least=source.at_least, rise=source.rise)
