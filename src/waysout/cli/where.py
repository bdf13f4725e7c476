"""The condition of ``--where``: what pandas calls a query, over the cells of a table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from waysout.domain.schema import MISSING_TOKENS
from waysout.errors import InputError, shown, unknown

if TYPE_CHECKING:
    import pandas as pd

    from waysout.datasets.table import Table

_EXAMPLE = "race == 'Asian' and (age > 50 or `home state` in ['NY', 'NJ'])"


def rows_where(table: Table, text: str) -> list[int]:
    """Return the numbers of the rows that meet a condition, or say what is wrong with it."""
    import pandas as pd

    if "**" in re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "", text):  # one of whole numbers has no end
        raise _unreadable(text, "it has a power")
    frame = pd.DataFrame({name: _column(table, name) for name in table.columns})
    try:
        # Without numexpr, which reads less; and no variables of ours stand behind an @.
        met: Any = frame.eval(text, engine="python", local_dict={}, global_dict={})
    except pd.errors.UndefinedVariableError as error:
        (name,) = re.findall(r"'(.*)'", str(error)) or [text]
        name = name.removeprefix("BACKTICK_QUOTED_STRING_")  # what pandas makes of `a name`
        raise InputError(
            f"{unknown('column', name, table.columns)} (text stands in quotes: '{name}')"
        ) from None
    except Exception as error:  # pandas, Python's own parser and numpy each have theirs
        raise _unreadable(text, str(error).partition("\n")[0][:200]) from None
    if not isinstance(met, pd.Series) or met.dtype != bool:
        raise _unreadable(text, "it is no yes or no for each row; equality is written ==")
    return [i for i, meets in enumerate(met.tolist()) if meets]


def _column(table: Table, name: str) -> pd.Series[Any]:
    """Return a column as numbers where all its cells are, as `read_csv` would."""
    import pandas as pd

    cells = [record[name] for record in table.records]
    if all(isinstance(cell, str) for cell in cells):
        cells = [None if str(cell).strip() in MISSING_TOKENS else str(cell).strip()
                 for cell in cells]  # fmt: skip
        numbers = pd.to_numeric(pd.Series(cells, dtype=object), errors="coerce")
        padded = any(re.match(r"0\d", str(cell)) for cell in cells)  # 04759 is no quantity
        if not padded and numbers.notna().sum() == sum(cell is not None for cell in cells):
            return numbers
    column = pd.Series(cells)
    dates = column.dtype == object and type(column.dropna().iloc[:1].max()).__name__ == "date"
    return pd.to_datetime(column) if dates else column


def _unreadable(text: str, why: str) -> InputError:
    return InputError(
        f"cannot read the condition {shown(text, 200)}: {why}. Write it as {_EXAMPLE}"
    )
