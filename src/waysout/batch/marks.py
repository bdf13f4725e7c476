"""Which parts of a batch are done: a mark for each, with the digests of its files.

What is done is believed by a resumed batch and by an audit, so a part's files must still be those
that were written. Parquet's own checksums do not tell: they cover the data of pages, and neither
their headers nor the footer with the schema, the statistics and the number of rows, nor do they
notice that two whole files were swapped. The sha256 of a whole file covers all of that, and costs
one pass over it. Nor does a digest tell that a part was copied from another batch, mark and all: a
mark has the id of its batch, which is in the manifest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waysout.batch.sealed import damaged, read_sealed, read_whole, sealed
from waysout.errors import IntegrityError
from waysout.files import private_folder, sha256, write_atomically

MANIFEST = "_manifest.json"
ID = "id"
"""What tells a batch from all others, drawn when it is begun; earlier releases drew none."""
PEOPLE = "_people"
DONE = "_done"
AGAIN = "run the same waysout batch command again, which does this part again"
_MARK = re.compile(r"part-(\d{6}|[1-9]\d{6,})\.json", re.ASCII)


@dataclass(frozen=True)
class Mark:
    """A part that is done: how many people it has, and the digest of each file, by its path.

    ``keeps_store`` says whether its store is to stay, and ``batch`` is the id of its batch.
    """

    rows: int
    files: Mapping[str, str]
    keeps_store: bool
    batch: str | None


def part_name(part: int) -> str:
    """Return the name of a part's files.

    >>> part_name(7), part_name(12_345_678)
    ('part-000007.parquet', 'part-12345678.parquet')
    """
    return f"part-{part:06d}.parquet"


def files_of(part: int) -> tuple[str, str]:
    """Return the paths of a part's files within the folder: of its people, and of their ways."""
    return f"{PEOPLE}/{part_name(part)}", part_name(part)


def are_kept(out: Path) -> bool:
    """Whether a folder marks its parts; those of earlier releases do not."""
    return (out / DONE).is_dir()


def read_manifest(out: Path, remedy: str) -> dict[str, Any]:
    """Return the manifest in a batch's folder; raise `FileNotFoundError` if there is none."""
    return read_sealed(out / MANIFEST, remedy, since=ID)


def batch_of(out: Path) -> str | None:
    """Return the id of the batch in a folder; None if it has none, or there is no manifest."""
    try:
        found = read_manifest(out, "put back a copy of it").get(ID)
    except FileNotFoundError:
        return None
    return None if found is None else str(found)


def mark_done(out: Path, part: int, mark: Mark, folder: str = DONE) -> None:
    """Mark a part as done."""
    private_folder(out / folder)
    write_atomically(_place(out, part, folder), sealed({"part": part, **vars(mark)}))


def unmark(out: Path, part: int) -> None:
    """Take back that a part is done."""
    remove_file(_place(out, part))


def remove_file(path: Path) -> None:
    """Remove a file of a batch, if it is there."""
    refuse_folder(path)
    path.unlink(missing_ok=True)


def refuse_folder(path: Path) -> None:
    """Raise if there is a folder where a file of a batch belongs: somebody else's may be in it."""
    if path.is_dir():
        raise IntegrityError(
            f"{path} is a folder, and a file of the batch belongs there: move it away, and run the "
            "same waysout batch command again"
        )


def marked(out: Path) -> list[int]:
    """Return the numbers of the parts that are marked as done, in order."""
    names = (_MARK.fullmatch(file.name) for file in (out / DONE).iterdir())
    return sorted(int(match[1]) for match in names if match)


def mark_of(out: Path, part: int) -> Mark | None:
    """Return the mark of a part, or None if it is not done; raise if the mark is damaged."""
    path = _place(out, part)
    try:
        told = read_sealed(path, AGAIN, since="part")
    except FileNotFoundError:
        return None
    if told.get("part") != part:  # the mark of another one
        raise damaged(path, "it is of another part", AGAIN)
    rows, files = told.get("rows"), told.get("files")
    if type(rows) is not int or rows < 0 or not isinstance(files, dict):
        raise damaged(path, "it does not say what the part has", AGAIN)
    return Mark(rows, files, bool(told.get("keeps_store", True)), told.get("batch"))


def read_checked(out: Path, path: Path) -> bytes:
    """Return the bytes of a part's file; raise if they are not those that were written.

    In a folder of an earlier release there is no digest to compare with.
    """
    try:
        data = read_whole(path, AGAIN)
    except FileNotFoundError:
        raise IntegrityError(f"{path} is missing: {AGAIN}") from None
    mark = mark_of(out, int(path.stem.removeprefix("part-"))) if are_kept(out) else None
    if mark is None:
        return data
    if mark.files.get(path.relative_to(out).as_posix()) != sha256(data):
        raise damaged(path, "its bytes are not those written", AGAIN)
    # Without a manifest nobody can tell.
    if (out / MANIFEST).exists() and mark.batch != batch_of(out):
        raise damaged(path, "it is of another batch", AGAIN)
    return data


def check_part(out: Path, part: int) -> None:
    """Raise unless a part is done and both of its files are what was written."""
    for name in files_of(part):
        read_checked(out, out / name)


def _place(out: Path, part: int, folder: str = DONE) -> Path:
    return out / folder / f"part-{part:06d}.json"
