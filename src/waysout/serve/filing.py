"""What a search of the service files beside its answers: pins, and what the person was shown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from waysout.domain.memory import Past
from waysout.domain.result import ResultData
from waysout.errors import UnavailableError, WaysoutError
from waysout.serve.concurrency import in_thread_apart
from waysout.serve.saved_run import save_pins, save_shown, without_folder

_log = logging.getLogger(__name__)

Rows = Sequence[Mapping[str, Any]]


class Filing:
    """Files things with the run of a search's last part, one after the other."""

    def __init__(self, id: str) -> None:
        self.run: str | None = None
        """The name of the last run, where runs are kept."""
        self.is_of_part = False
        """Whether that is the run of the present part, or of one before."""
        self._id = id
        self._turn = asyncio.Lock()

    async def pins(self, rows: Rows) -> None:
        """File what is pinned, or raise."""
        await self._file(save_pins, rows)

    async def pins_at_last(self, rows: Rows) -> None:
        """File what is pinned as a part ends."""
        await self._unless_it_fails("pins", save_pins, rows)

    async def shown(self, result: ResultData, learned: Past) -> None:
        """File what is shown, whose ledger is that of the part's run, if the part has one."""
        if self.is_of_part:
            await self._unless_it_fails("ways", save_shown, result, learned)

    async def done(self) -> None:
        """Wait until nothing is being filed."""
        async with self._turn:
            pass

    async def _unless_it_fails(self, what: str, save: Callable[..., None], *content: Any) -> None:
        try:
            await self._file(save, *content)
        except WaysoutError as error:
            _log.warning("%s were not filed: %s", what, error)

    async def _file(self, save: Callable[..., None], *content: Any) -> None:
        async with self._turn:
            if self.run is None:
                return
            try:
                await in_thread_apart(save, self.run, *content)
            except WaysoutError as error:
                # Whoever knows a search's id may open it: it is for nobody else, and for no log.
                told = without_folder(error).replace(self._id, "…")
                raise UnavailableError(f"not on file: {told}") from None
