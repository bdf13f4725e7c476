"""The summary of a batch: found, empty and why, what it cost.

It is counted from the files in the end, not summed up on the way: whatever died in between, it is
true.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from waysout.batch.job import BatchTally
from waysout.batch.tables import has_ways, people
from waysout.domain.budget import Spent
from waysout.domain.result import OutcomeKind, plain
from waysout.files import write_atomically
from waysout.report.tables import defused
from waysout.report.words import clean

SUMMARY = "_summary.json"
FAILED = "_failed.csv"
_SPENT = [field.name for field in fields(Spent) if field.name != "seconds"]
_OF_WAYS = ("ways", "approved_rows")
_REASONS = 10
_DIFFERENT = 1_000


@dataclass
class BatchSummary:
    """A batch in figures. ``empty`` and ``failed`` count reasons; ``rows`` are those to be done.

    ``probe_rows`` is what trying the model took, and ``pilots`` what a shared library cost, on top
    of the people themselves. ``before_ways`` says that a release which wrote no ways began the
    folder: how many there are is unknown.
    """

    rows: int = 0
    tally: BatchTally = field(default_factory=BatchTally)
    empty: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    pilots: BatchTally = field(default_factory=BatchTally)
    llm: str | None = None
    probe_rows: int = 0
    before_ways: bool = False

    @property
    def approved(self) -> int:
        """How many people were approved already, and skipped."""
        return self.tally.outcomes.get(OutcomeKind.ALREADY_APPROVED, 0)

    @property
    def searched(self) -> int:
        """How many people were searched for."""
        failed = self.tally.outcomes.get(OutcomeKind.FAILED, 0)
        return self.tally.people - self.approved - failed

    @property
    def found(self) -> int:
        """How many of them have a way out."""
        return self.tally.outcomes.get(OutcomeKind.FOUND, 0)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        cost = self.tally.as_dict()
        outcomes = cost.pop("outcomes")
        if self.before_ways:
            cost |= dict.fromkeys(_OF_WAYS)
        return {
            "rows": self.rows,
            "done": self.tally.people,
            "already_approved": self.approved,
            "searched": self.searched,
            "found": self.found,
            "empty": self.searched - self.found,
            "failed": self.failed.total(),
            "outcomes": outcomes,
            "why_empty": dict(self.empty.most_common(_REASONS)),
            "why_failed": dict(self.failed.most_common(_REASONS)),
            **cost,
            "probe_rows": self.probe_rows,
            "pilots": self.pilots.as_dict(),
            "llm": self.llm,
        }


def summarize(out: Path, rows: int, pilots: BatchTally | None = None) -> BatchSummary:
    """Count what the done parts of a batch hold, and list the rows that failed.

    Where an earlier run went further than ``rows``, its rows count.
    """
    summary = BatchSummary(rows, pilots=pilots or BatchTally(), before_ways=not has_ways(out))
    counted = ("options",) if summary.before_ways else ("options", *_OF_WAYS)
    with io.StringIO(newline="") as failed:
        lines = csv.writer(failed)
        lines.writerow(["row_id", "reason"])
        for table in people(out, ["row_id", "outcome", "reason", *counted, *_SPENT]):
            cells = table.to_pydict()
            spent = Spent(**{name: sum(cells[name]) for name in _SPENT})
            found = {name: sum(cells[name]) for name in counted}
            summary.tally += BatchTally(Counter(cells["outcome"]), spent=spent, **found)
            columns = (cells[name] for name in ("row_id", "outcome", "reason"))
            for row, kind, reason in zip(*columns, strict=True):
                if kind == OutcomeKind.FAILED:
                    # The number of the row would keep equal reasons apart.
                    _count(summary.failed, re.sub(rf"^row {row}[,:] ", "", reason))
                    lines.writerow((row, defused(clean(reason))))
                elif kind not in (OutcomeKind.FOUND, OutcomeKind.ALREADY_APPROVED):
                    _count(summary.empty, f"{kind}: {reason}")
        write_atomically(out / FAILED, failed.getvalue().encode())
    summary.rows = max(rows, summary.tally.people)
    return summary


def write_summary(out: Path, summary: BatchSummary) -> None:
    """Write the summary beside the parts."""
    text = json.dumps(plain(summary.as_dict()), ensure_ascii=False, indent=2)
    write_atomically(out / SUMMARY, text.encode())


def _count(reasons: Counter[str], reason: str) -> None:
    """Count a reason; past a limit of different ones (they may quote values), as another."""
    reasons[reason if reason in reasons or len(reasons) < _DIFFERENT else "another reason"] += 1
