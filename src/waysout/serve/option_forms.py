"""Options and ways as JSON, with what a page needs besides: an id, a title, how far numbers go."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from waysout.domain.problem import Problem
from waysout.domain.result import Option, Safer, Way, plain
from waysout.domain.schema import Row, Value
from waysout.domain.tipping import DOWN, UP, Line
from waysout.domain.ways import Checks
from waysout.report.advice import plan_words
from waysout.report.words import Wording, capital
from waysout.run.plan import wording

if TYPE_CHECKING:
    from waysout.serve.pins import Pin

_NO_REACH: Mapping[str, Any] = {"limit": None, "share": None}


def option_id(row: Mapping[str, Value]) -> str:
    """Return a short id of a row in the table's spelling: the same in each part and each run.

    >>> option_id({"income": 4000}) == option_id({"income": 4000}) != option_id({"income": 4001})
    True
    """
    text = json.dumps(plain(dict(row)), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


class OptionForms:
    """Writes the options of one query within some rules."""

    def __init__(self, problem: Problem, query: Row) -> None:
        self._checks = Checks(problem, query)
        self._wording = Wording(wording(problem.schema))
        # The end of a lever is looked for once: a rule on several features may stop it anywhere.
        self._line = cache(lambda name, move: Line(self._checks, name, move))

    def form(self, option: Option) -> dict[str, Any]:
        """Return an option, or a way with its variants."""
        told = {**option.as_dict(), **self._more(option)}
        if isinstance(option, Way):
            told["variants"] = [self.form(variant) for variant in option.variants]
            told["safer"] = [self.form(safer) for safer in option.safer]
        return told

    def pin(self, pin: Pin) -> dict[str, Any]:
        """Return an option that is kept at hand; of a way, only the option that it is."""
        return {
            **Option.as_dict(pin.option),
            **self._more(pin.option),
            "own": pin.own,
            "carried_on": isinstance(pin.option, Safer),
        }

    def _more(self, option: Option) -> dict[str, Any]:
        title = plan_words(option, self._wording) if option.changes else ""
        return {
            "id": option_id(option.row),
            "title": capital(title),
            "reach": self._reach(option),
        }

    def _reach(self, option: Option) -> dict[str, Mapping[str, Any]]:
        """Return for each change how far along the allowed range it goes."""
        spans = self._checks.numbers(self._checks.problem.row(option.row))
        return {
            name: self._share(name, *spans[name]) if name in spans else _NO_REACH
            for name in option.changes
        }

    def _share(self, name: str, now: float, there: float) -> Mapping[str, Any]:
        line = self._line(name, UP if there > now else DOWN)
        if not line.is_bounded or line.limit is None:
            return _NO_REACH
        share = abs(there - now) / abs(line.at(line.limit) - now)
        return {"limit": line.told(line.limit), "share": share}
