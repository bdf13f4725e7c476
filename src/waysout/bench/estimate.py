"""What plans will take: LLM calls and tokens, from those that searches on file were measured with.

Nothing is assumed of an LLM. Tokens a call are those of the same arm, else of arms that ask in the
same way (`_way`); an arm without either is counted apart. A speed or a price is the user's, or the
pace of the searches on file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from waysout.bench.arms import ExperimentPlan, digest
from waysout.bench.cell import Cell, Cells, Key
from waysout.bench.table import Figure, ResultTable, TableLine
from waysout.bench.tables_base import llm_words
from waysout.bench.tasks import Task
from waysout.errors import InputError, shown
from waysout.llm.base import Usage
from waysout.llm.call import Price
from waysout.llm.connect import stand_in
from waysout.report.words import counted

TOKENS = ("tokens_in", "cached_tokens", "tokens_out")


@dataclass
class Work:
    """What some searches will ask of an LLM, or asked: tokens are for all calls together.

    ``most_calls`` is what they may ask. ``alike`` counts searches whose tokens are those of
    similar arms, and ``unknown`` those that nothing on file is similar to; they have no tokens.
    """

    searches: int = 0
    on_file: int = 0
    most_calls: int = 0
    calls: float = 0.0
    tokens_in: float = 0.0
    cached_tokens: float = 0.0
    tokens_out: float = 0.0
    alike: int = 0
    unknown: int = 0

    def add(self, other: Work) -> None:
        """Add the work of other searches."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def usage(self) -> Usage:
        """Its tokens, as a price is put on them."""
        return Usage(round(self.tokens_in), round(self.tokens_out), round(self.cached_tokens))


@dataclass(frozen=True)
class Speed:
    """Tokens a second that an LLM reads and writes, all requests together.

    Without ``tokens_in``, reading is part of the time that writing takes.
    """

    tokens_out: float
    tokens_in: float = 0.0

    def seconds(self, work: Work) -> float:
        """Return how long some work takes; what is cached is not read again."""
        new = work.tokens_in - work.cached_tokens
        return work.tokens_out / self.tokens_out + (new / self.tokens_in if self.tokens_in else 0.0)

    @classmethod
    def parse(cls, text: str) -> Speed:
        """Read ``OUT`` or ``IN/OUT``.

        >>> Speed.parse("12000/3000")
        Speed(tokens_out=3000.0, tokens_in=12000.0)
        """
        try:
            parts = [float(part) for part in text.split("/")]
        except ValueError:
            parts = []
        if len(parts) not in (1, 2) or not all(0 < part < 1e12 for part in parts):
            raise InputError(
                f"a speed is OUT or IN/OUT in tokens a second, such as 12000/3000, not "
                f"{shown(text)}"
            )
        return cls(*reversed(parts))


# What is on file -------------------------------------------------------------------------------


@dataclass
class Measured:
    """Tokens by arm, and by the way that arms ask, of finished searches with one LLM."""

    llm: str
    searches: int = 0
    calls: int = 0
    from_file: int = 0
    _arms: dict[str, Work] = field(default_factory=dict)
    _ways: dict[str, Work] = field(default_factory=dict)

    @classmethod
    def of(cls, cells: Cells, llm: str, plans: Iterable[ExperimentPlan]) -> Measured:
        """Add up the searches with an LLM that ask as arms of some plans do."""
        found = cls(llm)
        ways = {_way(arm.spec) for plan in plans for arm in plan.arms}
        for cell in cells:
            known = cell.value("calls") and cell.value("tokens_in") and cell.spec.get("calls")
            if cell.llm == llm and known and _way(cell.spec) in ways:
                found.searches += 1
                found.calls += int(cell.value("calls") or 0)
                found.from_file += int(cell.value("from_file") or 0)
                one = Work(searches=1, most_calls=cell.spec["calls"])
                for name in ("calls", *TOKENS):
                    setattr(one, name, cell.value(name) or 0.0)
                found._arms.setdefault(_same(cell.spec), Work()).add(one)
                found._ways.setdefault(_way(cell.spec), Work()).add(one)
        return found

    def work(self, task: Task) -> Work:
        """Return what searches of an arm will ask."""
        searches, spec = len(task.queries), task.arm.spec
        work = Work(searches=searches, most_calls=task.most_calls if searches else 0)
        same = self._arms.get(_same(spec))
        known = same or self._ways.get(_way(spec))
        if known is None:
            work.unknown = searches
            return work
        work.alike = 0 if same else searches
        work.calls = work.most_calls * known.calls / known.most_calls  # some end before
        for name in TOKENS:
            setattr(work, name, work.calls * getattr(known, name) / known.calls)
        return work


def _same(spec: Mapping[str, Any]) -> str:
    """Identify arms whose searches are the same, though some run one at a time."""
    return digest({key: value for key, value in spec.items() if key != "alone"})


def _way(spec: Mapping[str, Any]) -> str:
    """Identify arms whose prompts and replies are of one form, whatever they prune or reward."""
    return digest([spec.get(key) for key in ("data", "rules", "method", "k", "style")])


def most_measured(plans: Iterable[ExperimentPlan], cells: Cells) -> str:
    """Return the real LLM with most searches of some plans, or raise `InputError`."""
    ids = {arm.id for plan in plans for arm in plan.arms if arm.asks_llm}
    real = [llm for llm in cells.llms if not stand_in(llm)]
    counts = {llm: sum(cell.llm == llm and cell.arm in ids for cell in cells) for llm in real}
    best = max(real, key=lambda llm: counts[llm], default="")
    if not counts.get(best):
        raise InputError(
            "no search of these plans with a real LLM is on file to measure by: run a few first "
            "(one query of each data set will do), or name an export that has some"
        )
    return best


