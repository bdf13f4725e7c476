"""Options that several commands share, so that each has the same name and help everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# Spelled out here, not imported, so that --help loads no numpy.
DEFAULT_METHOD = "wayfinder"
MODEL, SEARCH, OUTPUT = "The model and the table", "The search", "Output"

# fmt: off
DataName = Annotated[str, typer.Option(
    help="The table: a file, or a data set's name. Also what distances are measured by.",
    rich_help_panel=MODEL)]
ModelFile = Annotated[str, typer.Option(
    help="The model that decides: a file, an address (http://HOST/score, see docs/search.md) or "
    "MODULE:FUNCTION, imported from this folder. A data set has its own.", rich_help_panel=MODEL)]
CardFile = Annotated[str, typer.Option(
    help="The table's card; a data set has its own.", rich_help_panel=MODEL)]
RowNumber = Annotated[int | None, typer.Option(
    help="The row of the table, counted from 0.", min=0, rich_help_panel=MODEL)]
Where = Annotated[str, typer.Option(
    help="Or a condition that one row meets, such as \"loan_id == 7\" or "
    "\"age > 50 and job in ['cook', 'clerk']\"; a name with spaces stands in backticks.",
    rich_help_panel=MODEL)]
JsonRow = Annotated[Path | None, typer.Option(
    help="Or a JSON file of {column: value} (- reads stdin).", rich_help_panel=MODEL)]
RuleSetName = Annotated[str, typer.Option(
    help="A rule set of the card; default: its own.", rich_help_panel=MODEL)]
PositiveClass = Annotated[str, typer.Option(
    help="The model's class that means yes, if the card does not determine it.",
    rich_help_panel=MODEL)]
Inputs = Annotated[str, typer.Option(
    help="How the model takes rows: raw, category, codes or auto (find out).",
    rich_help_panel=MODEL)]
RowSeconds = Annotated[float | None, typer.Option(
    help="How long the model may take for a row before that row has failed; default: 60, "
    "for an address 120.",
    min=0.001, rich_help_panel=MODEL)]
TrustCode = Annotated[bool, typer.Option(
    "--trust-code", help="Import and run the card's custom rules, and a stored run's own "
    "MODULE:FUNCTION.")]
TrustPickle = Annotated[bool, typer.Option(
    "--trust-pickle", help="Unpickle the model: this runs its code.")]
TrustTypes = Annotated[list[str] | None, typer.Option(
    help="A type a skops file may hold; may be repeated.")]

AtLeast = Annotated[float | None, typer.Option(
    help="Require this probability instead of the model's own decision.", min=0, max=1,
    rich_help_panel=SEARCH)]
SaferLevels = Annotated[list[float] | None, typer.Option(
    "--at-least", help="Carry each way on to this chance as well, such as 0.8; may be repeated. "
    "0.5 or less takes the place of the model's own decision.", min=0, max=1,
    rich_help_panel=SEARCH)]
Rise = Annotated[float | None, typer.Option(
    help="Or require an increase of this much.", min=0, max=1,
    rich_help_panel=SEARCH)]
MethodName = Annotated[str, typer.Option(help="See `waysout methods`.", rich_help_panel=SEARCH)]
Settings = Annotated[list[str] | None, typer.Option(
    "--set", help="A setting of the method, NAME=VALUE; may be repeated.", rich_help_panel=SEARCH)]
LlmName = Annotated[str, typer.Option(
    help="An LLM that names values, with reasons: llamacpp:NAME, llamacpp:FILE.gguf, "
    "transformers:NAME, openai:MODEL@URL[,URL…], replay:FILE, simulated:SEED or scripted:SEED. "
    "Without one, none is asked.", rich_help_panel=SEARCH)]
Calls = Annotated[int | None, typer.Option(
    help="Maximum number of LLM calls (needs --llm); default: 30.", min=0, rich_help_panel=SEARCH)]
EditsPerCall = Annotated[int, typer.Option(
    "--k", "-k", help="Edits requested per LLM call (tree searches).", min=1, max=50,
    rich_help_panel=SEARCH)]
OracleRows = Annotated[int | None, typer.Option(
    help="Maximum number of rows put to the model; default: K × calls; at least K × 30 "
    "for methods that go on without the LLM; K × 30 without one.", min=0, rich_help_panel=SEARCH)]
Polish = Annotated[int, typer.Option(
    help="Reserve this many of those rows to finish what a method found: needless changes are "
    "dropped, numbers walked back, ways checked to hold. Try a third of --oracle-rows; wayfinder "
    "does so by itself.", min=0,
    rich_help_panel=SEARCH)]
Seconds = Annotated[float | None, typer.Option(
    help="Maximum time in seconds.", min=0, rich_help_panel=SEARCH)]
Tokens = Annotated[int | None, typer.Option(
    help="Maximum number of tokens.", min=0, rich_help_panel=SEARCH)]
Money = Annotated[float | None, typer.Option(
    help="Maximum cost (needs --price).", min=0, rich_help_panel=SEARCH)]
Prices = Annotated[str, typer.Option(
    help="Token prices per million, IN/OUT or IN/OUT/CACHED.", rich_help_panel=SEARCH)]
Seed = Annotated[int, typer.Option(
    help="The same seed gives the same search.", min=0, rich_help_panel=SEARCH)]
PaperPrompt = Annotated[bool, typer.Option(
    "--paper", help="Use the paper's prompt.", rich_help_panel=SEARCH)]
FreeForm = Annotated[bool, typer.Option(
    "--free", help="Do not constrain the LLM's output format.", rich_help_panel=SEARCH)]

AllOptions = Annotated[bool, typer.Option(
    "--all-options", help="In the CSV table, write everything that was approved, needed or not.",
    rich_help_panel=OUTPUT)]
Record = Annotated[Path | None, typer.Option(
    help="Also write the LLM's replies to this recording (see replay:FILE).",
    rich_help_panel=OUTPUT)]
# fmt: on
