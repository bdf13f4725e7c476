"""The page of results: what was run, every table, the paper's claims, and a summary.

The page is a function of the cells and the code alone, so that a test can find a stale one. Its
prose is in ``report.txt``.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from itertools import chain
from pathlib import Path
from string import Template

import numpy as np
from numpy.typing import NDArray

from waysout.bench import paper, plots
from waysout.bench.arms import ExperimentPlan
from waysout.bench.cell import Cell, Cells
from waysout.bench.claims import CLAIMS, judge_all
from waysout.bench.judge import NEVER, RULES, ClaimOutcome, ClaimVerdict, known_plan
from waysout.bench.plan import plan_names
from waysout.bench.readings import DEFAULT, ELEMENTS, MARK, READINGS, others
from waysout.bench.render import Markdown, markdown_grid, render
from waysout.bench.table import ResultTable
from waysout.bench.tables import TABLES, build
from waysout.bench.tables_arms import llm_budget_row
from waysout.bench.tables_base import (
    NOVELTY,
    PROXIMITY,
    PRUNED,
    ROWS,
    SPARSITY,
    UNIQUE,
    VALIDITY,
    View,
    llm_words,
    title_of,
)
from waysout.errors import InputError
from waysout.llm.connect import stand_in
from waysout.report.plot import to_svg
from waysout.report.tables import escape_markdown

LONG = 48
"""Tables with more lines are folded."""
ENOUGH = 0.5
"""More than this share of a plan's arms must have been run with an LLM to show its table."""
MEASURES = {m.name: m for m in (UNIQUE, PROXIMITY, SPARSITY, NOVELTY, PRUNED, ROWS, VALIDITY)}
PICTURES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("trade-off", "llm-budget", ()),
    ("paired", "llm-budget", ("Comp-MCTS, no pruning", "Comp-MCTS")),
    ("paired", "llm-budget", ("Comp-MCTS", "recombine")),
    ("sweep", "pruning-sweep", ()),
    ("yields", "yields", ()),
)
"""Pictures, the tables they follow, and the arms of those that compare two."""


