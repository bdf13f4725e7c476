"""JSON that others wrote: a document nested without end is refused as it is read.

Python reads a thousand levels, since 3.13 ten thousand: more than a function that walks along them
has frames for, so that what was read without a fault would end the program later.
"""

from __future__ import annotations

import json
from typing import Any

# More than any document of ours has, or any answer that we understand.
DEEPEST = 100
_NESTED = (dict, list)


def read_json(text: str | bytes, **how: Any) -> Any:
    """Read JSON as `json.loads` does; raise `RecursionError` beyond ``DEEPEST`` levels.

    >>> read_json('{"a": [1]}'), read_json("[" * 100 + "]" * 100) is not None
    ({'a': [1]}, True)
    >>> read_json("[" * 101 + "]" * 101)
    Traceback (most recent call last):
    ...
    RecursionError: nested more than 100 levels deep
    """
    found = json.loads(text, **how)
    level = [found] if isinstance(found, _NESTED) else []
    for _ in range(DEEPEST):
        if not level:
            return found
        inner = (outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [item for items in inner for item in items if isinstance(item, _NESTED)]
    if level:
        raise RecursionError(f"nested more than {DEEPEST} levels deep")
    return found
