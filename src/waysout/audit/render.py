"""An audit as Markdown, as one tidy table in CSV, and as JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from waysout.audit.figures import Audit, Group, Section
from waysout.audit.stats import Interval, Spread
from waysout.audit.words import (
    AuditTable,
    lead,
    notes,
    sections,
    simulated_note,
    source,
    tables,
    title,
)
from waysout.errors import InputError, unknown
from waysout.report.tables import defused
from waysout.report.words import clean, cut

FORMATS = ("markdown", "csv", "html", "json")
_LONGEST = 60
_TIDY = ("by", "group", "few", "figure", "of", "value", "low", "high", "llm")
Line = tuple[str, str, float | int | None, float | None, float | None]
"""A figure, what of (a lever, a rule, an outcome), its value, and the interval or the quartiles."""


def render(audit: Audit, format: str, levers: int = 5) -> str:
    """Return an audit as text; ``levers`` are so many of each group at most, but in CSV and JSON.

    Those have all.
    """
    if format == "markdown":
        return _markdown(audit, levers)
    if format == "csv":
        return _csv(audit)
    if format == "html":
        from waysout.audit.page import page

        return page(audit, levers)
    if format == "json":
        return json.dumps(audit.as_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    raise InputError(unknown("format", format, FORMATS))


# Markdown --------------------------------------------------------------------------------------


def _markdown(audit: Audit, levers: int) -> str:
    parts = [f"# {_inert(title(audit))}", _inert(lead(audit))]
    parts += [_inert(told) for told in (simulated_note(audit), source(audit)) if told]
    parts += [_rows(table) for section in sections(audit) for table in tables(section, levers)]
    parts += ["## To read this", "\n".join(f"- {_inert(note)}" for note in notes(audit))]
    return "\n\n".join(parts) + "\n"


def _rows(table: AuditTable) -> str:
    columns = [column or "people" for column in table.columns]
    head = [_line(columns), "|" + "---|" * len(columns)]
    return "\n".join([f"## {_inert(table.title)}", "", *head, *map(_line, table.rows)])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(_inert(cut(clean(cell), _LONGEST)) for cell in cells)} |"


def _inert(text: str) -> str:
    """Return untrusted text that is no markup.

    >>> _inert("a|b <i> [x](y) *")
    'a\\\\|b &lt;i&gt; \\\\[x\\\\](y) \\\\*'
    """
    plain = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{c}" if c in "\\`*_[]|#~" else c for c in plain)


# CSV -------------------------------------------------------------------------------------------


def _csv(audit: Audit) -> str:
    """Return all figures, one in a row; text that a spreadsheet would run is made harmless."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(_TIDY)
    everybody = Section((), (audit.everybody,), {}, 0)
    for section in (everybody, *audit.sections):
        for group in section.groups:
            whose = (section.name, group.name)
            for figure, of, *values in _figures(group):
                few = group.few_costs if figure in _OF_THE_LUCKY else group.few
                row: list[Any] = [*whose, few, figure, of, *values, source(audit)]
                writer.writerow([defused(cell) for cell in row])
    return out.getvalue()


_OF_THE_LUCKY = (
    "cost", "cost_difference", "changes", "fewest_changes", "options", "lever_nearest",
    "lever_alone", "lever_some",
)  # fmt: skip
_PLAIN = (
    "people", "approved", "approval_rate", "with_way_out", "without", "changes", "fewest_changes",
    "options", "chance", "llm_calls",
)  # fmt: skip


def _figures(group: Group) -> Iterator[Line]:
    for name in _PLAIN:
        yield name, "", getattr(group, name), None, None
    for name in ("share_without", "share_difference", "cost_difference", "cost"):
        yield name, "", *_three(getattr(group, name))
    counts = {
        "outcome": group.outcomes, "why_without": group.why_without, "binding": group.binding,
    }  # fmt: skip
    for name, table in counts.items():
        for of, count in table.items():
            yield name, str(of), count, None, None
    for lever in group.levers:
        for name in ("nearest", "alone", "some"):
            share = getattr(lever, name) / group.with_way_out
            yield f"lever_{name}", lever.name, share, None, None


def _three(told: Interval | Spread | None) -> tuple[float | None, float | None, float | None]:
    if told is None:
        return None, None, None
    return told.median if isinstance(told, Spread) else told.value, told.low, told.high