@dataclass(frozen=True)
class Report:
    """A page about cells, and its pictures in ``figures``."""

    cells: Cells
    places: Sequence[str]
    out: Path
    figures: Path | None = None

    def page(self) -> str:
        """Return the page, in Markdown."""
        plans = [known_plan(name) for name in plan_names()]
        arms = {arm.id: arm for plan in plans for arm in plan.arms}
        most = max(plan.queries for plan in plans)
        every = replace(plans[0], arms=tuple(arms.values()), queries=most)
        header = View(every, self.cells, "", self.llms).header()
        text = (resources.files("waysout.bench") / "report.txt").read_text("utf-8")
        verdicts = {
            llm: [judge_all(self.cells, llm, name) for name in READINGS] for llm in self._judges()
        }
        # By claim, by LLM, by reading.
        claims = list(zip(*(zip(*found, strict=True) for found in verdicts.values()), strict=True))
        contradictions = paper.disagreements()
        return Template(text).substitute(
            command=self.command,
            places=", ".join(f"`{place}`" for place in self.places),
            ran=self._ran(),
            oracles="\n".join(f"- {escape_markdown(line)}" for line in header
                               if line.startswith(("Oracles", "Code:"))),
            rules="\n".join(f"- *{how}*: {words}." for how, words in RULES.items()),
            never=NEVER,
            summary=_grid(
                ("claim", *(llm_words(llm) for llm in verdicts)),
                [(_link(found[0][0].claim.title), *map(_in_short, found)) for found in claims],
            ),
            readings=_grid(
                ("what is open", "setting", "our first reading", "as settled: the default",
                 "what decides"),
                [(e.what, Markdown(e.setting), Markdown(e.first), Markdown(e.settled),
                  Markdown(e.evidence)) for e in ELEMENTS],
            ),
            claims="\n\n".join(_claim([*chain(*found)]) for found in claims),
            frank="\n\n".join(
                self._frank(under) for found in verdicts.values() for under in found
                if any(v.answers for v in under)
            ),
            disagreements=len(contradictions),
            disagreement_table=_grid(
                ("data set", "what", "one value", "another"),
                [(title_of(d.data), d.what, f"{d.one_value} ({d.one})",
                  f"{d.other_value} ({d.other})") for d in contradictions],
            ),
            tables="\n".join(self._tables()).rstrip(),
            times=self._times(),
        )  # fmt: skip

    @cached_property
    def command(self) -> str:
        """The command that writes this page."""
        words = ["waysout", "bench", "report"]
        for place in self.places:
            words += ["--results", place]
        words += ["--out", self.out.as_posix()]
        return shlex.join(words + (["--figures", self.figures.as_posix()] if self.figures else []))

    @cached_property
    def llms(self) -> tuple[str, ...]:
        """The LLMs that were used: real ones first, then scripted and simulated ones.

        Of each kind the one with most searches comes first.
        """
        ran = Counter(cell.llm for cell in self.cells)
        return tuple(sorted(self.cells.llms, key=lambda llm: (stand_in(llm), -ran[llm], llm)))

    def files(self) -> Iterator[tuple[Path, bytes]]:
        """Yield the page and then its pictures: the path and the content of each file."""
        if not len(self.cells):
            raise InputError(
                "there are no searches in these results; run some with: waysout bench run PLAN"
            )
        yield self.out, self.page().encode()
        for picture in self.pictures() if self.figures else ():
            figure = plots.draw(picture.name, self.cells, llm=picture.llm, arms=picture.arms)
            yield Path(self.figures or "", picture.file), to_svg(figure)

    def pictures(self) -> list[Shown]:
        """Return the pictures that the page shows: those of plans of which enough was run.

        Some data set must have searches of all the arms that a picture compares.
        """
        found = []
        for name, table, arms in PICTURES:
            plan = known_plan(TABLES[table].plan)
            for llm in self._shown(plan):
                view = self._view(plan, llm)
                ran = ({s.arm.name for s in view.samples(data) if s.n} for data in plan.datasets)
                if any(names.issuperset(arms) for names in ran):
                    found.append(Shown(name, table, arms, llm))
        return found

    # What was run ------------------------------------------------------------------------------

    def _ran(self) -> str:
        rows: dict[str, list[tuple[str, ...]]] = {}
        for llm in (*self.llms, ""):
            for name in self._plans:
                plan = known_plan(name)
                cells = self._of_plan(plan, llm)
                wanted = sum(arm.queries for arm in plan.arms if arm.asks_llm is bool(llm))
                # Readings share what they agree on: a part of another one is no run of it.
                if cells and (MARK not in name or len(cells) > ENOUGH * wanted):
                    count = f"{len(cells):,} of {wanted:,}"
                    row = (Markdown(f"`{name}`"), count, *_spent(cells))
                    rows.setdefault(_name(llm), []).append(row)
        rows["all together"] = [("", f"{len(self.cells):,}", *_spent(self.cells))]
        heads = ("plan", "searches", "LLM calls", "tokens read", "tokens written")
        return _grids(heads, rows, numbers=4)

    @cached_property
    def _plans(self) -> list[str]:
        """The names of all plans, with those of their other readings."""
        under = {name: others(known_plan(name).reading) for name in plan_names()}
        return [
            full
            for name in under
            for full in (name, *(f"{name}{MARK}{other}" for other in under[name]))
        ]

    def _of_plan(self, plan: ExperimentPlan, llm: str) -> list[Cell]:
        """Return a plan's cells with an LLM, or those without one."""
        view = self._view(plan, llm)
        arms = [arm for arm in plan.arms if arm.asks_llm is bool(llm)]
        return [cell for arm in arms for cell in view.of(arm).cells.values()]

    def _judges(self) -> list[str]:
        """Return the LLMs with enough of a plan that judges a claim, under some reading."""
        names = {f"{claim.plan}{MARK}{name}" for claim in CLAIMS for name in READINGS}
        ran = {llm for name in names for llm in self._llms_of(known_plan(name))}
        return [llm for llm in self.llms if llm in ran]

    def _view(self, plan: ExperimentPlan, llm: str) -> View:
        return View(plan, self.cells, llm, (llm,))

    def _times(self) -> str:
        rows: dict[str, list[tuple[str, ...]]] = {}
        for plan in map(known_plan, plan_names()):
            for llm in self._llms_of(plan):
                cells = {cell.key: cell for one in {llm, ""} for cell in self._of_plan(plan, one)}
                whole, llms = (sum(cell.value(name) or 0.0 for cell in cells.values())
                               for name in ("seconds", "llm_seconds"))  # fmt: skip
                figures = (_clock(whole), _clock(llms), f"{whole / len(cells):.2f}")
                row = (Markdown(f"`{plan.name}`"), f"{len(cells):,}", *figures)
                rows.setdefault(_name(llm), []).append(row)
        heads = ("plan", "searches", "all of them, summed", "of it waiting for the LLM",
                 "seconds a search")  # fmt: skip
        return _grids(heads, rows, numbers=4)

    # Tables ------------------------------------------------------------------------------------

    def _tables(self) -> Iterator[str]:
        pictures = self.pictures() if self.figures else []
        for name, entry in TABLES.items():
            plan = known_plan(entry.plan)
            llms = self._shown(plan)
            made = {
                llm: build(name, self.cells, llm=llm or None, places=self.places)
                for llm in ([""] if llms and entry.every_llm else llms)
            }
            if any(made.values()):
                yield f"### `{name}`: {escape_markdown(plan.title)}\n"
            for llm, tables in made.items():
                yield from (_folded(table, llm) for table in tables)
                yield from (p.link(self.out, self.figures) for p in pictures
                            if self.figures and (p.table, p.llm) == (name, llm))  # fmt: skip

    def _shown(self, plan: ExperimentPlan) -> list[str]:
        """Return the LLMs whose tables are shown: real ones, or else one stand-in.

        The command above a table prints those of the others, too.
        """
        found = self._llms_of(plan)
        return [llm for llm in found if not stand_in(llm)] or found[:1]

    def _llms_of(self, plan: ExperimentPlan) -> list[str]:
        """Return the LLMs with enough of a plan to show; an empty name for a plan without any.

        Enough is more than half of the arms, on the data set with most of them.
        """
        if not any(arm.asks_llm for arm in plan.arms):
            return [""] if self._of_plan(plan, "") else []
        found = []
        for llm in self.llms:
            view = self._view(plan, llm)
            ran = ([s.n > 0 for s in view.samples(data) if s.arm.asks_llm]
                   for data in plan.datasets)  # fmt: skip
            found += [llm] if any(sum(arms) > ENOUGH * len(arms) for arms in ran) else []
        return found

    # What to make of it ------------------------------------------------------------------------

    def _frank(self, verdicts: Sequence[ClaimVerdict]) -> str:
        """Return the claims by verdict, and how far yields and their order are the paper's."""
        llm, reading = verdicts[0].llm, verdicts[0].reading
        lines = [f"**{escape_markdown(_under(verdicts[0]))}**", ""]
        for word in ("supported", "mixed", "undecided", "not supported", "not run"):
            titles = [escape_markdown(f"{v.claim.title}{f' ({v.where})' if v.where else ''}")
                      for v in verdicts if v.word == word]  # fmt: skip
            if titles:
                lines.append(f"- {word.capitalize()} ({len(titles)}): {'; '.join(titles)}.")
        view, parts = self._view(known_plan(f"llm-budget{MARK}{reading}"), llm), []
        for data in view.plan.datasets:
            means = ((sample.mean("unique_valid"),
                      paper.number(llm_budget_row(sample.arm), "unique_valid"))
                     for sample in view.samples(data))  # fmt: skip
            known = [(a, b) for a, b in means if a is not None and isinstance(b, float)]
            if len(known) > 2:
                ours, theirs = np.array(known, dtype=np.float64).T
                share = f"{ours.sum() / theirs.sum():.0%} of the paper's"
                parts.append(f"{title_of(data)} {share}, {_rank(ours, theirs)}")
        if parts:
            lines.append(
                "- Yields of the paper's arms under the same calls, summed over the arms, and "
                f"Spearman's rank correlation with the paper's order of them: {'; '.join(parts)}."
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class Shown:
    """A picture on the page: its kind, the table it follows, its arms and LLM."""

    name: str
    table: str
    arms: tuple[str, ...]
    llm: str

    @property
    def file(self) -> str:
        """The name of its file."""
        parts = [self.name, *self.arms, short_llm(self.llm)]
        return re.sub(r"[^a-z0-9.]+", "-", "-".join(parts).lower()).strip("-.") + ".svg"

    def link(self, page: Path, folder: Path) -> str:
        """Return the picture's Markdown, linked from the folder of the page."""
        arms = f" ({' and '.join(self.arms)})" if self.arms else ""
        words = f"{plots.PICTURES[self.name].what}{arms}; LLM: {short_llm(self.llm)}"
        path = Path(os.path.relpath(folder, page.parent)).as_posix()
        return f"![{escape_markdown(words)}]({path}/{self.file})\n"


def short_llm(llm: str) -> str:
    """Return an LLM's name without its folder and its server.

    >>> short_llm("openai:google/gemma-3-12b-it@http://localhost:8000/v1"), short_llm("simulated:1")
    ('gemma-3-12b-it', 'simulated:1')
    >>> short_llm("transformers:qwen.gguf@10?top_k=20")
    'qwen.gguf (top-k 20)'
    """
    if llm.startswith("transformers:"):
        return llm_words(llm).partition(":")[2].rpartition("/")[2]
    return llm.partition("@")[0].rpartition("/")[2]


# Claims ----------------------------------------------------------------------------------------

_HEADS = (
    "data set", "metric", "A", "B", "n", "mean A", "mean B", "B − A", "95 % interval", "p",
    "the paper's A → B", "must be", "is it?",
)  # fmt: skip


def _link(title: str) -> Markdown:
    """Return a link to a heading of this page, as GitHub names it."""
    anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    return Markdown(f"[{escape_markdown(title)}](#{anchor})")


def _in_short(found: Sequence[ClaimVerdict]) -> str:
    """Return an LLM's verdict, and that under the other readings where it is another one."""
    first, *rest = found
    words = first.words if first.answers else ""
    more = [f"as {v.reading} read: {v.words}" for v in rest if v.answers and v.words != words]
    return "; ".join([*([words] if words else []), *more]) or first.words


def _under(verdict: ClaimVerdict) -> str:
    """Return an LLM's name, and the reading unless it is the default."""
    other = f", as {verdict.reading} read" if verdict.reading != DEFAULT else ""
    return f"{_name(verdict.llm)}{other}"


def _claim(found: Sequence[ClaimVerdict]) -> str:
    """Return one claim with each LLM's verdicts under each reading, and the numbers behind them."""
    claim = found[0].claim
    parts = [f"### {claim.title}", ""]
    parts += [f"The paper: {escape_markdown(claim.says)}", ""] if claim.says else []
    parts += [escape_markdown(claim.remark), ""] if claim.remark else []
    told = [v for v in found if v.answers or v.reading == DEFAULT]
    # One line for all LLMs where none is asked.
    parts += dict.fromkeys(f"- {escape_markdown(_under(v))}: **{v.words}**" for v in told)
    rows = {_under(v): [_outcome_row(outcome) for outcome in v.outcomes if outcome.was_run]
            for v in told}  # fmt: skip
    if any(rows.values()):
        parts += ["", f"<details><summary>Numbers (`{claim.plan}`)</summary>", "",
                  _grids(_HEADS, rows), "", "</details>"]  # fmt: skip
    return "\n".join(parts)


def _outcome_row(outcome: ClaimOutcome) -> tuple[str, ...]:
    expected, found = outcome.expected, outcome.found
    digits = MEASURES[expected.metric].digits if expected.metric in MEASURES else 2

    def number(value: float | None, sign: str = "") -> str:
        # Adding 0 turns a negative zero, which rounding can give, into a plain one.
        return "" if value is None else f"{round(value, digits) + 0.0:{sign}.{digits}f}"

    metric = f"{expected.metric} against {expected.other}" if expected.other else expected.metric
    theirs = [number(value) for value in outcome.theirs]
    return (
        title_of(outcome.data), metric.replace("_", " "), outcome.a, outcome.b, str(found.n),
        number(found.mean_a), number(found.mean_b), number(found.delta, "+"),
        "" if found.low is None else f"[{number(found.low)}, {number(found.high)}]",
        "" if found.p is None else f"{found.p:.2g}",
        " → ".join(theirs) if all(theirs) else "", expected.how,
        outcome.answer if expected.is_judged else "",
    )  # fmt: skip


# Words and tables ------------------------------------------------------------------------------


def _rank(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> str:
    from scipy import stats

    if not np.ptp(ours):  # nothing is in any order
        return "no rank correlation"
    return f"rank correlation {stats.spearmanr(ours, theirs).statistic:.2f}"


def _name(llm: str) -> str:
    return llm_words(llm) if llm else "none is asked"


def _spent(cells: Iterable[Cell]) -> tuple[str, ...]:
    kept = list(cells)
    return tuple(f"{sum(cell.value(name) or 0.0 for cell in kept):,.0f}"
                 for name in ("calls", "tokens_in", "tokens_out"))  # fmt: skip


def _clock(seconds: float) -> str:
    """Format a duration.

    >>> _clock(42.4), _clock(4000), _clock(100_000)
    ('42 s', '1 h 7 min', '27 h 47 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _folded(table: ResultTable, llm: str) -> str:
    """Return a table in Markdown, under a heading with its LLM; its lines are folded if many."""
    title = f"{table.title}, {llm_words(llm)}" if llm else table.title
    text = f"#{render([replace(table, title=title)], 'markdown')}"
    if len(table.lines) <= LONG:
        return text
    lines = text.splitlines()
    grid = [i for i, line in enumerate(lines) if line.startswith("|")]
    first, last = grid[0], grid[-1] + 1
    fold = [f"<details><summary>{len(table.lines)} lines</summary>", ""]
    parts = [*lines[:first], *fold, *lines[first:last], "", "</details>", *lines[last:]]
    return "\n".join(parts) + "\n"


def _grids(
    heads: Sequence[str], rows: Mapping[str, Sequence[Sequence[str]]], numbers: int = 0
) -> str:
    """Return one table per LLM under its name, since an LLM column would be too wide."""
    return "\n\n".join(
        f"**{escape_markdown(name)}**\n\n{_grid(heads, found, numbers)}"
        for name, found in rows.items()
        if found
    )


def _grid(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """Return a Markdown table whose last columns are numbers."""
    return markdown_grid(heads, rows, len(heads) - numbers, numbers)
