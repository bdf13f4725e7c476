"""Writes the files of a part, as a worker does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from waysout.batch.job import PartTask
from waysout.batch.tables import Contents, PartRows
from waysout.domain.result import ResultData
from waysout.domain.schema import Schema


def write_part(
    out: Path,
    task: PartTask,
    schema: Schema,
    columns: Sequence[str],
    results: Sequence[ResultData],
    contents: Contents = Contents.WAYS,
    *,
    keeps_store: bool = False,
) -> None:
    """Write the files of a part, given one result for each of its rows, in any order."""
    rows = PartRows(schema, columns, contents)
    for result in results:
        rows.add(task.rows[result.index - task.first], result)
    rows.write(out, task.part, keeps_store=keeps_store)
