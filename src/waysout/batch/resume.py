"""What a resumed batch believes: parts whose files are what was written, and no others."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from waysout.batch.marks import (
    AGAIN,
    DONE,
    Mark,
    are_kept,
    check_part,
    files_of,
    mark_done,
    marked,
    part_name,
    unmark,
)
from waysout.batch.tables import options_of, people_of, written
from waysout.errors import IntegrityError
from waysout.files import file_sha256, private_folder
from waysout.store.tables import faults

_UNDER_WAY = "_done.new"


def check_parts(out: Path, part_rows: int, tell: Callable[[str], None]) -> None:
    """Take back that a part is done where its files are not what was written, and say so.

    It costs one pass over the files that are done.
    """
    with faults(out):
        if not are_kept(out):
            _adopt(out, part_rows, tell)
        for part in marked(out):
            try:
                check_part(out, part)
            except IntegrityError as error:
                unmark(out, part)
                tell(_said(part, error))


def _adopt(out: Path, part_rows: int, tell: Callable[[str], None]) -> None:
    """Mark the parts that an earlier release has done, as far as their files can be read.

    They have no digest; what can be known of them is that all checksums of pages hold, and that
    they have the rows of the part. All marks appear at once: a kill leaves none.
    """
    shutil.rmtree(out / _UNDER_WAY, ignore_errors=True)
    private_folder(out / _UNDER_WAY)
    for part in written(out):
        if not (out / files_of(part)[0]).is_file():
            continue  # it was being written anew when its writer was killed
        try:
            rows = _rows(out, part, part * part_rows)
        except IntegrityError as error:
            tell(_said(part, error))
            continue
        digests = {name: file_sha256(out / name) for name in files_of(part)}
        mark_done(out, part, Mark(rows, digests), _UNDER_WAY)
    (out / _UNDER_WAY).rename(out / DONE)


def _rows(out: Path, part: int, first: int) -> int:
    """Return how many people a part without a mark has, having read all of it."""
    people, ways = people_of(out, part), options_of(out, part)
    rows: list[int] = people["row_id"].to_pylist()
    here = set(range(first, first + len(rows)))
    if set(rows) != here or not here.issuperset(ways["row_id"].to_pylist()):
        raise IntegrityError(f"{out / part_name(part)} has rows of another part")
    return len(rows)


def _said(part: int, error: Exception) -> str:
    return f"part {part} has to be done again: {str(error).removesuffix(f': {AGAIN}')}"
