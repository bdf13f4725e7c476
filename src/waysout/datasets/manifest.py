"""A trained oracle on disk: LightGBM's text model, and a manifest that says how it came to be.

Nothing is pickled: the manifest vouches for the model by its sha256.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waysout.domain.card import Card
from waysout.domain.schema import Scalar, Schema
from waysout.errors import IntegrityError, OracleError, UnavailableError
from waysout.files import cache_dir, sha256, write_atomically
from waysout.oracles.inputs import codes_of

if TYPE_CHECKING:
    from waysout.oracles.adapt import ModelOracle

VERSION = 1
MODEL_FILE = "oracle.txt"
MANIFEST_FILE = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything needed to judge an oracle and to train it again.

    ``inputs`` are the features in the model's order, each with the numbers of its levels;
    ``positive`` is the card's label for a yes, and ``positive_class`` the class the model knows it
    as. ``metrics`` are accuracy, AUC and log loss on the rows trained on and on those held out.
    """

    dataset: str
    data_sha256: str
    inputs: Mapping[str, Mapping[str, float]]
    positive: Scalar
    positive_class: int
    model_sha256: str
    seed: int
    split: Mapping[str, Any]
    search: Mapping[str, Any]
    params: Mapping[str, float]
    rounds: int
    metrics: Mapping[str, Mapping[str, float]]
    positive_share: Mapping[str, float]
    versions: Mapping[str, str]
    seconds: float
    notes: tuple[str, ...] = ()
    manifest: int = VERSION

    @property
    def accuracy(self) -> float:
        """The accuracy on the held-out rows."""
        return self.metrics["held_out"]["accuracy"]

    def to_json(self) -> str:
        """Write the manifest as JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, source: str = MANIFEST_FILE) -> Manifest:
        """Read a manifest, or say what is wrong with it."""
        try:
            table = json.loads(text)
        except ValueError as error:
            raise IntegrityError(f"{source} is not JSON: {error}") from None
        if not isinstance(table, dict) or table.get("manifest") != VERSION:
            raise IntegrityError(f"{source} is not a manifest of version {VERSION}; train again")
        known = {field.name for field in fields(cls)}
        if set(table) != known:
            odd = sorted(set(table) ^ known)
            raise IntegrityError(f"{source}: missing or unknown field {odd[0]!r}; train again")
        return cls(**(table | {"notes": tuple(table["notes"])}))


def level_codes(schema: Schema) -> dict[str, dict[str, float]]:
    """Return for each feature the number of each of its levels; none for a numeric feature."""
    return {
        f.name: dict(zip(f.level_texts, codes_of(f).values(), strict=True)) if f.levels else {}
        for f in schema
    }


def oracle_dir(name: str) -> Path:
    """Return where the oracle of a data set is kept, whether or not there is one."""
    return cache_dir() / "oracles" / name


def trained_oracles() -> list[str]:
    """Return the names under which oracles are kept in the cache."""
    return sorted(path.parent.name for path in oracle_dir("").glob(f"*/{MANIFEST_FILE}"))


def save_oracle(folder: Path, model: str, manifest: Manifest) -> None:
    """Write model and manifest, the manifest last: it vouches for the model."""
    write_atomically(folder / MODEL_FILE, model.encode())
    write_atomically(folder / MANIFEST_FILE, manifest.to_json().encode())


def load_oracle_model(name_or_dir: str | Path) -> tuple[Path, Manifest]:
    """Return the model file and the manifest of a trained oracle, verified against each other.

    A plain name means the cache; a `Path`, or text with a separator in it, means a folder.
    """
    is_name = isinstance(name_or_dir, str) and re.fullmatch(r"[\w-]+", name_or_dir)
    folder = oracle_dir(str(name_or_dir)) if is_name else Path(name_or_dir)
    model = folder / MODEL_FILE
    try:
        text = (folder / MANIFEST_FILE).read_text("utf-8")
        found = sha256(model.read_bytes())
    except UnicodeDecodeError:
        raise IntegrityError(f"{folder / MANIFEST_FILE} is not UTF-8 text; train again") from None
    except OSError as error:
        remedy = f"run: waysout oracle train {name_or_dir}" if is_name else "name another folder"
        raise UnavailableError(
            f"there is no trained oracle in {folder} ({error.strerror}); {remedy}"
        ) from None
    manifest = Manifest.from_json(text, str(folder / MANIFEST_FILE))
    if found != manifest.model_sha256:
        raise IntegrityError(
            f"{model} is not the model its manifest describes: sha256 {found}, expected "
            f"{manifest.model_sha256}; train again"
        )
    return model, manifest


def load_oracle(card: Card, name_or_dir: str | Path | None = None) -> ModelOracle:
    """Return the trained oracle of a card's table, ready to be asked (default: by its name).

    The example needs ``waysout oracle train synthetic`` first, which takes seconds; so no test
    runs it.

    >>> import waysout
    >>> data = waysout.load_dataset("synthetic")
    >>> oracle = waysout.load_oracle(data.card)  # doctest: +SKIP
    >>> problem = waysout.Problem.from_card(data.card, oracle)  # doctest: +SKIP
    """
    from waysout.oracles.adapt import as_oracle
    from waysout.oracles.load import load_model

    model, manifest = load_oracle_model(name_or_dir or card.name)
    same_inputs = list(manifest.inputs.items()) == list(level_codes(card.schema).items())
    if not same_inputs or not card.is_positive(manifest.positive):
        raise OracleError(
            "the card's features, levels, codes or positive label are not those that the oracle in "
            f"{model.parent} was trained on; train it again, or use the card it was trained with"
        )
    return as_oracle(
        load_model(model), card, positive_class=manifest.positive_class, inputs="codes",
        name=manifest.dataset,
    )  # fmt: skip
