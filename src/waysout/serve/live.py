"""One person's search as the service runs it: part after part, with what is left of its budget."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any, Protocol

from waysout.domain.budget import Spent
from waysout.domain.memory import Memory, Past
from waysout.domain.result import Option, Outcome, OutcomeKind
from waysout.domain.schema import Row
from waysout.errors import InputError, WaysoutError
from waysout.llm.connect import is_simulated
from waysout.report.result import Result
from waysout.report.text import sentence
from waysout.report.words import Wording
from waysout.run.context import Stop
from waysout.run.find import Options, afind_many, make_plan
from waysout.run.plan import describe, wording
from waysout.run.progress import Progress, Tried
from waysout.serve.errors import Conflict
from waysout.serve.events import EventLog
from waysout.serve.forms import lock_rules
from waysout.serve.limits import ServiceLimits
from waysout.serve.lineage import Lineage
from waysout.serve.models import Locks, SearchRequest
from waysout.serve.pace import SharedLLM
from waysout.serve.served import Served
from waysout.serve.shortlist import LENGTH, Shortlist
from waysout.store import new_run_path, runs_dir

_STOPPED = "stopped by request"
_MOST_OF_A_NAME = 40
# Seconds in which a part ends by itself; a model may hang, and nobody waits for it.
_PATIENCE = 3.0

_log = logging.getLogger(__name__)


class Watcher(Protocol):
    """Somebody who counts what searches do."""

    def began(self) -> None:
        """A part of a search begins."""

    def ended(self, outcome: str, options: int, spent: Spent) -> None:
        """A part has ended: how, with how many options not known before, and for how much."""


@dataclass(frozen=True)
class House:
    """What all searches of a service share."""

    limits: ServiceLimits
    llm: Callable[[], Awaitable[SharedLLM]]
    llm_name: str | None = None
    keep_runs: bool = False
    watcher: Watcher | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    """What the problem was made from, as runs keep it, so that one can be opened again."""


class LiveSearch:
    """A search of one person, whose locks may change between its parts.

    It lives within one event loop. Each part is a search of its own that knows all that came
    before; what it may spend is what the parts before it have left.
    """

    def __init__(self, house: House, served: Served, query: Row, request: SearchRequest) -> None:
        self.id = secrets.token_urlsafe(16)
        self.created = datetime.now(UTC)
        self.day = self.created.astimezone().date()
        """When the model was asked, as people here say it."""
        self.log = EventLog()
        self.served = served
        self.query = query
        self.problem = served.problem
        self.locks = Locks()
        self.calls = 0
        self.oracle_rows = 0
        self.part = 0
        self.running = False
        self.options: dict[str, Option] = {}
        """The options of this part by key, in the order they were found."""
        self.shortlist = Shortlist(self.log, lambda: self._bare_result(OutcomeKind.FOUND, ""))
        self.result: Result | None = None
        """What all parts brought, once one has ended."""
        self.run: str | None = None
        self._house = house
        self._request = request
        self._memory = Memory()
        self._memory.steady = served.steady  # one search has tried the model for all
        self._lineage = Lineage(served.problem, query)
        self._on_file = Spent()  # what a run had spent before this search took it over
        self._before = Spent()
        self._now = Spent()
        self._llm: SharedLLM | None = None  # of this part
        self._held = 0  # options that the part began with
        self._stop = Stop()
        self._task: asyncio.Task[None] | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self._decided = False

    # What it says of itself --------------------------------------------------------------------

    @property
    def spent(self) -> Spent:
        """What all parts have spent, and the run that they go on from."""
        return self._on_file + self._before + self._now

    @property
    def calls_left(self) -> int:
        """How many LLM calls may still be made."""
        return self.calls - self._before.llm_calls - self._now.llm_calls

    @property
    def rows_left(self) -> int:
        """How many rows may still be put to the model."""
        return self.oracle_rows - self._before.oracle_rows - self._now.oracle_rows

    def line(self) -> dict[str, Any]:
        """Return the search in a line."""
        return {
            "id": self.id,
            "problem": self._request.problem,
            "status": "running" if self.running else "ended",
            "options": len(self.options),
            "created": self.created.isoformat(timespec="seconds"),
        }

    def view(self) -> dict[str, Any]:
        """Return the search as it stands."""
        ended = None if self.running else self.result
        llm = self._house.llm_name
        return {
            **self.line(),
            "part": self.part,
            "row": self.problem.schema.as_dict(self.query),
            "locks": self.locks.model_dump(),
            "method": self._request.method,
            "llm": llm,
            "simulated": is_simulated(llm),
            "budget": self._budget(),
            "ledger": self.spent.as_dict(),
            "shortlist": self.shortlist.keys,
            "sentence": _said(ended) if ended else "",
            "outcome": str(ended.outcome.kind) if ended else None,
            "reason": ended.outcome.reason if ended else "",
            "run": self.run,
        }

    def _budget(self) -> dict[str, int]:
        return {
            "calls": self.calls,
            "calls_left": self.calls_left,
            "oracle_rows": self.oracle_rows,
            "oracle_rows_left": self.rows_left,
        }

    def so_far(self) -> Result:
        """Return the result, or what was found until now."""
        if self.result is not None and not self.running:
            return self.result
        return self._bare_result(OutcomeKind.INTERRUPTED, "the search is still under way")

    def _bare_result(self, kind: OutcomeKind, reason: str) -> Result:
        return Result(
            query=self.problem.schema.as_dict(self.query),
            outcome=Outcome(kind, reason),
            options=tuple(self.options.values()),
            ledger=self.spent,
            settings={**describe(self.problem), "wording": wording(self.problem.schema)},
        )

    # Parts -------------------------------------------------------------------------------------

    def begin(
        self, locks: Locks | None = None, calls: int | None = None, rows: int | None = None
    ) -> asyncio.Task[None]:
        """Begin the first part or the next; what is not given stays as it is."""
        if self.running:
            raise Conflict("the search is running: stop it first, or wait for its end")
        limits = self._house.limits
        spent = self._before
        total_calls = _total("calls", calls, self.calls, spent.llm_calls, limits.calls)
        total_rows = _total(
            "oracle_rows", rows, self.oracle_rows, spent.oracle_rows, limits.oracle_rows
        )
        if total_calls == spent.llm_calls and total_rows == spent.oracle_rows:
            raise Conflict("neither LLM calls nor oracle rows are left: allow more of them first")
        new = self.locks if locks is None else locks
        base = self.served.problem
        problem = base.with_rules(lock_rules(base, self.query, new))
        kept = [
            option for option in self.options.values()
            if not problem.violations(self.query, problem.row(option.row))
        ]  # fmt: skip
        self.locks, self.problem = new, problem
        self.calls, self.oracle_rows = total_calls, total_rows
        self._open_part(kept)
        self._task = asyncio.create_task(self._run(self._stop))
        return self._task

    def _open_part(self, kept: Sequence[Option]) -> None:
        self.part += 1
        self.running = True
        self.day = datetime.now(UTC).astimezone().date()
        self.options, self.shortlist.keys = {}, []
        self._held = len(kept)
        self._stop = Stop()
        self._tell_part()
        self._add_options(kept)
        if self._house.watcher is not None:
            self._house.watcher.began()

    def _tell_part(self) -> None:
        told = {"part": self.part, "locks": self.locks.model_dump(), "budget": self._budget()}
        self.log.add("part", told)

    def stop(self, reason: str = _STOPPED) -> None:
        """End the part that runs, if one does, with what it has found."""
        if self.running and self._task is not None:
            self._stop(reason)
            if self._giving_up is None:
                loop = asyncio.get_running_loop()
                self._giving_up = loop.call_later(_PATIENCE, self._task.cancel)

    def close(self) -> None:
        """End it all: who follows is told that it is gone."""
        self.stop("the search was deleted")
        self.log.close("gone")

    async def _run(self, stop: Stop) -> None:
        result, kind, failure = None, OutcomeKind.FAILED, ""
        try:
            await self._decide()
            options = await self._options(stop)
            async with aclosing(afind_many(self.problem, [self.query], **options)) as results:
                async for result in results:
                    self._now = result.ledger
        except asyncio.CancelledError:
            kind, failure = OutcomeKind.INTERRUPTED, stop.reason
        except WaysoutError as error:
            # Where runs lie is no business of who reads this.
            failure = str(error).replace(f"{runs_dir()}{os.sep}", "")
        except Exception as error:
            _log.exception("a search ended unexpectedly")
            failure = f"unexpected {type(error).__name__}; the service's log says more"
            if result is not None:  # it tells of the error in its own words, whatever they are
                result = replace(result, outcome=replace(result.outcome, reason=failure))
        self._task = None  # it ends already, which nobody need stop
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        try:
            # An error may follow a result that tells of it.
            await self._end(result or self._bare_result(kind, failure))
        finally:
            self.running = False

    async def _decide(self) -> None:
        if not self._decided:
            verdict = await asyncio.to_thread(self.served.verdict, self.query, self.query)
            self.log.add("decided", verdict)
            self._decided = True

    async def _options(self, stop: Stop) -> Options:
        limits, request = self._house.limits, self._request
        rows = min(limits.part_rows, self.rows_left)
        options: Options = {
            "method": request.method,
            "settings": request.settings or None,
            "seed": request.seed,
            # Edits that no row is left for are not worth a call.
            "calls": self.calls_left if rows else 0,
            "oracle_rows": rows,
            "seconds": limits.seconds,
            "data": self.served.known,
            "memory": self._memory,
            "progress": self._on_progress,
            "learning": self._on_learning(),
            "stop": stop,
        }
        if make_plan(options).asks_llm:
            options["llm"] = self._llm = await self._house.llm()
        if self._house.keep_runs:
            options |= self._new_run()
        return options

    def _new_run(self) -> Options:
        # The name of a run is cut at its end, which is what tells two of one second apart.
        name = self.problem.name[:_MOST_OF_A_NAME]
        path = new_run_path(f"{name}-{secrets.token_hex(3)}-part{self.part}")
        self.run = path.stem
        row = {"row": self.problem.schema.as_dict(self.query)} if self._house.about else {}
        locks = self.locks.model_dump()
        return {"run": path, "about": {**self._house.about, "service": True, "locks": locks, **row}}

    def _on_learning(self) -> Callable[[str, float], None]:
        loop = asyncio.get_running_loop()

        def tell(what: str, share: float) -> None:  # called in the thread that learns
            event = {"what": what, "share": float(share)}
            loop.call_soon_threadsafe(self.log.add, "learning", event)

        return tell

    def _on_progress(self, now: Progress) -> None:
        self._now = now.spent
        self._tell_tried(now.tried)
        self._add_options(now.found)
        self._tell_ledger()

    def _tell_tried(self, tried: Iterable[Tried]) -> None:
        if new := self._lineage.add(tried):
            self.log.add("tried", {"tried": new})

    def _add_options(self, found: Iterable[Option]) -> None:
        new = [option for option in found if option.key not in self.options]
        if new:
            self.options |= {option.key: option for option in new}
            self.log.add("options", {"options": [option.as_dict() for option in new]})
            self.shortlist.want()

    def _tell_ledger(self) -> None:
        left = {"calls_left": self.calls_left, "oracle_rows_left": self.rows_left}
        self.log.add("ledger", {**self.spent.as_dict(), **left})

    async def _end(self, result: Result) -> None:
        self.served.steady = self._memory.steady
        # A search that was stopped before it looked around does not know what it began with.
        final = {option.key: option for option in result.options} or self.options
        known = self.options
        unlike = [
            o for key, o in final.items() if key not in known or _doubt(o) != _doubt(known[key])
        ]
        self.options = final
        if unlike:
            self.log.add("options", {"options": [option.as_dict() for option in unlike]})
        spent = self._paid()
        self._before, self._now = self._before + spent, Spent()
        result = replace(result, options=tuple(final.values()), ledger=self.spent)
        await self.shortlist.settle()
        self._tell_end(result)
        if self._house.watcher is not None:
            new = max(0, len(final) - self._held)
            self._house.watcher.ended(str(result.outcome.kind), new, spent)

    def _paid(self) -> Spent:
        """Return what the part has spent, with the calls that it was stopped or failed in.

        Were they free, whoever stops and goes on could have any number of them.
        """
        llm, self._llm = self._llm, None
        asked = llm.asked if llm else 0
        return replace(self._now, llm_calls=max(self._now.llm_calls, asked))

    def _tell_end(self, result: Result) -> None:
        self.result = result
        self.running = False
        self._tell_ledger()
        kind, reason = str(result.outcome.kind), result.outcome.reason
        said = {"outcome": kind, "reason": reason, "sentence": _said(result)}
        self.log.add("ended", {**said, "options": len(result.options)})

    # A run on file -----------------------------------------------------------------------------

    def take_over(self, result: Result, memory: Memory, locks: Locks, day: date) -> None:
        """Begin with what a run on file has brought, as if it were a part that has ended.

        What it had spent stands in the ledger, but is none of what may be spent here.
        """
        self.problem = self.problem.with_rules(lock_rules(self.problem, self.query, locks))
        self.locks, self._memory, self._on_file, self.day = locks, memory, result.ledger, day
        self.calls, self.oracle_rows = self._house.limits.calls, self._house.limits.oracle_rows
        self.part = 1
        self._tell_part()
        if (chance := result.settings.get("query_probability")) is not None:
            self._tell_past(result, memory.of(self.problem, self.query), float(chance))
        self.options = {option.key: option for option in result.options}
        self.log.add("options", {"options": [option.as_dict() for option in result.options]})
        self.shortlist.tell([option.key for option in result.pick(LENGTH)])
        self._tell_end(result)

    def _tell_past(self, result: Result, past: Past, chance: float) -> None:
        """Tell what the model said of the query and of the rows that were tried."""
        yes = bool(result.settings.get("query_approved"))
        approved = result.outcome.kind is OutcomeKind.ALREADY_APPROVED
        words = self.problem.yes if yes else self.problem.no
        told = {"approved": approved, "decision": words, "probability": chance}
        self.log.add("decided", told)
        self._decided = True
        answers = past.answers(list(past.answered))
        met = self.problem.goal.for_query(chance).met(answers).tolist()
        said = zip(past.answered, answers.probability.tolist(), met, strict=True)
        self._tell_tried(Tried(row, None, probability, yes) for row, probability, yes in said)


def _doubt(option: Option) -> bool:
    return option.stable is False


def _said(result: Result) -> str:
    """Say how a search ended, in the words of the card."""
    return sentence(result, Wording.of(result).lines)


def _total(what: str, given: int | None, usual: int, spent: int, most: int) -> int:
    total = usual if given is None else given
    if total > most:
        raise InputError(f"{what} is at most {most} here, not {total}")
    if total < spent:
        raise InputError(f"{what} is the total of all parts, and {spent} are spent: not {total}")
    return total
