"""``waysout oracle``: train the models that say yes or no, and check one of your own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from waysout.cli.output import (
    JsonFlag,
    TrustCode,
    find_card,
    find_dataset,
    find_table,
    print_json,
    print_table,
    progress_bar,
    say,
)

if TYPE_CHECKING:
    from waysout.datasets.load import Dataset
    from waysout.datasets.manifest import Manifest
    from waysout.domain.card import Card
    from waysout.domain.schema import Row

# Spelled out here, not imported, so that --help loads no numpy.
InputsChoice = Literal["auto", "raw", "category", "codes"]

app = typer.Typer(
    help="Oracles are the models that say yes or no: train one, or check your own.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.command()
def train(
    dataset: Annotated[
        str, typer.Argument(help="A data set (see `waysout data list`), or your own table file.")
    ],
    card: Annotated[str, typer.Option(help="The card of your own table.")] = "",
    trust_code: TrustCode = False,
    trials: Annotated[int, typer.Option(min=1, help="Settings that Optuna tries.")] = 30,
    seed: Annotated[int, typer.Option(min=0, help="Fixes split, search and training.")] = 42,
    threads: Annotated[
        int, typer.Option(min=0, help="0: as many as help. The model is the same for any number.")
    ] = 0,
    out: Annotated[Path | None, typer.Option(help="A folder; default: in the cache.")] = None,
    json: JsonFlag = False,
) -> None:
    """Train a LightGBM oracle: tuned by Optuna, reproducible to the byte.

    80 % of the rows train it (3-fold cross-validation chooses the settings); the other 20 % stop it
    early and measure it, as in the paper, so the accuracy shown is somewhat optimistic.
    """
    from waysout.datasets.manifest import oracle_dir
    from waysout.datasets.registry import DATASETS
    from waysout.datasets.train import train_oracle
    from waysout.errors import InputError

    read = _read(dataset, card, trust_code)
    if out is None and card and read.name in DATASETS:
        raise InputError(f"the oracle of the data set {read.name!r} would be overwritten: give the "
                         "card another name, or say where to with --out")  # fmt: skip
    with progress_bar() as progress:
        bar = progress.add_task(f"training on {read.name}", total=trials)

        def advance(done: int, _: int, best: float) -> None:
            progress.update(
                bar, completed=done, description=f"training on {read.name}: log loss {best:.4f}"
            )

        manifest = train_oracle(
            read, out=out, trials=trials, seed=seed, threads=threads or None, progress=advance
        )
    where = out or oracle_dir(read.name)
    if json:
        print_json({"folder": str(where), **asdict(manifest)})
        return
    _print_manifest(manifest, where)


def _read(dataset: str, card: str, trust_code: bool) -> Dataset:
    from waysout.datasets.registry import DATASETS
    from waysout.errors import InputError, unknown

    if not card and dataset not in DATASETS:
        raise InputError(
            f"{unknown('data set', dataset, DATASETS)}. For a table of your own, name its card: "
            f"waysout oracle train {dataset} --card CARD"
        )
    return find_dataset(dataset, find_card(card or dataset, trust_code=trust_code))


def _print_manifest(manifest: Manifest, where: Path) -> None:
    columns = ["part", "rows", "positive", "accuracy", "AUC", "log loss"]
    rows = [
        (part.replace("_", " "), f"{manifest.split['rows'][part]:,}",
         f"{manifest.positive_share[part]:.1%}", *(f"{v:.4f}" for v in values.values()))
        for part, values in manifest.metrics.items()
    ]  # fmt: skip
    print_table(f"Oracle for {manifest.dataset}", columns, rows)
    for note in manifest.notes:
        say(f"note: {note}")
    typer.echo(f"{where} ({manifest.seconds:g} s, {manifest.rounds} rounds)")


@app.command("list")
def list_(json: JsonFlag = False) -> None:
    """List the oracles trained so far."""
    from waysout.cli.doctor import oracle_states, print_oracles

    found = oracle_states()
    if json:
        print_json(found)
        return
    print_oracles(found)


@app.command()
def check(
    model: Annotated[Path, typer.Option(help="The model's file.")],
    data: Annotated[str, typer.Option(help="The table it was trained on (or a data set's name).")],
    card: Annotated[str, typer.Option(help="The table's card (or a data set's name).")],
    positive_class: Annotated[
        str, typer.Option(help="The model's class that means yes, where the card cannot tell.")
    ] = "",
    inputs: Annotated[
        InputsChoice, typer.Option(help="How the model gets rows; auto finds out.")
    ] = "auto",
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Unpickle the file: this runs its code.")
    ] = False,
    trust_types: Annotated[
        list[str] | None, typer.Option(help="A type a skops file may hold; may be repeated.")
    ] = None,
    trust_code: TrustCode = False,
    expect: Annotated[
        str, typer.Option(help="A column with the model's own probabilities of a yes, to compare.")
    ] = "",
    json: JsonFlag = False,
) -> None:
    """Try a model of your own before anything is spent on it.

    Model files: LightGBM .txt, XGBoost .json/.ubj, CatBoost .cbm, ONNX .onnx, skops .skops; pickle
    and joblib only with --trust-pickle.

    What proves that the model gets its rows the way it was trained is --expect: put its own
    probabilities into a column of the table, and every row is compared.
    """
    from waysout.oracles.adapt import as_oracle
    from waysout.oracles.load import load_model
    from waysout.oracles.probe import check_oracle, probe

    described = find_card(card, trust_code=trust_code)
    tried = _Tried.read(data, described, expect)
    with redirect_stdout(sys.stderr):  # a model may print
        loaded = load_model(
            model, trust_pickle=trust_pickle, trusted_types=tuple(trust_types or ())
        )
        oracle = as_oracle(
            loaded, described, positive_class=positive_class or None, inputs=inputs, name=model.name
        )
        report: dict[str, Any] = asdict(probe(oracle, tried.rows, labels=tried.labels))
        if tried.expected is not None:
            check_oracle(oracle, tried.rows, expected=tried.expected)
    report["agrees_with"] = expect or None
    if json:
        print_json({"ok": True, "model": str(model), **report})
        return
    _print_report(model.name, report, len(tried.rows))


@dataclass(frozen=True)
class _Tried:
    """What a model is tried on: rows, and labels and its own probabilities where there are any."""

    rows: Sequence[Row]
    labels: Sequence[bool] | None
    expected: Sequence[float] | None

    @classmethod
    def read(cls, data: str, card: Card, expect: str) -> _Tried:
        from waysout.datasets.load import labelled
        from waysout.domain.schema import Feature, Schema

        table = find_table(data)
        expected = None
        if expect:
            column = Schema((Feature(expect, "number"),)).parse_many(table.records)
            expected = [float(row[0] or 0.0) for row in column]
        if card.outcome.target in table.columns:
            dataset = labelled(card, table)
            return cls(dataset.rows, dataset.labels, expected)
        say("note: the table has no labels, so the positive class could not be checked")
        return cls(card.schema.parse_many(table.records), None, expected)


def _print_report(name: str, report: dict[str, Any], rows: int) -> None:
    typer.echo(f"{name} answers, and nothing odd was seen")
    if report["agrees_with"]:
        typer.echo(f"it agrees with column {report['agrees_with']!r} on all {rows:,} rows")
    else:
        say("note: to prove that it gets its rows as trained, compare with --expect COLUMN")
    seen = [
        (k.replace("_", " "), v) for k, v in report.items() if k not in ("notes", "agrees_with")
    ]
    print_table("What was seen", ["of the model", "value"], seen)
    for note in report["notes"]:
        say(f"note: {note}")
