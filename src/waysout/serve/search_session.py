"""One person's search as the service runs it: part after part, with what is left of its budget.

Each part is a search of its own that remembers the answers and edits of those before it, not a
method's state: rules, budget and method may change between parts, and no method has to handle rules
that change under it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import perf_counter, time
from typing import Any, ParamSpec, Protocol, TypeVar

from waysout.domain.budget import Budget, Ledger, Spent
from waysout.domain.memory import Memory, Past
from waysout.domain.metrics import Metrics, run_metrics
from waysout.domain.pick import pick
from waysout.domain.result import Option, Outcome, OutcomeKind, Way
from waysout.domain.schema import Row
from waysout.errors import InputError, OracleError, WaysoutError
from waysout.llm.connect import stand_in
from waysout.oracles.cache import CachedOracle
from waysout.report.result import Result
from waysout.report.text import ending, lead
from waysout.report.words import Wording
from waysout.run.context import Stop
from waysout.run.find import afind_many
from waysout.run.options import Options, make_plan
from waysout.run.plan import told
from waysout.run.progress import Progress
from waysout.serve.concurrency import SharedBackend, in_thread_apart, unless
from waysout.serve.errors import Conflict
from waysout.serve.events import SHORTLIST, EventLog, Shortlist
from waysout.serve.filing import Filing
from waysout.serve.forms import form_row, lever_tips, lock_rules
from waysout.serve.limits import ServiceLimits
from waysout.serve.models import Locks, SearchRequest
from waysout.serve.option_forms import OptionForms
from waysout.serve.pins import Pin, PinMaker
from waysout.serve.problems import ServedProblem
from waysout.serve.saved_run import SavedRun, new_id, run_path, without_folder
from waysout.serve.settling import settled

_COUNTS = ("valid", "evaluated", "pruned", "generated")
# Seconds for a part to end after a stop; then it is given up, because a model may hang in its
# thread.
_PATIENCE = 3.0
# Options of a saved run that are asked again, and how much a chance may differ.
_ASKED_AGAIN, _SAME = 40, 0.01

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
InThread = Callable[[Callable[[], Result]], Awaitable[Result]]


class SearchListener(Protocol):
    """Is called when a part of a search begins and ends."""

    def began(self) -> None:
        """A part begins."""

    def ended(self, outcome: str, options: int, spent: Spent) -> None:
        """A part has ended: how, with the number of new options, and what it spent."""


@dataclass(frozen=True)
class ServiceContext:
    """What all searches of a service share."""

    limits: ServiceLimits
    open_llm: Callable[[], Awaitable[SharedBackend]]
    llm_name: str | None = None
    keep_runs: bool = False
    listener: SearchListener | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    """The files the problem was made from, as runs keep them to be opened again."""
    threads: Executor | None = None
    """Where the model is waited for beside the parts of searches."""


class SearchSession:
    """A search of one person, whose locks may change between its parts.

    It lives within one event loop. Each part may spend what the parts before it have left.
    """

    def __init__(
        self,
        context: ServiceContext,
        served: ServedProblem,
        query: Row,
        request: SearchRequest,
        id: str | None = None,
    ) -> None:
        self.id = id or new_id()
        self.created = datetime.now(UTC)
        self.day = self.created.astimezone().date()
        """When the model was asked, in local time."""
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
        self.ways: Sequence[Way] = ()
        """The ways of this part in the order to read them, once it has ended."""
        self.tipping: Sequence[Mapping[str, Any]] = ()
        """What each lever does alone, likewise."""
        self.shortlist = Shortlist(
            self.log,
            lambda: self._bare_result(OutcomeKind.FOUND, ""),
            lambda option: self._forms.form(option),
        )
        self.pinned: Sequence[Pin] = ()
        """What the person keeps at hand."""
        self.result: Result | None = None
        """What all parts found, once one has ended."""
        self.filing = Filing(self.id)
        self._context = context
        self._request = request
        self._forms = OptionForms(served.problem, query)
        self._memory = Memory()
        self._memory.steady = served.steady  # one search has tried the model for all
        self._on_file = Spent()  # by the saved run that this search took over
        self._before = Spent()
        self._counts = dict.fromkeys(_COUNTS, 0)  # of all parts
        self._now = Spent()
        self._llm: SharedBackend | None = None  # of this part
        self._held = 0  # options that the part began with
        self._stop = Stop()
        self._pinning = asyncio.Lock()
        self._saved: SavedRun | None = None  # to be refreshed when somebody looks
        # Read as a run is made, so that it has what was pinned until then.
        self._pinned_rows: list[dict[str, Any]] = []
        self._task: asyncio.Task[None] | None = None
        self._is_searching = False
        self._settling: asyncio.Task[tuple[Result, Past]] | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self._decided = False

    # Views -------------------------------------------------------------------------------------

    @property
    def spent(self) -> Spent:
        """What all parts have spent, including a saved run they continue."""
        return self._on_file + self._before + self._now

    @property
    def calls_left(self) -> int:
        """The number of LLM calls left."""
        return self.calls - self._before.llm_calls - self._now.llm_calls

    @property
    def rows_left(self) -> int:
        """The number of oracle rows left."""
        return self.oracle_rows - self._before.oracle_rows - self._now.oracle_rows

    def line(self) -> dict[str, Any]:
        """Return the search in short."""
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
        llm = self._context.llm_name
        return {
            **self.line(),
            "part": self.part,
            "row": form_row(self.problem.schema, self.query),
            "locks": self.locks.model_dump(),
            "method": self._request.method,
            "llm": llm,
            "stand_in": stand_in(llm),
            "budget": self._budget(),
            "ledger": self.spent.as_dict(),
            "shortlist": [self._forms.form(option) for option in self.shortlist.options],
            **self._told_ways(),
            **self._told_pins(),
            "sentence": lead(ended, Wording.of(ended)) if ended else "",
            "outcome": str(ended.outcome.kind) if ended else None,
            "reason": ended.outcome.reason if ended else "",
            "run": self.filing.run,
        }

    def _told_ways(self) -> dict[str, Any]:
        return {"ways": [self._forms.form(way) for way in self.ways], "tipping": list(self.tipping)}

    def _told_pins(self) -> dict[str, Any]:
        return {"pins": [self._forms.pin(pin) for pin in self.pinned]}

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
            query=self.problem.schema.raw(self.query),
            outcome=Outcome(kind, reason),
            options=tuple(self.options.values()),
            ways=self.ways,
            ledger=self.spent,
            settings=told(self.problem),
        )

    # Parts -------------------------------------------------------------------------------------

    def begin(
        self, locks: Locks | None = None, calls: int | None = None, rows: int | None = None
    ) -> asyncio.Task[None]:
        """Begin the first part or the next; what is not given stays as it is."""
        if self.running:
            raise Conflict("the search is running: stop it first, or wait for its end")
        limits, spent = self._context.limits, self._before
        totals = (
            ("calls", self.calls if calls is None else calls, spent.llm_calls, limits.calls),
            ("oracle_rows", self.oracle_rows if rows is None else rows, spent.oracle_rows,
             limits.oracle_rows),
        )  # fmt: skip
        for what, total, used, most in totals:
            if total > max(used, most):
                why = "" if most or self._context.llm_name else "; this service has no LLM"
                raise InputError(f"{what} is at most {most} here, not {total}{why}")
            if total < used:
                raise InputError(
                    f"{what} is the total of all parts, and {used} are spent: not {total}"
                )
        if all(total == used for _, total, used, _ in totals):
            raise Conflict("neither LLM calls nor oracle rows are left: allow more of them first")
        new, base = self.locks if locks is None else locks, self.served.problem
        problem = base.with_rules(lock_rules(base, self.query, new))
        # An option that breaks a rule of today is left out.
        kept = [
            option for option in self.options.values()
            if not problem.violations(self.query, problem.row(option.row))
        ]  # fmt: skip
        self.locks, self.problem = new, problem
        self._forms = OptionForms(problem, self.query)
        self.calls, self.oracle_rows = (total for _, total, _, _ in totals)
        self.part += 1
        self.running = True
        self.day = datetime.now(UTC).astimezone().date()
        self.options, self.ways, self.tipping, self.shortlist.options = {}, (), (), ()
        self._held = len(kept)
        self.filing.is_of_part, self._is_searching = False, True
        self._stop = Stop()
        self._log_part()
        self._pin(self.pinned)
        self._add_options(kept)
        if self._context.listener is not None:
            self._context.listener.began()
        self._task = asyncio.create_task(self._run(self._stop))
        return self._task

    def stop(self, reason: str = "stopped by request") -> None:
        """End the part that runs, if one does, with what it has found."""
        if self.running and self._task is not None:
            self._stop(reason)
            if self._giving_up is None:
                loop = asyncio.get_running_loop()
                self._giving_up = loop.call_later(_PATIENCE, self._give_up)

    def _give_up(self) -> None:
        """Wait no longer for a model that hangs: whatever it says, the part ends without it."""
        waiting = self._task if self._is_searching else self._settling
        if waiting is not None:
            waiting.cancel()

    def _end_patience(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def close(self) -> None:
        """Stop, and end the streams of all followers."""
        self.stop("the search was deleted")
        self.log.close("gone")

    async def written(self) -> None:
        """Wait until nothing is written to the runs of a search that was closed."""
        if self._task is not None:
            await asyncio.wait([self._task])
        await self.filing.done()

    async def _run(self, stop: Stop) -> None:
        result, kind, failure = None, OutcomeKind.FAILED, ""
        has_ended = threading.Event()
        try:
            with unless(has_ended.is_set):
                if not self._decided:
                    self._now = Spent(setup_rows=1)  # until the search counts it
                    verdict = await asyncio.to_thread(self.served.verdict, self.query, self.query)
                    self.log.add("decided", verdict)
                    self._decided = True
                options = await self._options(stop)
                async with aclosing(afind_many(self.problem, [self.query], **options)) as results:
                    async for result in results:
                        self._now = result.ledger
        except asyncio.CancelledError:
            kind, failure = OutcomeKind.INTERRUPTED, stop.reason
        except WaysoutError as error:
            failure = without_folder(error)
        except Exception as error:
            _log.exception("a search ended unexpectedly")
            failure = f"unexpected {type(error).__name__}; the service's log says more"
            if result is not None:  # its reason quotes the error, which may hold secrets
                result = replace(result, outcome=replace(result.outcome, reason=failure))
        has_ended.set()
        self._is_searching = False  # from here on a stop only ends what makes it exact
        self._end_patience()
        try:
            # An error may follow a result that reports it.
            await self._end(result or self._bare_result(kind, failure), stop)
        finally:
            self._end_patience()  # or it would give up the next part
            self.running = False
        if self.pinned:
            await self.filing.pins_at_last(self._pinned_rows)

    async def _options(self, stop: Stop) -> Options:
        context, request, loop = self._context, self._request, asyncio.get_running_loop()
        rows = min(context.limits.part_rows, self.rows_left)

        def on_learning(what: str, share: float) -> None:  # called in the thread that learns
            event = {"what": what, "share": float(share)}
            loop.call_soon_threadsafe(self.log.add, "learning", event)

        options: Options = {
            "method": request.method,
            "settings": request.settings or None,
            "llm": context.llm_name,
            "seed": request.seed,
            # Edits without a row to try them are not worth a call.
            "calls": self.calls_left if rows else 0,
            "oracle_rows": rows,
            "seconds": context.limits.seconds,
            "data": self.served.known,
            "memory": self._memory,
            "progress": self._on_progress,
            "learning": on_learning,
            "stop": stop,
        }
        if make_plan(options).asks_llm:
            options["llm"] = self._llm = await context.open_llm()
        if context.keep_runs:
            path = run_path(self.problem.name, self.id, self.part)
            self.filing.begin(path.stem)
            search = {"id": self.id, "problem": request.problem, "spent": self._before.as_dict(),
                      "on_file": self._on_file.as_dict(),
                      "budget": {"calls": self.calls, "oracle_rows": self.oracle_rows}}  # fmt: skip
            about = {**context.about, "service": True, "locks": self.locks.model_dump(),
                     "search": search, "pins": self._pinned_rows}  # fmt: skip
            if context.about:
                about["row"] = self.problem.schema.as_dict(self.query)
            options |= {"run": path, "about": about}
        return options

    def _on_progress(self, now: Progress) -> None:
        self._now = now.spent
        self._add_options(now.found)
        self._log_ledger()

    async def _end(self, result: Result, stop: Stop) -> None:
        self.served.steady = self._memory.steady
        exact = self._make_exact(result, lambda: bool(stop.reason), asyncio.to_thread)
        self._settling, learned = asyncio.create_task(exact), Past()
        await asyncio.wait([self._settling])
        if not self._settling.cancelled():
            result, learned = self._settling.result()
        self._settling = None
        # A search that was stopped early does not know the options it began with.
        final, known = {o.key: o for o in result.options} or self.options, self.options
        changed = [
            option.as_dict() for key, option in final.items()
            if key not in known or (option.stable is False) != (known[key].stable is False)
        ]  # fmt: skip
        self.options = final
        # In a thread, as there may be many.
        self.ways = await in_thread_apart(_in_order, result)
        self.tipping = lever_tips(result)
        if changed:
            self.log.add("options", {"options": changed})
        # A call under way at a stop or a failure is spent: the server works and bills, and if it
        # were free, stopping and continuing would give any number of calls.
        asked = self._llm.asked if self._llm else 0
        spent = replace(self._now, llm_calls=max(self._now.llm_calls, asked))
        self._llm = None
        self._before, self._now = self._before + spent, Spent()
        counts = self._count(result)
        result = replace(result, options=tuple(final.values()), ledger=self.spent, metrics=counts)
        await self.shortlist.settle()
        await self.filing.shown(replace(result, ledger=spent), learned)
        self._log_end(result)
        if self._context.listener is not None:
            new = max(0, len(final) - self._held)
            self._context.listener.ended(str(result.outcome.kind), new, spent)

    async def _make_exact(
        self, result: Result, is_stopped: Callable[[], bool], in_thread: InThread
    ) -> tuple[Result, Past]:
        """Return the result with what is shown made exact, where the model is at hand.

        With it comes what the model answered to that. Cancelled, it leaves a call that hangs
        behind; what was sent counts.
        """
        if self.served.remote or self.served.steady is False:
            return result, Past()
        began, before = perf_counter(), self._memory.of(self.problem, self.query)
        past = before.copy()  # what is left behind writes into nothing that others read
        rows = min(self._context.limits.settling_rows, self.rows_left)
        if rows and not await self.filing.settling(rows):
            rows = 0
        ledger = Ledger(Budget(oracle_rows=rows))

        def work() -> Result:
            with unless(is_stopped):
                return settled(self.problem, self.query, past, result, ledger, is_stopped)

        try:
            result = await in_thread(work)
        finally:
            seconds = perf_counter() - began
            self._now += Spent(oracle_rows=ledger.spent.oracle_rows, seconds=seconds)
        said = {row: said for row, said in past.answered.items() if row not in before.answered}
        before.add(learned := Past(said))
        return result, learned

    def _count(self, result: Result) -> Metrics:
        """Return the numbers of a result, those of rows over all parts, like its ledger."""
        for name in _COUNTS:
            self._counts[name] += int(result.metrics.get(name) or 0)
        return {**result.metrics, **run_metrics(**self._counts)}

    # Pins --------------------------------------------------------------------------------------

    async def pin(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep rows at hand, instead of those that were; the person's own are asked first."""
        async with self._pinning:
            before = self.pinned
            self._pin(await self._pins_of(rows))
            try:
                await self.filing.pins(self._pinned_rows)
            except WaysoutError:
                self._pin(before)
                raise

    async def _pins_of(self, rows: Sequence[Mapping[str, Any]]) -> Sequence[Pin]:
        options = (*self.shortlist.options, *self.options.values())
        maker = PinMaker(self.served, self.problem, self.query, self.ways, options)
        typed = list(map(self.problem.row, rows))
        pins = {
            row: await self._in_thread(maker.pin, row, f"rows.{i}") for i, row in enumerate(typed)
        }
        return list(pins.values())

    async def _pin_again(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep at hand what was on file; what the model fails on stays there."""
        pins, waiting = list[Pin](), list[dict[str, Any]]()
        for row in rows:
            try:
                pins += await self._pins_of([row])
            except OracleError:
                waiting.append(dict(row))
            except WaysoutError:  # one's own may be a no by now
                continue
        self._pin(pins)
        self._pinned_rows += waiting

    def _pin(self, pins: Sequence[Pin]) -> None:
        """Keep those that the present locks allow, and tell it if that changes anything."""
        broken, query = self.problem.violations, self.query
        kept = [pin for pin in pins if not broken(query, self.problem.row(pin.option.row))]
        if kept != list(self.pinned):
            self.pinned = kept
            self._pinned_rows[:] = [dict(pin.option.row) for pin in kept]
            self.log.add("pins", self._told_pins())

    # Events ------------------------------------------------------------------------------------

    def _log_part(self) -> None:
        told = {"part": self.part, "locks": self.locks.model_dump(), "budget": self._budget()}
        self.log.add("part", told)

    def _add_options(self, found: Iterable[Option]) -> None:
        new = [option for option in found if option.key not in self.options]
        if new:
            self.options |= {option.key: option for option in new}
            self.log.add("options", {"options": [option.as_dict() for option in new]})
            self.shortlist.update()

    def _log_ledger(self) -> None:
        left = {"calls_left": self.calls_left, "oracle_rows_left": self.rows_left}
        self.log.add("ledger", {**self.spent.as_dict(), **left})

    def _log_end(self, result: Result) -> None:
        self.result = result
        self.running = False
        if self.ways or self.tipping:
            self.log.add("ways", self._told_ways())
        self._log_ledger()
        view = self.view()
        said = {name: view[name] for name in ("outcome", "reason", "sentence")}
        rows = {"approved": self._counts["valid"], "asked": self._counts["evaluated"]}
        found = {"ways": len(self.ways), "options": len(result.options)}
        self.log.add("ended", {**said, "ending": ending(result, people=True), **found, **rows})

    # Saved runs --------------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Wait for the model without keeping others from theirs."""
        loop = asyncio.get_running_loop()

        def work_for_somebody() -> T:
            with unless(lambda: self.log.closed):
                return work(*args, **kwargs)

        return await loop.run_in_executor(self._context.threads, work_for_somebody)

    async def refresh(self) -> bool:
        """Make exact what a saved run shows, and pin again what was pinned, once.

        Returns whether the model still says what it said then: a file that has not changed may
        call on something that has.
        """
        if self._saved is None:  # or whoever looks would wait for a pin on which the model hangs
            return True
        async with self._pinning:
            saved = self._saved
            if saved is None or self.result is None:
                return True
            if not await self._in_thread(self._is_still_true):
                return False
            # It is still the same model: what is on file is not to be asked again for the strips.
            if isinstance(oracle := self.problem.oracle, CachedOracle):
                oracle.remember(self._memory.of(self.problem, self.query).answered)
            if not saved.shown:
                await self._settle_saved(saved)
            self._saved = None
            await self._pin_again(saved.pins)
        return True

    async def _settle_saved(self, saved: SavedRun) -> None:
        """Make exact what a run holds that was never shown so, with what is left of the budget."""
        found, learned = await self._make_exact(
            saved.result, lambda: self.log.closed, self._in_thread
        )
        spent = saved.result.ledger + self._now
        self._before, self._now = self._before + self._now, Spent()
        self._show(found)
        await self.filing.shown(replace(found, ledger=spent), learned)

    def _is_still_true(self) -> bool:
        options = [*self.ways, *self.options.values()][:_ASKED_AGAIN]
        rows = [self.problem.row(option.row) for option in options]
        if not rows:
            return True
        try:
            said = self.problem.oracle.ask(rows)
        except WaysoutError:  # it will be told where somebody searches
            return True
        told = zip(options, said.probability.tolist(), strict=True)
        return all(abs(option.probability - chance) < _SAME for option, chance in told)

    def take_over(self, run: SavedRun, locks: Locks) -> None:
        """Begin with what a saved run found, as if it were a part that has ended.

        What a run of `waysout find` spent is in the ledger, but not part of the budget here.
        """
        result = run.result
        # A page that was open before a restart follows on by the ids of its events.
        self.log = self.shortlist.log = EventLog(last=int(time() * 1000))
        self.problem = self.problem.with_rules(lock_rules(self.problem, self.query, locks))
        self.locks, self._memory = locks, run.memory
        if run.before is None:
            self._on_file = result.ledger
        else:  # a search of a service, whose limits hold over all its parts
            self._on_file, self._before = run.on_file, run.before + result.ledger
            self.filing.is_of_part = run.name is not None
        if self._context.keep_runs:
            self.filing.run = run.name
        self.part, self.day = run.part, run.day
        self._forms = OptionForms(self.problem, self.query)
        limits, spent = self._context.limits, self._before
        calls, rows = (run.budget.get(name, most) for name, most in (
            ("calls", limits.calls), ("oracle_rows", limits.oracle_rows)
        ))  # fmt: skip
        # A service may allow less than the one before it.
        self.calls = max(spent.llm_calls, min(calls, limits.calls))
        self.oracle_rows = max(spent.oracle_rows, min(rows, limits.oracle_rows))
        self._count(result)
        self._log_part()
        chance = result.settings.get("query_probability")
        if chance is not None:
            yes = bool(result.settings.get("query_approved"))
            approved = result.outcome.kind is OutcomeKind.ALREADY_APPROVED
            words = self.problem.yes if yes else self.problem.no
            verdict = {"approved": approved, "decision": words, "probability": float(chance)}
            self.log.add("decided", verdict)
            self._decided = True
        self._show(result)
        self._saved = run

    def _show(self, result: Result) -> None:
        """Show what a part that has ended found."""
        self.options = {option.key: option for option in result.options}
        self.ways = _in_order(result)
        self.tipping = lever_tips(result)
        self.log.add("options", {"options": [option.as_dict() for option in result.options]})
        self.shortlist.publish(result.pick(SHORTLIST))
        self._log_end(replace(result, ledger=self.spent))


def _in_order(result: Result) -> Sequence[Way]:
    """Return the ways of a result in the order to read them."""
    return [way for way in pick(result, max(1, len(result.ways))) if isinstance(way, Way)]
