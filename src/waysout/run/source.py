"""Where a problem comes from: a card, a model and a goal, as text that a run can store."""

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
from waysout.oracles.load import is_address, is_code, load_model


@dataclass(frozen=True)
class Trust:
    """What the user vouches for. It is never stored: a resumed run asks for it again.

    ``named`` means that the user has named the model, so that MODULE:FUNCTION may be imported; a
    file that names one needs ``code``, since it may come from anywhere.
    """

    pickle: bool = False
    types: tuple[str, ...] = ()
    code: bool = False
    named: bool = False


@dataclass(frozen=True)
class Source:
    """What a problem is made of, as text that a run can store.

    ``model`` is a file, an address or MODULE:FUNCTION; ``folder`` is where such a module is, if not
    in the current folder. ``row_seconds`` is how long the model may take for a row; it is not part
    of what is stored, as it changes no answer.
    """

    data: str
    card: str = ""
    model: str = ""
    rules: str = ""
    positive_class: str = ""
    inputs: str = "auto"
    at_least: float | None = None
    rise: float | None = None
    safer: tuple[float, ...] = ()
    folder: str = ""
    row_seconds: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, with paths that are valid wherever the run is resumed from."""
        found = asdict(self)
        del found["row_seconds"]
        for name in ("data", "card", "model"):
            found[name] = whole_name(found[name])
        if is_code(self.model):
            found["folder"] = str(Path(self.folder).resolve())
        return found

    def whole(self) -> Source:
        """Return the same with whole paths: a model may change the folder, or be in another."""
        return Source(**self.as_dict(), row_seconds=self.row_seconds)

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of the files that answers depend on."""
        files = {"model": Path(self.model), "data": Path(self.data)}
        return {name: file_sha256(file) for name, file in files.items() if file.is_file()}


def whole_name(name: str) -> str:
    """Return the whole path of a file; names of data sets, addresses and the like as they are."""
    is_path = name and name not in registry.DATASETS and Path(name).is_file()
    return str(Path(name).resolve()) if is_path else name


def card_of(source: Source, trust: Trust) -> Card:
    """Return the card of a source: its own, or that of the data set."""
    name = source.card or source.data
    if name in registry.DATASETS:
        return registry.card(name)
    if source.card:
        return Card.load(name, trust_code=trust.code)
    if Path(name).exists():
        raise InputError(f"the table {name} needs a card that describes it")
    raise InputError(
        f"there is no file {name}, and no such data set: "
        f"{unknown('data set', name, registry.DATASETS)}"
    )


def open_model(source: Source, trust: Trust) -> Any:
    """Open the model of a source: a file, an address or MODULE:FUNCTION."""
    if is_code(source.model) and not (trust.named or trust.code):
        raise InputError(
            f"{source.model} is code in {source.folder or 'the current folder'}, and opening it "
            "runs it: pass trust_code=True if you trust it"
        )
    return load_model(
        source.model, trust_pickle=trust.pickle, trusted_types=trust.types, folder=source.folder
    )


def model_name(model: str) -> str | None:
    """Return a short name for a model; an address makes its own, without what may be secret.

    >>> model_name("models/bank.txt"), model_name("bank:score"), model_name("http://bank/score")
    ('bank.txt', 'bank:score', None)
    """
    if is_address(model):
        return None
    return model if is_code(model) else Path(model).name


def problem_of(source: Source, trust: Trust, card: Card, training: Sequence[Row]) -> Problem:
    """Load the model of a source, and bind it to the card."""
    if source.at_least is not None and source.rise is not None:
        raise InputError("at_least and rise contradict each other")
    if source.model:
        oracle: Oracle = as_oracle(
            open_model(source, trust),
            card,
            positive_class=source.positive_class or None,
            inputs=source.inputs,  # type: ignore[arg-type]
            name=model_name(source.model),
            row_seconds=source.row_seconds,
        )
    elif source.data in registry.DATASETS:
        oracle = load_oracle(card)
    else:
        raise InputError(f"no model was given for the table {source.data}")
    return Problem.from_card(
        card,
        oracle,
        training=training,
        rule_set=source.rules or None,
        goal=Goal(at_least=source.at_least, rise=source.rise, safer=tuple(source.safer)),
    )
