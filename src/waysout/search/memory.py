"""Prompt as memory: which earlier attempts an LLM is shown."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from waysout.domain.schema import Row, Schema, Value
from waysout.prompts.render import Record, Tag
from waysout.search.tree import Attempt, Tree

Remembered = Literal["attempts", "path"]

MEMORY = 10


def recall(
    tree: Tree, node: int, most: int = MEMORY, remembered: Remembered = "attempts"
) -> list[Attempt]:
    """Return the latest attempts along the path from the root to a node, in order of time.

    ``"attempts"`` are all that were made at the nodes of the path, those of siblings included, as
    the paper's pseudocode records them. ``"path"`` are only the edits of the path itself, and what
    was pruned on it, as the paper's text can be read.
    """
    way = tree.path(node)
    found = [attempt for place in way for attempt in place.attempts]
    if remembered == "path":
        found = [attempt for attempt in found if attempt.tag == Tag.PRUNED]
        for above, below in pairwise(way):  # among equal siblings, one stands for the step
            found.append(next(a for a in above.attempts if a.edit == below.edit))
    found.sort(key=lambda attempt: attempt.time)
    return found[-most:] if most else []


def records(
    schema: Schema, query: Row, attempts: list[Attempt], *, whole: bool
) -> tuple[Record, ...]:
    """Return attempts as a prompt shows them.

    With ``whole``, each is all that differs from the query, so that it can be understood without
    the node it was tried at; else it is the edit alone, as in the paper.
    """

    def changes(attempt: Attempt) -> tuple[tuple[str, Value], ...]:
        if not whole:
            return ((attempt.edit.feature, attempt.edit.value),)
        return tuple(
            (name, attempt.row[schema.index(name)]) for name in schema.changed(query, attempt.row)
        )

    return tuple(Record(changes(a), a.tag, a.probability if whole else None) for a in attempts)


def recently_edited(attempts: list[Attempt], most: int = 5) -> tuple[str, ...]:
    """Return the features of the latest attempts, the latest last: the hint to try others."""
    latest = dict.fromkeys(attempt.edit.feature for attempt in reversed(attempts))
    return tuple(latest)[:most][::-1]


def edited_on_path(tree: Tree, node: int) -> tuple[str, ...]:
    """Return the features edited on the path to a node: the hint of diversity-prompted LATS."""
    edits = (place.edit for place in tree.path(node))
    return tuple(dict.fromkeys(edit.feature for edit in edits if edit is not None))
