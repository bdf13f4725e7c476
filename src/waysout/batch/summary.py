"""What came of a batch, counted from its files: found, empty and why, what it cost."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from waysout.batch.job import BatchTally
from waysout.batch.tables import people
from waysout.domain.result import OutcomeKind, plain
from waysout.files import write_atomically
from waysout.report.tables import defused

SUMMARY = "_summary.json"
FAILED = "_failed.csv"
_SPENT = ("llm_calls", "attempts", "tokens_in", "tokens_out", "cached_tokens", "oracle_rows",
          "setup_rows", "money")  # fmt: skip
_NOT_SEARCHED = (OutcomeKind.ALREADY_APPROVED, OutcomeKind.FAILED)
_REASONS = 10
_DIFFERENT = 1_000


@dataclass
class BatchSummary:
    """A batch in figures. ``empty`` and ``failed`` count reasons; ``rows`` are those to be done.

    ``pilots`` is what a shared library cost on top of the people themselves, ``llm`` who was asked.
    """

    rows: int = 0
    tally: BatchTally = field(default_factory=BatchTally)
    empty: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    pilots: BatchTally = field(default_factory=BatchTally)
    llm: str | None = None

    @property
    def approved(self) -> int:
        """How many were approved already, and skipped."""
        return self.tally.outcomes.get(OutcomeKind.ALREADY_APPROVED, 0)

    @property
    def searched(self) -> int:
        """For how many people ways out were looked for."""
        return self.tally.people - sum(self.tally.outcomes.get(kind, 0) for kind in _NOT_SEARCHED)

    @property
    def found(self) -> int:
        """How many of them have one."""
        return self.tally.outcomes.get(OutcomeKind.FOUND, 0)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        cost = self.tally.as_dict()
        outcomes = cost.pop("outcomes")
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
            "pilots": self.pilots.as_dict(),
            "llm": self.llm,
        }


def summarize(out: Path, rows: int, pilots: BatchTally | None = None) -> BatchSummary:
    """Count what the done parts of a batch hold, and list who failed.

    Where an earlier sitting went further than ``rows``, its rows count.
    """
    summary = BatchSummary(rows, pilots=pilots or BatchTally())
    with io.StringIO(newline="") as failed:
        lines = csv.writer(failed)
        lines.writerow(["row_id", "reason"])
        for table in people(out, ["row_id", "outcome", "reason", "options", *_SPENT]):
            summary.tally += _tally(table)
            lines.writerows(_reasons(summary, table))
        write_atomically(out / FAILED, failed.getvalue().encode())
    summary.rows = max(rows, summary.tally.people)
    return summary


def write_summary(out: Path, summary: BatchSummary) -> None:
    """Write the summary beside the parts."""
    text = json.dumps(plain(summary.as_dict()), ensure_ascii=False, indent=2)
    write_atomically(out / SUMMARY, text.encode())


def _reasons(summary: BatchSummary, table: Any) -> Iterator[tuple[object, ...]]:
    """Count why a part's people have no way out; yields who failed, and why."""
    columns = (table[name].to_pylist() for name in ("row_id", "outcome", "reason"))
    for row, kind, reason in zip(*columns, strict=True):
        if kind == OutcomeKind.FAILED:
            # Whose row it is keeps equal reasons apart.
            _count(summary.failed, re.sub(rf"^row {row}[,:] ", "", reason))
            yield row, defused(reason)
        elif kind not in (OutcomeKind.FOUND, OutcomeKind.ALREADY_APPROVED):
            _count(summary.empty, f"{kind}: {reason}")


def _count(reasons: Counter[str], reason: str) -> None:
    """Count a reason; a million different ones, as of values that are named, are none."""
    reasons[reason if reason in reasons or len(reasons) < _DIFFERENT else "another reason"] += 1


def _tally(table: Any) -> BatchTally:
    """Return the tally of a part's people."""
    outcomes = Counter(table["outcome"].to_pylist())
    sums = {name: sum(table[name].to_pylist()) for name in ("options", *_SPENT)}
    return BatchTally(outcomes, **sums)
