"""Options that several commands share, so that each says the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

# Spelled out here, not imported, so that --help loads no numpy.
DEFAULT_METHOD = "recombine"
MODEL, SEARCH, OUTPUT = "The model and the table", "The search", "Output"

ModelFile = Annotated[
    str,
    typer.Option(help="The model that decides; a data set has its own.", rich_help_panel=MODEL),
]
CardFile = Annotated[
    str,
    typer.Option(help="The table's card; a data set has its own.", rich_help_panel=MODEL),
]
RuleSetName = Annotated[
    str,
    typer.Option(help="A rule set of the card; the default: its own.", rich_help_panel=MODEL),
]
PositiveClass = Annotated[
    str,
    typer.Option(
        help="The model's class that means yes, where the card cannot tell.", rich_help_panel=MODEL
    ),
]
Inputs = Annotated[
    str, typer.Option(help="How the model gets rows; auto finds out.", rich_help_panel=MODEL)
]
AtLeast = Annotated[
    float | None,
    typer.Option(
        help="Ask for this probability instead of the model's own yes.",
        min=0,
        max=1,
        rich_help_panel=SEARCH,
    ),
]
Rise = Annotated[
    float | None,
    typer.Option(
        help="Or for a probability that much above the present one.",
        min=0,
        max=1,
        rich_help_panel=SEARCH,
    ),
]
MethodName = Annotated[str, typer.Option(help="See `waysout methods`.", rich_help_panel=SEARCH)]