# What is to do ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanWork:
    """What is left of a plan that earlier ones of the list do not do; ``alone``: one at a time."""

    plan: str
    alone: bool
    arms: int
    work: Work


def work_of(
    plans: Sequence[ExperimentPlan], measured: Measured, llm: str, done: Collection[Key] = ()
) -> list[PlanWork]:
    """Return what each plan will ask of an LLM, by name ``llm``, that is not on file."""
    found, seen = [], set(done)
    for plan in plans:
        work, asking = Work(), [arm for arm in plan.arms if arm.asks_llm]
        for arm in asking:
            left = tuple(query for query in arm.query_rows if (arm.id, llm, query) not in seen)
            seen.update((arm.id, llm, query) for query in left)
            work.add(measured.work(Task(arm, llm, left)))
            work.on_file += len(arm.query_rows) - len(left)
        names = {arm.name for arm in asking}
        found.append(PlanWork(plan.name, plan.one_by_one, len(names), work))
    return found


def total(parts: Iterable[PlanWork]) -> Work:
    """Return the work of several plans."""
    all_of_them = Work()
    for part in parts:
        all_of_them.add(part.work)
    return all_of_them


# How long it took --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """How long searches with an LLM took, many at once or one at a time, where any are on file."""

    speed: Speed | None = None
    seconds_alone: float | None = None

    @classmethod
    def of(cls, cells: Iterable[Cell], llm: str) -> Timing:
        """Time the searches with an LLM whose replies were not all on file before."""
        written, spans, alone = 0.0, list[tuple[float, float]](), list[float]()
        for cell in cells:
            calls, seconds = cell.value("calls") or 0.0, cell.value("seconds") or 0.0
            if cell.llm != llm or not calls or not cell.at:
                continue
            new = 1 - min(1.0, (cell.value("from_file") or 0.0) / calls)
            if cell.spec.get("alone"):
                alone += [seconds] * (new == 1)
                continue
            written += new * (cell.value("tokens_out") or 0.0)
            end = datetime.fromisoformat(cell.at).timestamp()
            spans.append((end - seconds, end))
        busy = _joined(spans)
        return cls(
            Speed(written / busy) if written and busy else None,
            sum(alone) / len(alone) if alone else None,
        )

    def seconds(self, part: PlanWork) -> float | None:
        """Return how long what is known of a plan will take; ``None`` where nothing tells."""
        if part.work.unknown and not part.work.calls:
            return None
        if part.alone:
            return None if self.seconds_alone is None else part.work.searches * self.seconds_alone
        return None if self.speed is None else self.speed.seconds(part.work)


def _joined(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of what spans of time cover together.

    >>> _joined([(0, 4), (3, 5), (1, 2), (7, 8)])
    6.0
    """
    covered, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return covered


# For people --------------------------------------------------------------------------------------


def estimate_table(
    parts: Sequence[PlanWork],
    measured: Measured,
    timing: Timing | None = None,
    price: Price | None = None,
) -> ResultTable:
    """Return what plans will take as a table, the last line for all of them together."""
    timing = timing or Timing()
    seconds = [timing.seconds(part) for part in parts]
    timed = [one for one in seconds if one is not None]
    lines = [
        (part.plan, f"{part.arms}", part.work, one)
        for part, one in zip(parts, seconds, strict=True)
    ]
    if len(parts) > 1:
        lines.append(("all", "", total(parts), sum(timed)))
    columns = ("arms", "searches", "on file or above", "calls at most", "calls", "tokens read",
               "from the prefix cache", "tokens written")  # fmt: skip
    added = (*["hours"] * bool(timed), *["cost"] * (price is not None))

    def figures(arms: str, work: Work, took: float | None) -> Iterator[str]:
        yield arms
        yield from (f"{n:,}" for n in (work.searches, work.on_file, work.most_calls))
        yield f"{work.calls:,.0f}"
        yield from (f"{getattr(work, name) / 1e6:,.1f} M" for name in TOKENS)
        if timed:
            yield "–" if took is None else f"{took / 3600:,.1f}"
        if price:
            yield f"{price.of(work.usage):,.2f}"

    return ResultTable(
        "estimate",
        "What the plans will ask of an LLM",
        (),
        ("plan",),
        (*columns, *added),
        tuple(
            TableLine((plan,), tuple(map(Figure, figures(arms, work, took))))
            for plan, arms, work, took in lines
        ),
        tuple(_notes(parts, measured, timing)),
    )


def _notes(parts: Sequence[PlanWork], measured: Measured, timing: Timing) -> Iterator[str]:
    """Yield what a reader has to know of an estimate."""
    work = total(parts)
    of_all = f"of {counted(work.searches, 'search', 'searches')}"
    yield (
        f"Calls and tokens are as measured in {counted(measured.searches, 'search', 'searches')} "
        f"with {llm_words(measured.llm)}; another tokenizer counts differently, and another LLM "
        "writes more or less."
    )
    if work.alike:
        yield (
            f"{work.alike:,} {of_all} are of arms that were not measured: theirs are those of arms "
            "with the same data, rules, method, K and prompt."
        )
    if work.unknown:
        yield (
            f"{work.unknown:,} {of_all} are like nothing that was measured: the table has no "
            "more of them than the calls at most."
        )
    yield (
        "A reply that several searches ask for is paid once, so fewer calls are paid: of the "
        f"{measured.calls:,} measured, {measured.from_file:,} were answered by replies on file."
    )
    if timing.speed and not timing.speed.tokens_in:
        yield f"Hours are at {timing.speed.tokens_out:,.0f} tokens written a second."
    slow = [part.plan for part in parts if part.alone and timing.seconds_alone is None]
    if slow:
        yield (
            f"{', '.join(slow)} runs one search at a time, after all others; run one query of it "
            "to learn how long that takes."
        )
