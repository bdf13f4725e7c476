"""What one feature does alone, in words.

Models have pockets, so each value that is named was asked, and nothing is said of the others: "from
9,000 on" is only said where values all the way to the limit were asked (see `Tip.goes_on`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from waysout.domain.result import Interval, ResultData, Tip, TipStatus
from waysout.domain.schema import Value
from waysout.report.words import PLAIN_GOAL, Wording, cut, goal_text, listed, shared_words

TITLE = "One change alone, as far as was asked"
_LONGEST = 60
_SEVERAL = 3  # values refused before "not enough up to"; fewer are named

Mark = Callable[[object], str]


def _short(text: object) -> str:
    return cut(str(text), _LONGEST)


@dataclass(frozen=True)
class Alone:
    """One feature moved alone: its name, its present value, and what was answered."""

    feature: str
    name: str
    now: str
    said: str
    status: TipStatus


def alone(
    result: ResultData, wording: Wording, mark: Mark = _short, *, not_asked: bool = False
) -> list[Alone]:
    """Return what each feature does alone: first those that turn the decision, then those in ways.

    What was not asked is left out unless ``not_asked``. ``mark`` makes names and values harmless.
    """
    levers = {name for way in result.ways for name in way.levers}
    found = []
    for feature, tips in result.tipping.items():
        for tip in tips:
            if tip.status is TipStatus.NOT_ASKED and not not_asked:
                continue
            say = _Sayer(result, wording, mark, feature, tip)
            found.append(Alone(feature, say.name, say.now, say.said, tip.status))
    order = list(TipStatus)
    return sorted(found, key=lambda a: (order.index(a.status), a.feature not in levers))


def first_of(found: Sequence[Alone], levers: Collection[str], most: int) -> list[Alone]:
    """Return the few that a person would ask about: what turns the decision, or is in a way."""
    asked = [a for a in found if a.status is TipStatus.TURNS or a.feature in levers]
    asked.sort(key=lambda a: (a.status is not TipStatus.TURNS, a.feature not in levers))
    return asked[:most]


@dataclass(frozen=True)
class _Sayer:
    """Writes what one move of one feature does."""

    result: ResultData
    wording: Wording
    mark: Mark
    feature: str
    tip: Tip

    @property
    def _asked(self) -> tuple[Value, ...]:
        return (*(i.first for i in self.tip.intervals), *self.tip.refused)

    @property
    def _group(self) -> tuple[str, ...]:
        """The features of a one-hot group that are known: its values are features."""
        names = tuple(v for v in self._asked if isinstance(v, str) and v in self.result.query)
        is_level = self.wording.is_level(self.feature, self.result.query.get(self.feature))
        all_names = len(names) == len(self._asked) > 0
        if self.tip.move != "to" or is_level or not all_names:
            return ()
        return (self.feature, *names)

    @property
    def name(self) -> str:
        """The name; of a one-hot group, what the names of its features begin with."""
        return self.mark(self.wording.name(self._shared or self.feature))

    @property
    def _shared(self) -> str:
        """The words that all names of a one-hot group begin with."""
        return shared_words(self._group)

    @property
    def now(self) -> str:
        """The present value."""
        query = self.result.query
        if self._group:
            # The one that is set may not be among those that were asked.
            start = f"{self._shared}_" if self._shared else ""
            group = [name for name in query if start and name.startswith(start)] or self._group
            on = [name for name in group if self.wording.is_on(name, query.get(name))]
            return self.mark(self.wording.name(on[0])) if on else ""
        return self.mark(self.wording.value(self.feature, query.get(self.feature)))

    @property
    def _is_plain(self) -> bool:
        """Whether the model's own yes was asked for, and not a probability."""
        return goal_text(self.result.settings.get("goal")) == PLAIN_GOAL

    @property
    def said(self) -> str:
        """What was answered."""
        if self.tip.move == "to":
            return self._levels()
        if self.tip.status is TipStatus.TURNS:
            yes = "a yes" if self._is_plain else "enough"
            return f"{yes} {listed([self._interval(i) for i in self.tip.intervals])}"
        refused = self.tip.refused
        end = f"{'down' if self.tip.move == 'down' else 'up'} to"
        if not refused:
            return f"not asked ({end} {self._value(self.tip.limit)})"
        texts = self.wording.values(self.feature, *refused)
        last = self.mark(self.wording.with_unit(self.feature, texts[-1], refused[-1]))
        if len(refused) >= _SEVERAL:
            return f"not enough {end} {last}"
        few = [*map(self.mark, texts[:-1]), last]
        return _not_enough(few) if isinstance(refused[-1], str) else f"not enough at {listed(few)}"

    def _value(self, value: Value) -> str:
        return self.mark(self.wording.value(self.feature, value))

    def _interval(self, found: Interval) -> str:
        # The present value is a no as well, but nobody asked about it here.
        nearer = found.before != self.result.query.get(self.feature)
        around = [found.before] * nearer + [found.after] * (found.after is not None)
        texts = self.wording.values(self.feature, found.first, found.last, *around)
        first, last = (
            self.mark(self.wording.with_unit(self.feature, text, value))
            for text, value in zip(texts, (found.first, found.last), strict=False)
        )
        refused = [self.mark(text) for text in texts[2:]]
        if self.tip.goes_on:
            where = f"from {first} {'down' if self.tip.move == 'down' else 'on'}"
        elif found.asked == 1:
            where = f"{'with' if isinstance(found.first, str) else 'at'} {first}"
        else:
            where = f"from {self.mark(texts[0])} to {last}"
        verb, no = "is" if len(refused) == 1 else "are", "a no" if self._is_plain else "not"
        notes = [f"{listed(refused)} {verb} {no}"] if refused else []
        if not found.sharp:
            notes.append("nothing between was asked" if nearer else "nothing nearer was asked")
        return f"{where} ({'; '.join(notes)})" if notes else where

    def _levels(self) -> str:
        """Say which of the values without an order are enough."""

        def written(values: Sequence[Value]) -> list[str]:
            if self._group:
                return [self.mark(self.wording.name(str(value))) for value in values]
            return [self._value(value) for value in values]

        enough = written([i.first for i in self.tip.intervals])
        refused = written(self.tip.refused)
        parts = [_enough(enough)] if enough else []
        parts += [_not_enough(refused)] if refused else []
        if self.tip.status is TipStatus.NOT_ASKED:
            parts.append("the others were not asked" if refused else "not asked")
        return "; ".join(parts)


def _enough(texts: Sequence[str]) -> str:
    return f"{listed(texts)} {'is' if len(texts) == 1 else 'are'} enough"


def _not_enough(texts: Sequence[str]) -> str:
    return f"{listed(texts)} {'is' if len(texts) == 1 else 'are'} not enough"
