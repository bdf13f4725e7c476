"""``waysout card``: describe a table, check the description, see what it allows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from waysout.cli.arguments import TrustCode, TrustPickle, TrustTypes
from waysout.cli.output import JsonFlag, echo, print_json, print_table, say, with_flags
from waysout.cli.sources import find_card, find_table, read_rows

app = typer.Typer(
    help="Cards describe a table: what each column is and what may change.",
    no_args_is_help=True,
)
CardArgument = Annotated[str, typer.Argument(help="A card file, or the name of a data set.")]


@app.command()
def infer(
    table: Annotated[Path, typer.Argument(help="A CSV or Parquet file.")],
    target: Annotated[
        str | None, typer.Option(help="The column with the outcome, if the table has one.")
    ] = None,
    positive: Annotated[
        str | None, typer.Option(help="The value of that column which means yes.")
    ] = None,
    features: Annotated[
        str, typer.Option(help="Only these columns, in this order: a,b,c. Default: all.")
    ] = "",
    model: Annotated[
        str, typer.Option(help="Only the columns that this model was trained on.")
    ] = "",
    trust_pickle: TrustPickle = False,
    trust_types: TrustTypes = None,
    name: Annotated[str, typer.Option(help="The card's name; default: the file's.")] = "",
    out: Annotated[Path | None, typer.Option(help="Write here instead of to stdout.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Print a first card for your table, with comments on what to look at.

    A card says what each column is and what may change; `waysout card check` tells what is wrong
    with it, and `waysout find --card` goes by it.

    Example: waysout card infer loans.csv --target status --positive approved > loans.toml
    """
    import re
    import shlex

    from waysout.cli.places import check_places
    from waysout.datasets.infer import infer_card
    from waysout.datasets.table import read_table
    from waysout.errors import InputError
    from waysout.files import write_atomically

    if out is not None and out.exists() and not force:
        raise InputError(f"{out} exists; --force overwrites it")
    check_places({"--out": out}, {"the table": table})
    made = re.sub(r"[^\w-]+", "-", table.name.split(".")[0])[:64]
    if features and model:
        raise InputError("--features and --model both choose the columns: give one of them")
    read = read_table(table)
    columns = [part.strip() for part in features.split(",") if part.strip()] or None
    if model:
        columns = _columns_of(model, trust_pickle, trust_types or ())
    if target is None:
        say("note: without --target every column counts as a feature, a label among them too")
    text = infer_card(
        read,
        target=target,
        positive=positive,
        name=name or made,
        features=columns,
    )
    if out is None:
        echo(text, nl=False)
    else:
        write_atomically(out, text.encode())
        say(f"wrote {out}; look it over, then: waysout card check {shlex.quote(str(out))}")


def _columns_of(path: str, trust_pickle: bool, trust_types: Sequence[str]) -> list[str]:
    """Return the columns that a model says it was trained on."""
    from waysout.errors import InputError
    from waysout.oracles.adapt import model_columns
    from waysout.oracles.load import load_model

    loaded = load_model(path, trust_pickle=trust_pickle, trusted_types=trust_types)
    found = model_columns(loaded)
    if found is None:
        raise InputError(
            f"{path} does not tell which columns it was trained on: name them with --features a,b,c"
        )
    return list(found)


@app.command()
def check(
    card: CardArgument,
    data: Annotated[str, typer.Option(help="Also read this table (or data set) by the card.")] = "",
    trust_code: TrustCode = False,
    json: JsonFlag = False,
) -> None:
    """Explain what is wrong with a card, line by line; with --data, also how a table fits it."""
    from collections import Counter

    from waysout.datasets.load import Dataset
    from waysout.errors import CardError

    try:
        found = find_card(card, trust_code=trust_code)
    except CardError as error:
        if json:
            problems = [{"line": p.line, "reason": p.reason} for p in error.problems]
            print_json({"ok": False, "card": card, "problems": problems})
        else:
            for problem in error.problems:
                say(f"error: {with_flags(str(problem))}")
        raise typer.Exit(error.exit_code) from None
    report: dict[str, Any] = {}
    if data:
        read = read_rows(find_table(data), found)
        known = read if isinstance(read, Dataset) else None
        rows_read = read.rows if isinstance(read, Dataset) else read
        broken = {
            name: Counter(v.rule for row in rows_read for v in rules.violations(row, row))
            for name, rules in found.rule_sets.items()
        }
        yes = "" if known is None else f", {known.positives:,} are a yes"
        lines = [f"{data}: {len(rows_read):,} rows read{yes}"]
        lines += [
            f"  {rows:,} rows already break {rule!r} of rule set {name!r}"
            for name, counts in broken.items()
            for rule, rows in counts.most_common()
        ]
        report = {
            "rows": len(rows_read),
            "positives": None if known is None else known.positives,
            "broken": {name: dict(counts) for name, counts in broken.items()},
            "lines": lines,
        }
    if json:
        print_json({"ok": True, "card": card, "problems": [], "advice": found.advice(), **report})
        return
    for advice in found.advice():
        say(f"note: {advice}")
    sets = ", ".join(f"{n} ({len(s.rules)})" for n, s in found.rule_sets.items()) or "none"
    ruled = any(rule_set.rules for rule_set in found.rule_sets.values())
    free = "" if ruled else "; nothing says what may change (see the note)"
    echo(f"{card} is a sound card: {len(found.schema)} features; rule sets: {sets}{free}")
    for line in report.get("lines", []):
        echo(line)


@app.command()
def show(
    card: CardArgument,
    rules: Annotated[
        str, typer.Option(help="A rule set of the card; default: its usual one.")
    ] = "",
    trust_code: TrustCode = False,
    json: JsonFlag = False,
) -> None:
    """Show a card as a person would read it: the features, and the rules in words."""
    found = find_card(card, trust_code=trust_code)
    rule_set = found.rules(rules or None)
    told = [{"rule": r.label, "kind": r.kind, "why": r.why} for r in rule_set.rules]
    features = [
        {"name": f.name, "kind": f.kind, "unit": f.unit, "about": f.about} for f in found.schema
    ]
    if json:
        print_json({"name": found.name, "title": found.title, "rule_set": rule_set.name,
                    "features": features, "rules": told})  # fmt: skip
        return
    print_table(found.title or found.name, ["feature", "kind", "unit", "about"],
                [tuple(f.values()) for f in features])  # fmt: skip
    print_table(f"Rules ({rule_set.name})", ["rule", "kind", "why"],
                [tuple(r.values()) for r in told])  # fmt: skip
