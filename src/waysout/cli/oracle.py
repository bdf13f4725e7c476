"""``waysout oracle``: train the models that say yes or no, and check one of your own."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from waysout.cli import arguments as arg
from waysout.cli.held import ready_for_models
from waysout.cli.output import JsonFlag, echo, print_json, print_table, progress_bar, say
from waysout.cli.sources import find_card, find_table, read_rows

# Spelled out here, not imported, so that --help loads no numpy.
InputsChoice = Literal["auto", "raw", "category", "codes"]

app = typer.Typer(
    help="The models that say yes or no: train one, or check your own.",
    no_args_is_help=True,
)


@app.command()
def train(
    dataset: Annotated[
        str, typer.Argument(help="A data set (see `waysout data list`), or your own table file.")
    ],
    card: Annotated[str, typer.Option(help="The card of your own table.")] = "",
    trust_code: arg.TrustCode = False,
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
    from waysout.datasets.load import labelled
    from waysout.datasets.manifest import oracle_dir
    from waysout.datasets.registry import DATASETS
    from waysout.datasets.train import train_oracle
    from waysout.errors import InputError, unknown

    if not card and dataset not in DATASETS:
        raise InputError(
            f"{unknown('data set', dataset, DATASETS)}. For a table of your own, name its card: "
            f"waysout oracle train {dataset} --card CARD"
        )
    read = labelled(find_card(card or dataset, trust_code=trust_code), find_table(dataset))
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
    rows = [
        (part.replace("_", " "), f"{manifest.split['rows'][part]:,}",
         f"{manifest.positive_share[part]:.1%}", *(f"{v:.4f}" for v in values.values()))
        for part, values in manifest.metrics.items()
    ]  # fmt: skip
    columns = ["part", "rows", "positive", "accuracy", "AUC", "log loss"]
    print_table(f"Oracle for {manifest.dataset}", columns, rows)
    for note in manifest.notes:
        say(f"note: {note}")
    echo(f"{where} ({manifest.seconds:g} s, {manifest.rounds} rounds)")


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
    model: Annotated[
        str, typer.Option(help="The model: a file, an address (http://…) or MODULE:FUNCTION.")
    ],
    data: Annotated[str, typer.Option(help="The table it was trained on (or a data set's name).")],
    card: Annotated[str, typer.Option(help="The table's card (or a data set's name).")],
    positive_class: arg.PositiveClass = "",
    inputs: Annotated[
        InputsChoice,
        typer.Option(help="How the model takes rows; auto detects it."),
    ] = "auto",
    trust_pickle: arg.TrustPickle = False,
    trust_types: arg.TrustTypes = None,
    trust_code: arg.TrustCode = False,
    expect: Annotated[
        str, typer.Option(help="A column with the model's own probabilities of a yes, to compare.")
    ] = "",
    json: JsonFlag = False,
) -> None:
    """Try a model of your own before anything is spent on it.

    Model files: LightGBM .txt, XGBoost .json/.ubj, CatBoost .cbm, ONNX .onnx, skops .skops; pickle
    and joblib only with --trust-pickle. Or the address of a server, or MODULE:FUNCTION.

    What proves that the model gets its rows the way it was trained is --expect: put its own
    probabilities into a column of the table, and every row is compared.
    """
    from waysout.datasets.load import Dataset
    from waysout.domain.schema import Feature, Schema
    from waysout.oracles.adapt import as_oracle
    from waysout.oracles.load import load_model
    from waysout.oracles.probe import check_oracle, probe
    from waysout.run.source import model_name

    described, table = find_card(card, trust_code=trust_code), find_table(data)
    # Read first: a column that is no number should not cost the loading of a model.
    column = Schema((Feature(expect, "number"),)).parse_many(table.records) if expect else []
    read = read_rows(table, described)
    rows, labels = (read.rows, read.labels) if isinstance(read, Dataset) else (read, None)
    ready_for_models()
    loaded = load_model(model, trust_pickle=trust_pickle, trusted_types=tuple(trust_types or ()))
    oracle = as_oracle(
        loaded,
        described,
        positive_class=positive_class or None,
        inputs=inputs,
        name=model_name(model),
    )
    report: dict[str, Any] = asdict(probe(oracle, rows, labels=labels))
    if expect:
        check_oracle(oracle, rows, expected=[float(row[0] or 0.0) for row in column])
    if json:
        print_json({"ok": True, "model": model, **report, "agrees_with": expect or None})
        return
    echo(f"{oracle.name} answers, and nothing odd was seen")
    if expect:
        echo(f"it agrees with column {expect!r} on all {len(rows):,} rows")
    else:
        say("note: to prove that it gets its rows as trained, compare with --expect COLUMN")
    seen = [(name.replace("_", " "), v) for name, v in report.items() if name != "notes"]
    print_table("What was seen", ["of the model", "value"], seen)
    for note in report["notes"]:
        say(f"note: {note}")
