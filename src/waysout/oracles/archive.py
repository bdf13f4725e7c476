"""Model files that are zip archives: no more of them is unpacked than such a file may hold."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from zipfile import ZipFile

from waysout.errors import OracleError

ROOM, TIMES = 2**27, 16
"""How much a file may unpack to: 128 megabytes, and many times its own size."""
# At once, before it is known whether that is more than was declared. Of some kinds of compression
# a thousand bytes make millions, and there the step is what is read, not what comes out.
_STEP = 2**12


def unpacked(file: Path) -> bytes:
    """Return an archive with nothing in it compressed, which unpacks to what it says and no more.

    A megabyte may hold gigabytes, and Python's own reader looks at the size that an archive
    declares for a part only when it has unpacked it.
    """
    found, most = io.BytesIO(), ROOM + TIMES * file.stat().st_size
    with ZipFile(file) as archive, ZipFile(found, "w") as copy:
        parts = {
            part.filename: part for part in archive.infolist()
        }  # the last one of a name counts
        size = sum(part.file_size for part in parts.values())
        if size > most:
            raise OracleError(
                f"the file unpacks to {size / 2**20:,.0f} MB, and one of its size may have "
                f"{most / 2**20:,.0f}: it is made to do harm, or packed uncommonly well. Save the "
                "model without compression"
            )
        for name, part in parts.items():
            with archive.open(part) as source, copy.open(name, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target, _STEP)
    return found.getvalue()
