"""Every error Waysout raises on purpose.

Each says what was wrong, the value, and the remedy. The command line prints the message without a
traceback and leaves with the class's exit code.

    WaysoutError (1)
    ├── InputError (3)            something the user gave us
    │   ├── SchemaError           the description of a feature is impossible
    │   ├── RowError              a row does not fit its schema (knows row and column)
    │   ├── RuleError             a rule that can never work, or a custom rule that failed
    │   ├── CardError             a card that cannot be read (knows file and line)
    │   └── TableError            a table that cannot be read
    ├── OracleError (4)           the model cannot be loaded, asked or trusted
    │   └── OracleTimeout         it did not answer within its time
    ├── UnavailableError (5)      something is missing on this machine
    │   ├── MissingExtra          a package (says which extra to install)
    │   └── DataUnavailable       a data set (says how to get it)
    ├── IntegrityError (6)        a file is not the one it should be
    ├── BudgetSpent (7)           one more call or row would pass a hard limit
    └── LLMError (8)              the LLM cannot be asked as it is set up
        ├── LLMRefused            it refuses this request, and may answer others
        ├── LLMFailure            no reply came this time: worth another attempt
        └── LLMUnreachable (9)    nothing answers any more: a run stops, and can be resumed

(2 is left to wrong command-line usage and 130 to Ctrl-C, as is customary.)

>>> import waysout
>>> try:
...     waysout.load_dataset("lone")
... except waysout.errors.WaysoutError as error:
...     print(type(error).__name__, "-", str(error).partition(" Known")[0])
InputError - unknown data set 'lone'; did you mean 'loan'?
"""

from __future__ import annotations

import difflib
import re
import sys
import threading
from collections.abc import Iterable, Sequence

__all__ = [
    "BudgetSpent", "CardError", "DataUnavailable", "InputError", "IntegrityError", "LLMError",
    "LLMFailure", "LLMRefused", "LLMUnreachable", "MissingExtra", "OracleError", "OracleTimeout",
    "RowError", "RuleError", "SchemaError", "TableError", "UnavailableError", "WaysoutError",
]  # fmt: skip


class WaysoutError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 1


def is_ctrl_c(error: BaseException) -> bool:
    """Whether the user interrupted us: of all that the code of others raises, only this is ours.

    Python tells the main thread alone. A model or a rule that raises the same elsewhere has failed.
    """
    main = threading.current_thread() is threading.main_thread()
    return main and isinstance(error, KeyboardInterrupt)


class InputError(WaysoutError):
    """Something the user gave us is wrong or inconsistent."""

    exit_code = 3


class SchemaError(InputError):
    """The description of a feature is impossible; knows which of its fields is wrong."""

    def __init__(self, reason: str, *, field: str | None = None) -> None:
        super().__init__(reason)
        self.field = field


