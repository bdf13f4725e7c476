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
from waysout.serve.saved_run import (
    is_on_file,
    save_pins,
    save_settling,
    save_shown,
    without_folder,
)

_log = logging.getLogger(__name__)

Rows = Sequence[Mapping[str, Any]]


class Filing:
    """Files things with the run of a search's last part, one after the other."""

    def __init__(self, id: str) -> None:
        self.run: str | None = None
        """The name of the last run, where runs are kept."""
        self.is_of_part = False
        """Whether that is the run of the present part, or of one before."""
        self._before: str | None = None
        self._id = id
        self._turn = asyncio.Lock()

    def begin(self, run: str) -> None:
        """Take the run of a part that begins; it may be a while until it is made."""
        self._before, self.run, self.is_of_part = self._on_file(), run, True

    async def pins(self, rows: Rows) -> None:
        """File what is pinned, or raise: with the part before, until this one has its run."""
        await self._file(self._on_file(), save_pins, rows)

    async def pins_at_last(self, rows: Rows) -> None:
        """File what is pinned as a part ends."""
        await self._unless_it_fails("pins", self._on_file(), save_pins, rows)

    async def settling(self, rows: int) -> bool:
        """File that rows are about to be asked; whether they may be.

        A kill loses what the model says then, and they count all the same.
        """
        if not self.is_of_part:
            return True
        return await self._unless_it_fails("rows to ask", self.run, save_settling, rows)

    async def shown(self, result: ResultData, learned: Past) -> None:
        """File what is shown, whose ledger is that of the part's run, if the part has one."""
        if self.is_of_part:
            await self._unless_it_fails("ways", self.run, save_shown, result, learned)

    async def done(self) -> None:
        """Wait until nothing is being filed."""
        async with self._turn:
            pass

    async def _unless_it_fails(
        self, what: str, run: str | None, save: Callable[..., None], *content: Any
    ) -> bool:
        try:
            await self._file(run, save, *content)
        except WaysoutError as error:
            _log.warning("%s were not filed: %s", what, error)
            return False
        return True

    def _on_file(self) -> str | None:
        """Return the last run that has been made: what is in it comes back after a kill."""
        runs = (run for run in (self.run, self._before) if run is not None)
        return next(filter(is_on_file, runs), None)

    async def _file(self, run: str | None, save: Callable[..., None], *content: Any) -> None:
        async with self._turn:
            if run is None:
                return
            try:
                await in_thread_apart(save, run, *content)
            except WaysoutError as error:
                # Whoever knows a search's id may open it: it is for nobody else, and for no log.
                told = without_folder(error).replace(self._id, "…")
                raise UnavailableError(f"not on file: {told}") from None
