"""The oracle's batcher: rows of many searches share one call to the model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from waysout.domain.oracle import Answers
from waysout.domain.schema import Row

MOST_ROWS = 10_000


class OracleBatcher:
    """Puts the rows of all who wait to the oracle in one batch, in a thread of its own.

    Nobody waits for a batch to fill: while the model works on one, the next one gathers. Desks
    that share a model share a lock: not every model can be asked twice at once.

    Where a batch fails, each of its parts is asked again alone, to find whose fault it was. That is
    no doing of theirs, and stands in nobody's ledger: such a model may be asked more rows than the
    ledgers say.
    """

    def __init__(self, ask: Callable[[Sequence[Row]], Answers], lock: asyncio.Lock) -> None:
        self._ask = ask
        self._lock = lock
        self._waiting: list[tuple[Sequence[Row], asyncio.Future[Answers]]] = []
        self._working: asyncio.Task[None] | None = None

    async def ask(self, rows: Sequence[Row]) -> Answers:
        """Return the answers to some rows; an error of the oracle concerns only who caused it."""
        future: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        self._waiting.append((rows, future))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        while self._waiting:
            batch = self._take()
            try:
                await self._answer(batch)
            except Exception as error:
                if len(batch) == 1:
                    _fail(batch[0][1], error)
                    continue
                for one in batch:
                    await self._answer_alone(one)

    def _take(self) -> list[tuple[Sequence[Row], asyncio.Future[Answers]]]:
        taken, rows = 0, 0
        for asked, _ in self._waiting:
            rows += len(asked)
            if taken and rows > MOST_ROWS:
                break
            taken += 1
        batch, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return batch

    async def _answer_alone(self, one: tuple[Sequence[Row], asyncio.Future[Answers]]) -> None:
        try:
            await self._answer([one])
        except Exception as error:
            _fail(one[1], error)

    async def _answer(self, batch: list[tuple[Sequence[Row], asyncio.Future[Answers]]]) -> None:
        rows = [row for asked, _ in batch for row in asked]
        async with self._lock:
            answers = await asyncio.to_thread(self._ask, rows)
        start = 0
        for asked, future in batch:
            part = slice(start, start + len(asked))
            start = part.stop
            if not future.done():
                future.set_result(Answers(answers.probability[part], answers.decision[part]))


def _fail(future: asyncio.Future[Answers], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