class RowError(InputError):
    """A row does not fit its schema."""

    def __init__(self, reason: str, *, column: str | None = None, row: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.column = column
        self.row = row

    def at(self, row: int) -> RowError:
        """Return the same error, naming the zero-based row it was found in."""
        return RowError(self.reason, column=self.column, row=row)

    def __str__(self) -> str:
        where = [] if self.row is None else [f"row {self.row}"]
        where += [] if self.column is None else [f"column {self.column!r}"]
        return f"{', '.join(where)}: {self.reason}" if where else self.reason


class RuleError(InputError):
    """A rule that can never work, or a custom rule that raised an error."""


class CardError(InputError):
    """A card that cannot be read; knows the file and, where possible, the line.

    It is raised for the first problem in the file and carries all that were found.
    """

    def __init__(
        self,
        reason: str,
        *,
        source: str = "card",
        line: int | None = None,
        problems: Sequence[CardError] = (),
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.source = source
        self.line = line
        self.problems = tuple(problems) or (self,)

    def __str__(self) -> str:
        where = self.source if self.line is None else f"{self.source}, line {self.line}"
        others = len(self.problems) - 1
        more = f" (and {others} more: waysout card check {self.source})" if others else ""
        return f"{where}: {self.reason}{more}"


class TableError(InputError):
    """A table that cannot be read."""


class OracleError(WaysoutError):
    """The model cannot be loaded, asked or trusted; knows whether the model itself raised."""

    exit_code = 4

    def __init__(self, reason: str, *, raised: bool = False) -> None:
        super().__init__(reason)
        self.raised = raised


class OracleTimeout(OracleError):
    """The model did not answer in time."""


class UnavailableError(WaysoutError):
    """Something needed is missing on this machine."""

    exit_code = 5


class MissingExtra(UnavailableError):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        # The pip of the running Python: another one would install it elsewhere.
        pip = f"{sys.executable} -m pip"
        super().__init__(f"this needs the package {package!r}: {pip} install 'waysout[{extra}]'")
        self.package = package
        self.extra = extra

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        """Pickle by the arguments: the error may come from another process."""
        return type(self), (self.package, self.extra)


class DataUnavailable(UnavailableError):
    """A data set is neither here nor fetchable."""


class IntegrityError(WaysoutError):
    """A file is not the one it should be."""

    exit_code = 6


class BudgetSpent(WaysoutError):
    """One more call or row would pass a hard limit."""

    exit_code = 7


class LLMError(WaysoutError):
    """The LLM cannot be asked as it is set up: a wrong key, model, address or parameter."""

    exit_code = 8


class LLMFailure(LLMError):
    """No reply came this time, and another attempt may help.

    ``alive`` means that a server answered, if only to put us off; ``retry_after`` for how long.
    """

    def __init__(
        self, reason: str, *, alive: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(reason)
        self.alive = alive or retry_after is not None
        self.retry_after = retry_after


class LLMRefused(LLMError):
    """The server refuses this request, for example as too long; others may be answered."""


class LLMUnreachable(LLMError):
    """Nothing answers any more. What was found so far is kept, and a run can be resumed."""

    exit_code = 9


def shown(raw: object, longest: int = 60) -> str:
    """Format any value for a message, shortened; never fails.

    >>> shown("a" * 100, 10), shown(10**5000)
    ("'aaaaaaaa…", 'a number of thousands of digits')
    """
    try:
        text = repr(raw)
    except ValueError:  # Python refuses to write out very long integers
        return "a number of thousands of digits"
    except RecursionError:
        return f"a {type(raw).__name__} of hundreds of levels"
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def unknown(what: str, name: object, known: Iterable[object]) -> str:
    """Say that a name is unknown, suggest the nearest known one and list the others.

    >>> unknown("feature", "incme", ["age", "income"])
    "unknown feature 'incme'; did you mean 'income'? Known: 'age', 'income'"
    >>> unknown("feature", "CapitalGain", ["age", "capital-gain"])
    "unknown feature 'CapitalGain'; did you mean 'capital-gain'? Known: 'age', 'capital-gain'"
    """
    names = [str(k) for k in known]
    asked = name if isinstance(name, str) else shown(name)
    near = nearest(asked, names)
    hint = "." if near is None else f"; did you mean {near!r}?"
    listed = ", ".join(repr(n) for n in names[:20]) + (", …" if len(names) > 20 else "")
    return f"unknown {what} {shown(asked)}{hint} Known: {listed or 'none'}"


def nearest(asked: str, names: Sequence[str]) -> str | None:
    """Return the known name that was most likely meant: whatever its case, spaces and hyphens.

    >>> nearest("Capital Gain", ["capital-loss", "capital-gain"])
    'capital-gain'
    """
    wanted = _folded(asked)
    if not wanted:
        return None
    # Several may differ from it in those alone: the one that is spelt most alike was meant.
    same = [name for name in names if _folded(name) == wanted]
    if same:
        return max(same, key=lambda name: difflib.SequenceMatcher(a=asked, b=name).ratio())
    # Looking for near misses among thousands of names takes seconds, and lists nothing useful.
    folded: dict[str, str] = {}
    for name in names[:1000]:
        folded.setdefault(_folded(name), name)
    found = [folded[name] for name in difflib.get_close_matches(wanted[:60], folded)]
    return max(found, key=lambda name: _likeness(asked[:60], name), default=None)


def _likeness(asked: str, name: str) -> float:
    return difflib.SequenceMatcher(a=asked.casefold(), b=name.casefold()).ratio()


def _folded(name: str) -> str:
    """Return a name without its case, and without what only separates its words."""
    return re.sub(r"[\s_-]+", "", name.casefold())
