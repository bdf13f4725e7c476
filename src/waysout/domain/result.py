"""What comes out of a search: options, how it ended and why, what was spent. Data only.

JSON is written and read here, with a version; frames, pages and letters are made from it elsewhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Any, Self

from waysout.domain.budget import Spent
from waysout.domain.rules import Violation
from waysout.domain.schema import LARGEST, Value
from waysout.errors import InputError, shown
from waysout.json_text import read_json

VERSION = 1


class OutcomeKind(StrEnum):
    """How a search can end; each is its text.

    >>> import waysout
    >>> waysout.OutcomeKind.FOUND == "found"
    True
    """

    FOUND = "found"
    ALREADY_APPROVED = "already-approved"
    INFEASIBLE = "infeasible"
    BUDGET_SPENT = "budget-spent"
    EXHAUSTED = "exhausted"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True)
class Outcome:
    """How a search ended, and why in one sentence.

    ``binding`` names the rules that leave no way out; ``best_probability`` is the nearest the
    search came when it found nothing.

    >>> import waysout
    >>> data = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["credit_score"] / 1400, data.card)
    >>> problem = waysout.Problem.from_card(data.card, oracle, training=data.rows)
    >>> outcome = waysout.find(problem, data.rows[828], oracle_rows=40).outcome
    >>> str(outcome.kind), outcome.reason
    ('found', 'all 40 oracle rows are spent')
    """

    kind: OutcomeKind
    reason: str = ""
    binding: tuple[Violation, ...] = ()
    best_probability: float | None = None


@dataclass(frozen=True)
class Option:
    """A validated counterfactual (or, among the near misses, one that was not approved).

    ``stable`` says whether it was approved again when it was asked a second time; ``None`` where it
    was not asked again.

    >>> import waysout
    >>> data = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["credit_score"] / 1400, data.card)
    >>> problem = waysout.Problem.from_card(data.card, oracle, training=data.rows)
    >>> option = waysout.find(problem, data.rows[828], oracle_rows=40).pick(1)[0]
    >>> before, after = option.changes["credit_score"]
    >>> before, after >= 700, option.probability == after / 1400
    (647, True, True)
    """

    row: Mapping[str, Value]
    changes: Mapping[str, tuple[Value, Value]]
    probability: float
    proximity: float
    sparsity: int
    key: str
    reasons: tuple[str, ...] = ()
    stable: bool | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "row": dict(self.row),
            "changes": {name: list(pair) for name, pair in self.changes.items()},
            "probability": self.probability,
            "proximity": self.proximity,
            "sparsity": self.sparsity,
            "key": self.key,
            "reasons": list(self.reasons),
            "stable": self.stable,
        }

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Option:
        """Read what `as_dict` wrote."""
        return cls(
            row=_values(table["row"]),
            changes={
                name: (_value(name, pair[0]), _value(name, pair[1]))
                for name, pair in table["changes"].items()
            },
            probability=_number(table["probability"]),
            proximity=_number(table["proximity"]),
            sparsity=int(_number(table["sparsity"])),
            key=str(table["key"]),
            reasons=tuple(str(reason) for reason in table["reasons"]),
            stable=_flag(table["stable"]),
        )


class Standing(IntEnum):
    """How an option stands that cannot be shorter, as far as was asked; the best is the least."""

    SOUND = 0
    """It holds and is irreducible."""
    OPEN = 1
    """Not everything was asked."""
    POCKET = 2
    """It does not hold."""

    @classmethod
    def of(cls, holds: bool | None, irreducible: bool | None) -> Standing:
        """Return the standing that what is known gives."""
        if holds is False:
            return cls.POCKET
        return cls.SOUND if holds and irreducible else cls.OPEN


@dataclass(frozen=True)
class Safer(Option):
    """A way pushed farther, to a chance of at least ``at_least``."""

    at_least: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**super().as_dict(), "at_least": self.at_least}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Safer:
        """Read what `as_dict` wrote."""
        return cls(**vars(Option.from_dict(table)), at_least=_number(table["at_least"]))


@dataclass(frozen=True)
class Way(Option):
    """An option that a person is shown: the cheapest for its levers (see `waysout.domain.ways`).

    ``irreducible``: no change can be left out. ``tight``: nor can a number be walked back by a
    tenth. ``holds``: it is still a yes 10 % and 50 % farther. Each is ``None`` where the rows did
    not reach to know it. ``variants`` are other levels, directions and values for its levers;
    ``safer`` is the cheapest known that goes at least as far, for each higher chance asked for.
    """

    levers: tuple[str, ...] = ()
    cost: float = 0.0
    irreducible: bool | None = None
    tight: bool | None = None
    holds: bool | None = None
    variants: tuple[Option, ...] = ()
    safer: tuple[Safer, ...] = ()

    @property
    def standing(self) -> Standing:
        """How good it is, as far as that was asked."""
        return Standing.of(self.holds, self.irreducible)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            **super().as_dict(),
            "levers": list(self.levers),
            "cost": self.cost,
            "irreducible": self.irreducible,
            "tight": self.tight,
            "holds": self.holds,
            "variants": [variant.as_dict() for variant in self.variants],
            "safer": [safer.as_dict() for safer in self.safer],
        }

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Way:
        """Read what `as_dict` wrote."""
        return cls(
            **vars(Option.from_dict(table)),
            levers=tuple(map(str, table["levers"])),
            cost=_finite(table["cost"]),
            irreducible=_flag(table["irreducible"]),
            tight=_flag(table["tight"]),
            holds=_flag(table["holds"]),
            variants=tuple(map(Option.from_dict, table["variants"])),
            # The first release with ways had none.
            safer=tuple(map(Safer.from_dict, table.get("safer", ()))),
        )


# Tipping points ----------------------------------------------------------------------------------


class TipStatus(StrEnum):
    """What is known of one lever alone."""

    TURNS = "turns"
    NOT_UP_TO = "not_up_to"
    """All that was asked was refused, the farthest value included."""
    NOT_ASKED = "not_asked"
    """No value that was asked turns the decision, and the farthest was not asked."""


@dataclass(frozen=True)
class Interval:
    """Values of one lever that were asked and all turn the decision, with no refusal between.

    ``asked`` of them were asked, ``first`` and ``last`` included. ``before`` and ``after`` are the
    nearest values short of it and beyond it that were refused (the present one counts); ``None``
    where there is none. It is ``sharp`` if no more than a tenth of the way lies between ``before``
    and ``first``.
    """

    first: Value
    last: Value
    asked: int
    before: Value = None
    after: Value = None
    sharp: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "from": self.first,
            "to": self.last,
            "asked": self.asked,
            "before": self.before,
            "after": self.after,
            "sharp": self.sharp,
        }

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Interval:
        """Read what `as_dict` wrote."""
        first, last, before, after = (
            _value(name, table[name]) for name in ("from", "to", "before", "after")
        )
        return cls(first, last, int(_number(table["asked"])), before, after, bool(table["sharp"]))


@dataclass(frozen=True)
class Tip:
    """What one lever does alone: ``up``, ``down``, or, where its values have no order, ``to``.

    ``limit`` is the farthest value found that the rules allow; ``refused`` are the values that were
    asked and refused. It ``goes_on`` if its only interval was asked often enough, and up to the
    limit, to say "from here on". All this goes by what was asked and by nothing else: models have
    pockets.
    """

    move: str
    status: TipStatus
    intervals: tuple[Interval, ...] = ()
    refused: tuple[Value, ...] = ()
    limit: Value = None
    goes_on: bool = False

    def rewritten(self, write: Callable[[Value], Value]) -> Tip:
        """Return the same with each value written another way."""
        intervals = (
            replace(i, first=write(i.first), last=write(i.last), before=write(i.before),
                    after=write(i.after))
            for i in self.intervals
        )  # fmt: skip
        refused = tuple(map(write, self.refused))
        return replace(self, intervals=tuple(intervals), refused=refused, limit=write(self.limit))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "move": self.move,
            "status": str(self.status),
            "intervals": [interval.as_dict() for interval in self.intervals],
            "refused": list(self.refused),
            "limit": self.limit,
            "goes_on": self.goes_on,
        }

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Tip:
        """Read what `as_dict` wrote."""
        status = TipStatus(table["status"])
        intervals = tuple(map(Interval.from_dict, table["intervals"]))
        if (status is TipStatus.TURNS) != bool(intervals):
            raise ValueError(f"a tipping point that {status} has {len(intervals)} intervals")
        return cls(
            move=str(table["move"]),
            status=status,
            intervals=intervals,
            refused=tuple(_value("refused", value) for value in table["refused"]),
            limit=_value("limit", table["limit"]),
            goes_on=bool(table["goes_on"]),
        )


@dataclass(frozen=True)
class ResultData:
    """The result of a search for one query.

    ``ways`` are the plans to show a person, best first; ``options`` all that was found, one for
    each key; ``tipping`` tells what each lever does alone. ``index`` is the query's position in its
    batch. ``rejections`` counts what was proposed and never became a candidate, by cause.
    ``notes`` say what a reader should know about how the result came about.

    Values of rows, here and in options, are those of the user's table in its own spelling and type;
    results of earlier releases hold the schema's (``True`` for ``Y``), and `Schema.parse` reads
    both.
    """

    query: Mapping[str, Value]
    outcome: Outcome
    options: Sequence[Option] = ()
    near_misses: Sequence[Option] = ()
    ledger: Spent = field(default_factory=Spent)
    metrics: Mapping[str, float | int | None] = field(default_factory=dict)
    rejections: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    index: int = 0
    ways: Sequence[Way] = ()
    tipping: Mapping[str, Sequence[Tip]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    like: Any = field(default=None, repr=False, compare=False)
    """A frame without rows, to make frames like it; it is not stored."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, in the documented order of the JSON contract."""
        return {
            "waysout": VERSION,
            "outcome": str(self.outcome.kind),
            "reason": self.outcome.reason,
            "binding": [
                {"rule": v.rule, "features": list(v.features), "reason": v.reason}
                for v in self.outcome.binding
            ],
            "best_probability": self.outcome.best_probability,
            "query": dict(self.query),
            "ways": [way.as_dict() for way in self.ways],
            "tipping": {
                name: [tip.as_dict() for tip in tips] for name, tips in self.tipping.items()
            },
            "options": [option.as_dict() for option in self.options],
            "near_misses": [option.as_dict() for option in self.near_misses],
            "ledger": self.ledger.as_dict(),
            "metrics": dict(self.metrics),
            "rejections": dict(self.rejections),
            "settings": dict(self.settings),
            "index": self.index,
            "notes": list(self.notes),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Write the result as one JSON document."""
        return json.dumps(plain(self.as_dict()), ensure_ascii=False, indent=indent, allow_nan=False)

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Self:
        """Read what `as_dict` wrote."""
        if table.get("waysout") != VERSION:
            raise InputError(
                f"this result has version {table.get('waysout')!r}; this release reads {VERSION}"
            )
        best = table["best_probability"]
        return cls(
            query=_values(table["query"]),
            outcome=Outcome(
                kind=OutcomeKind(table["outcome"]),
                reason=str(table["reason"]),
                binding=tuple(
                    Violation(str(v["rule"]), tuple(map(str, v["features"])), str(v["reason"]))
                    for v in table["binding"]
                ),
                best_probability=None if best is None else _number(best),
            ),
            options=tuple(Option.from_dict(o) for o in table["options"]),
            near_misses=tuple(Option.from_dict(o) for o in table["near_misses"]),
            ledger=Spent.from_dict(table["ledger"]),
            metrics=dict(table["metrics"]),
            rejections=dict(table["rejections"]),
            settings=dict(table["settings"]),
            index=int(_number(table["index"])),
            # Earlier releases wrote none of these.
            notes=tuple(map(str, table.get("notes", ()))),
            ways=tuple(Way.from_dict(way) for way in table.get("ways", ())),
            tipping={
                str(name): tuple(map(Tip.from_dict, tips))
                for name, tips in table.get("tipping", {}).items()
            },
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote, or raise `InputError` saying what is wrong."""
        try:
            table = read_json(text)
            return cls.from_dict(table)
        except json.JSONDecodeError as error:
            raise InputError(f"not a result: invalid JSON ({error})") from None
        except RecursionError:
            raise InputError("not a result: nested too deeply") from None
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            raise InputError(f"not a result: {error!r}") from None


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _number(value: Any) -> float:
    """Return a number of a result, or raise: a text would only fail much later."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= LARGEST:
        raise TypeError(f"{shown(value)} is not a number")
    return value


def _finite(value: Any) -> float:
    """Return a sum, which may be larger than any value of a row."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError(f"{shown(value)} is not a number")
    return value


def _values(table: Mapping[str, Any]) -> dict[str, Value]:
    """Return a row of a result, or raise where a value is none."""
    return {name: _value(name, value) for name, value in table.items()}


def _value(name: str, value: Any) -> Value:
    if isinstance(value, (str, bool)) or value is None:
        return value
    if not isinstance(value, (int, float)) or not abs(value) <= LARGEST:
        raise TypeError(f"{name!r} is {shown(value)}, which cannot be a value of a row")
    return value


def plain(value: Any) -> Any:
    """Return a value JSON can hold: numpy's as Python's, NaN as null, anything else as text.

    >>> import numpy as np
    >>> plain({"a": np.float64("nan"), "b": (np.int64(1),)})
    {'a': None, 'b': [1]}
    """
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else str(value)
