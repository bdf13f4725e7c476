"""The results of many people together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, overload

from waysout.report.result import Result, one_table, to_csv
from waysout.report.words import counted, listed


class Results(Sequence[Result]):
    """The results of many people, in their order: a list that also gives one table of all ways."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._results = tuple(results)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> Result | Results:
        found = self._results[index]
        return found if isinstance(found, Result) else Results(found)

    def __len__(self) -> int:
        return len(self._results)

    def to_frame(self, *, all_options: bool = False, all_features: bool = False) -> Any:
        """Return a row for each way of each person, with the person's position in ``query``.

        The frame is of the user's kind, as that of one `Result` is.
        """
        from waysout.report.frames import frame_of

        found = [result for result in self if result.options]
        names, rows = one_table(found, all_options, all_features)
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        like = found[0].like if found else None
        return frame_of(dict(zip(names, columns, strict=True)), like)

    def to_csv(self, path: str | Path | None = None, *, all_options: bool = False) -> str | None:
        """Write the table of all ways as CSV (UTF-8), or return it as text."""
        text = to_csv(self, all_options=all_options)
        if path is None:
            return text
        Path(path).write_text(text, encoding="utf-8", errors="replace", newline="")
        return None

    def _repr_html_(self) -> str:
        frame = self.to_frame()
        table = frame.to_html(index=False, max_rows=60) if hasattr(frame, "to_html") else ""
        return f"<p>{escape(str(self))}</p>{table}"

    def __str__(self) -> str:
        ended = Counter(str(result.outcome.kind).replace("_", " ") for result in self)
        ways = sum(len(result.ways) for result in self)
        told = listed([f"{count} {kind}" for kind, count in ended.most_common()]) if ended else "-"
        return f"{counted(len(self), 'person', 'people')}: {told}; {counted(ways, 'way')} in all"

    def __repr__(self) -> str:
        return f"<Results of {self}>"
