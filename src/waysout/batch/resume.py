"""What a batch believes of its folder: parts that are as they were written, of the same model."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from waysout.batch.driver import BatchEnd
from waysout.batch.marks import (
    AGAIN,
    DONE,
    Mark,
    are_kept,
    batch_of,
    check_part,
    files_of,
    mark_done,
    mark_of,
    marked,
    part_name,
    refuse_folder,
    unmark,
)
from waysout.batch.tables import options_of, people_done, people_of, store_path, written
from waysout.domain.oracle import Oracle
from waysout.domain.schema import Row, Schema
from waysout.errors import IntegrityError, RowError
from waysout.files import file_sha256, private_folder
from waysout.oracles.probe import SAME, ask_each
from waysout.store.lock import is_locked, lock_path
from waysout.store.tables import faults, remove

ASKED_AGAIN = 8
"""Of how many people who are done a model is asked once more when a batch is resumed."""
_UNDER_WAY = "_done.new"


def check_parts(out: Path, part_rows: int, rows: int, tell: Callable[[str], None]) -> None:
    """Take back that a part is done where its files are not what was written, and say so.

    The table has so many ``rows``. It costs one pass over the files that are done.
    """
    with faults(out):
        if not are_kept(out):
            _adopt(out, part_rows, tell)
        for part in marked(out):
            if part * part_rows >= rows:
                unmark(out, part)
                tell(f"{out / part_name(part)} is of another batch, with a longer table: remove it")
                continue
            try:
                check_part(out, part)
            except IntegrityError as error:
                unmark(out, part)
                for name in files_of(part):
                    refuse_folder(out / name)
                tell(_said(part, error))


def check_end(
    out: Path, part_rows: int, rows: int, ended: BatchEnd, tell: Callable[[str], None]
) -> BatchEnd:
    """Return how a batch has ended, by what is on file of its ``rows``.

    Workers say what they have done in processes that a model may have changed.
    """
    if ended.stopped or ended.left:
        return ended
    firsts = range(0, rows, part_rows)
    lacking = [
        part
        for part, first in enumerate(firsts)
        if (people_done(out, part) or 0) < min(part_rows, rows - first)
    ]
    if lacking:
        said = "not everybody who was said to be done is on file"
        return replace(ended, left=len(lacking), stopped=said, exit_code=IntegrityError.exit_code)
    done = set(marked(out))
    for part in written(out):
        if part not in done:
            path = out / part_name(part)
            tell(f"{path} is of no part that is done, and whoever reads the folder reads it: "
                 "remove it")  # fmt: skip
    return ended


def sweep_stores(out: Path) -> None:
    """Remove the stores of parts that are done, but for those that are to stay.

    A worker that was killed had no time for it; one that still runs has.
    """
    with faults(out):
        for part in marked(out):
            mark, store = mark_of(out, part), store_path(out, part)
            if mark is not None and not mark.keeps_store and not is_locked(store):
                remove(store)
                lock_path(store).unlink(missing_ok=True)


def check_model(
    out: Path,
    part_rows: int,
    oracle: Oracle,
    schema: Schema,
    sample: Sequence[tuple[int, Mapping[str, Any]]],
    turn: int,
) -> int:
    """Raise unless a model still gives what it gave people who are done; return the rows asked.

    A model's file has a digest in the manifest. A function and a server have only their name, and
    ways of two models in one folder are of no use. ``sample`` are people of the table with their
    numbers; another ``turn`` asks about others of them.
    """
    done = set(marked(out))
    numbered = [(i, record) for i, record in sample if i // part_rows in done]
    count = min(ASKED_AGAIN, len(numbered))
    places = sorted({(turn + k * len(numbered) // count) % len(numbered) for k in range(count)})
    before = _probabilities(out, {numbered[place][0] // part_rows for place in places})
    rows: dict[int, Row] = {}
    for i, record in (numbered[place] for place in places):
        if before.get(i) is not None:  # or this row failed then
            with suppress(RowError):
                rows[i] = schema.parse(record)
    if not rows:
        return 0
    answers, answered, _, asked = ask_each(oracle, list(rows.values()))
    for place, now in zip(answered.tolist(), answers.probability.tolist(), strict=True):
        i = list(rows)[place]
        if abs(now - before[i]) > SAME:
            raise IntegrityError(
                f"{oracle.name} is not the model of the batch in {out}: for row {i} it gives "
                f"{now:.6g}, not {before[i]:.6g}. Resume with the model of that batch, or give a "
                "new folder"
            )
    return asked


def _probabilities(out: Path, parts: Iterable[int]) -> dict[int, Any]:
    """Return what the model gave the people of some parts, by their rows."""
    found: dict[int, Any] = {}
    for part in parts:
        table = people_of(out, part, ["row_id", "probability"])
        columns = table["row_id"].to_pylist(), table["probability"].to_pylist()
        found |= zip(*columns, strict=True)
    return found


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
        mark_done(out, part, Mark(rows, digests, True, batch_of(out)), _UNDER_WAY)
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
