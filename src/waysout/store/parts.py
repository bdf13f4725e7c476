"""Several stores as one, each with the people of its part of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from waysout.domain.budget import Spent
from waysout.domain.oracle import Answers
from waysout.domain.result import Option, ResultData
from waysout.domain.schema import Row, Value
from waysout.search.work import Answer, Work
from waysout.store.records import Event, Recorded
from waysout.store.store import Store


class PartStores:
    """Files each person's answers in the store of their part; one `Store` to who drives searches.

    Parts come and go. What concerns nobody in particular is filed nowhere.
    """

    def __init__(self) -> None:
        self._of: dict[int, Store] = {}

    def attach(self, store: Store, indices: Iterable[int]) -> None:
        """File these people in this store from now on."""
        self._of |= dict.fromkeys(indices, store)

    def detach(self, indices: Iterable[int]) -> None:
        """Forget these people; whoever opened their store closes it."""
        for index in indices:
            self._of.pop(index, None)

    # As of a `Store` ---------------------------------------------------------------------------

    def add_query(self, index: int, query: Mapping[str, Value]) -> None:
        """See `Store.add_query`."""
        self._of[index].add_query(index, query)

    def record(
        self, index: int, asked: int, work: Work, answer: Answer, spent: Spent, *, model: str = ""
    ) -> None:
        """See `Store.record`."""
        self._of[index].record(index, asked, work, answer, spent, model=model)

    def record_setup(
        self, index: int, what: str, rows: Sequence[Row], answers: Answers, spent: Spent
    ) -> None:
        """See `Store.record_setup`."""
        self._of[index].record_setup(index, what, rows, answers, spent)

    def options_found(self, index: int, options: Sequence[Option]) -> None:
        """See `Store.options_found`."""
        self._of[index].options_found(index, options)

    def finish(self, index: int, result: ResultData) -> None:
        """See `Store.finish`."""
        self._of[index].finish(index, result)

    def event(self, kind: str, detail: Mapping[str, Any], index: int | None = None) -> None:
        """See `Store.event`."""
        if index is not None:
            self._of[index].event(kind, detail, index)

    def expect(self, queries: int) -> None:
        """See `Store.expect`; of parts, whoever hands them out knows."""

    def answers(self, index: int) -> Iterator[Recorded]:
        """See `Store.answers`."""
        return self._of[index].answers(index)

    def setup(self, index: int) -> Iterator[Answers]:
        """See `Store.setup`."""
        return self._of[index].setup(index)

    def spent(self, index: int) -> Spent:
        """See `Store.spent`."""
        return self._of[index].spent(index)

    def finished(self, index: int) -> ResultData | None:
        """See `Store.finished`."""
        return self._of[index].finished(index)

    def partial(self, index: int) -> ResultData | None:
        """See `Store.partial`."""
        return self._of[index].partial(index)

    def events(self, index: int | None = None) -> Iterator[Event]:
        """See `Store.events`."""
        if index is not None:
            return self._of[index].events(index)
        return chain.from_iterable(store.events() for store in dict.fromkeys(self._of.values()))
