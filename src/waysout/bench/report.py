"""The page of results: what was run, every table, what the paper claims, and what to make of it.

The page is a function of the cells and the code alone, so a stale one can be told from a fresh one.
Its prose is in ``report.txt``.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from string import Template

import numpy as np
from numpy.typing import NDArray

from waysout.bench import paper, plots
from waysout.bench.arms import ExperimentPlan
from waysout.bench.cell import Cell, Cells
from waysout.bench.claims import judge_all
from waysout.bench.judge import NEVER, RULES, ClaimOutcome, ClaimVerdict, known_plan
from waysout.bench.plan import plan_names
from waysout.bench.render import escape_markdown, render
from waysout.bench.table import ResultTable
from waysout.bench.tables import TABLES, build
from waysout.bench.tables_base import (
    NOVELTY,
    PROXIMITY,
    PRUNED,
    ROWS,
    SPARSITY,
    UNIQUE,
    VALIDITY,
    ArmSample,
    View,
    llm_words,
    title_of,
)
from waysout.bench.tables_budget import llm_budget_row
from waysout.errors import InputError
from waysout.llm.connect import is_simulated

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
"""Pictures, the tables that they stand beneath, and the arms of those that compare two."""


@dataclass(frozen=True)
class Report:
    """A page about cells, as the command says; pictures are linked from where it will lie."""

    cells: Cells
    places: Sequence[str]
    out: Path
    figures: Path | None = None

    def page(self) -> str:
        """Return the page, in Markdown."""
        text = (resources.files("waysout.bench") / "report.txt").read_text("utf-8")
        verdicts = {llm: judge_all(self.cells, llm) for llm in self.llms}
        return Template(text).substitute(
            command=self.command,
            places=", ".join(f"`{place}`" for place in self.places),
            ran=self._ran(),
            oracles="\n".join(f"- {line}" for line in self._header()),
            rules="\n".join(f"- *{how}*: {words}." for how, (words, _) in RULES.items()),
            never=NEVER,
            summary=_summary(verdicts),
            claims=_claims(verdicts),
            frank="\n\n".join(self._frank(llm, found) for llm, found in verdicts.items()),
            disagreements=len(paper.disagreements()),
            disagreement_table=_disagreements(),
            tables="\n".join(self._tables()).rstrip(),
            times=self._times(),
        )

    @cached_property
    def command(self) -> str:
        """What makes this page."""
        words = ["waysout", "bench", "report"]
        for place in self.places:
            words += ["--results", place]
        words += ["--out", self.out.as_posix()]
        return shlex.join(words + (["--figures", self.figures.as_posix()] if self.figures else []))

    @cached_property
    def llms(self) -> tuple[str, ...]:
        """The LLMs that were asked, real ones first."""
        return tuple(sorted(self.cells.llms, key=lambda llm: (is_simulated(llm), llm)))

    def files(self) -> Iterator[tuple[Path, bytes]]:
        """Yield the page and then its pictures: where each belongs, and what is in it."""
        if not len(self.cells):
            raise InputError("there are no searches in these results: waysout bench run PLAN")
        yield self.out, self.page().encode()
        for picture in self.pictures() if self.figures else ():
            figure = plots.draw(picture.name, self.cells, llm=picture.llm, arms=picture.arms)
            yield Path(self.figures or "", picture.file), plots.to_svg(figure)

    def pictures(self) -> list[Shown]:
        """Return the pictures that the page shows."""
        return [picture for llm in self.llms for picture in self._pictures_of(llm)]

    # What was run ------------------------------------------------------------------------------

    def _ran(self) -> str:
        rows: dict[str, list[tuple[str, ...]]] = {}
        for llm in (*self.llms, ""):
            for plan in map(known_plan, plan_names()):
                cells = self._of_plan(plan, llm)
                wanted = sum(arm.queries for arm in plan.arms if arm.asks_llm is bool(llm))
                if cells:
                    count = f"{len(cells):,} of {wanted:,}"
                    rows.setdefault(_who(llm), []).append((_code(plan.name), count, *_spent(cells)))
        every = list(self.cells)
        rows["all together"] = [("", f"{len(every):,}", *_spent(every))]
        heads = ("plan", "searches", "LLM calls", "tokens read", "tokens written")
        return _grids(heads, rows, numbers=4)

    def _of_plan(self, plan: ExperimentPlan, llm: str) -> list[Cell]:
        """Return a plan's cells with an LLM, or those that ask none."""
        view = self._view(plan, llm)
        arms = [arm for arm in plan.arms if arm.asks_llm is bool(llm)]
        return [cell for arm in arms for cell in view.of(arm).cells.values()]

    def _view(self, plan: ExperimentPlan, llm: str) -> View:
        return View(plan, self.cells, llm, (llm,))

    def _header(self) -> Iterator[str]:
        """Say which oracles and which code."""
        plans = [known_plan(name) for name in plan_names()]
        arms = {arm.id: arm for plan in plans for arm in plan.arms}
        most = max(plan.queries for plan in plans)
        every = replace(plans[0], arms=tuple(arms.values()), queries=most)
        lines = View(every, self.cells, "", self.llms).header()
        yield from (
            escape_markdown(line) for line in lines if not line.startswith(("LLM:", "Queries:"))
        )

    def _times(self) -> str:
        rows: dict[str, list[tuple[str, ...]]] = {}
        for plan in map(known_plan, plan_names()):
            for llm in self._asked(plan):
                cells = {cell.key: cell for one in {llm, ""} for cell in self._of_plan(plan, one)}
                whole, llms = (sum(cell.value(name) or 0.0 for cell in cells.values())
                               for name in ("seconds", "llm_seconds"))  # fmt: skip
                figures = (_clock(whole), _clock(llms), f"{whole / len(cells):.2f}")
                told = (_code(plan.name), f"{len(cells):,}", *figures)
                rows.setdefault(_who(llm), []).append(told)
        heads = ("plan", "searches", "all of them, summed", "of it waiting for the LLM",
                 "seconds a search")  # fmt: skip
        return _grids(heads, rows, numbers=4)

    # Tables ------------------------------------------------------------------------------------

    def _tables(self) -> Iterator[str]:
        for name, entry in TABLES.items():
            plan = known_plan(entry.plan)
            llms = self._asked(plan)
            if llms:
                yield f"### `{name}`: {escape_markdown(plan.title)}\n"
            for llm in [""] if llms and entry.every_llm else llms:
                made = build(name, self.cells, llm=llm or None, places=self.places)
                yield from (_folded(table, llm) for table in made)
                yield from (p.link(self.out, self.figures) for p in self._pictures_of(llm)
                            if self.figures and p.table == name)  # fmt: skip

    def _asked(self, plan: ExperimentPlan) -> list[str]:
        """Return the LLMs with enough of a plan to show; an empty name for a plan without any."""
        if not any(arm.asks_llm for arm in plan.arms):
            return [""] if self._of_plan(plan, "") else []
        return [llm for llm in self.llms if self._share(plan, llm) > ENOUGH]

    def _share(self, plan: ExperimentPlan, llm: str) -> float:
        """Return how many of a plan's arms were run, on the data set with most of them."""
        view, shares = self._view(plan, llm), [0.0]
        for data in plan.datasets:
            ran = [sample.n > 0 for sample in view.samples(data) if sample.arm.asks_llm]
            shares += [sum(ran) / len(ran)] if ran else []
        return max(shares)

    def _pictures_of(self, llm: str) -> list[Shown]:
        return [Shown(name, table, arms, llm) for name, table, arms in PICTURES
                if llm and self._has(known_plan(TABLES[table].plan), llm, arms)]  # fmt: skip

    def _has(self, plan: ExperimentPlan, llm: str, arms: Sequence[str]) -> bool:
        """Whether there is enough of a plan, and some data set with searches of all these arms."""
        if llm not in self._asked(plan):
            return False
        view = self._view(plan, llm)
        ran = ({s.arm.name for s in view.samples(data) if s.n} for data in plan.datasets)
        return any(ran_here.issuperset(arms) for ran_here in ran)

    # What to make of it ------------------------------------------------------------------------

    def _frank(self, llm: str, verdicts: Sequence[ClaimVerdict]) -> str:
        told = [f"**{escape_markdown(llm_words(llm))}**", ""]
        for word in ("supported", "mixed", "undecided", "not supported", "not run"):
            titles = [
                escape_markdown(_titled(verdict)) for verdict in verdicts if verdict.word == word
            ]
            if titles:
                told.append(f"- {word.capitalize()} ({len(titles)}): {'; '.join(titles)}.")
        return "\n".join([*told, *self._level(llm)])

    def _level(self, llm: str) -> Iterator[str]:
        """Say how far our yields are from the paper's, and whether arms are in the same order."""
        view = self._view(known_plan("llm-budget"), llm)
        parts = []
        for data in view.plan.datasets:
            means = [
                (sample.mean("unique_valid"), _published(sample)) for sample in view.samples(data)
            ]
            known = [(ours, theirs) for ours, theirs in means if None not in (ours, theirs)]
            if len(known) > 2:
                ours, theirs = np.array(known, dtype=np.float64).T
                share = f"{ours.sum() / theirs.sum():.0%} of the paper's"
                parts.append(f"{title_of(data)} {share}, {_rank(ours, theirs)}")
        if parts:
            yield (
                "- Yields of the paper's arms under the same calls, summed over the arms, and "
                f"Spearman's rank correlation with the paper's order of them: {'; '.join(parts)}."
            )


@dataclass(frozen=True)
class Shown:
    """A picture on the page: after which table it stands, of which arms and LLM it is."""

    name: str
    table: str
    arms: tuple[str, ...]
    llm: str

    @property
    def file(self) -> str:
        """What its file is called."""
        parts = [self.name, *self.arms, short_llm(self.llm)]
        return re.sub(r"[^a-z0-9.]+", "-", "-".join(parts).lower()).strip("-.") + ".svg"

    def link(self, page: Path, folder: Path) -> str:
        """Return the picture for a page that lies elsewhere."""
        way = Path(os.path.relpath(folder, page.parent)).as_posix()
        return f"![{escape_markdown(self._words)}]({way}/{self.file})\n"

    @property
    def _words(self) -> str:
        of = f" ({' and '.join(self.arms)})" if self.arms else ""
        return f"{plots.PICTURES[self.name].what}{of}; LLM: {short_llm(self.llm)}"


def short_llm(llm: str) -> str:
    """Return an LLM's name without its folder and its server.

    >>> short_llm("openai:google/gemma-3-12b-it@http://localhost:8000/v1"), short_llm("simulated:1")
    ('gemma-3-12b-it', 'simulated:1')
    """
    return llm.partition("@")[0].rpartition("/")[2]


# Claims ----------------------------------------------------------------------------------------


def _summary(verdicts: Mapping[str, Sequence[ClaimVerdict]]) -> str:
    rows = [
        (_link(found[0].claim.title), *(v.words for v in found))
        for found in zip(*verdicts.values(), strict=True)
    ]
    return _grid(("claim", *(llm_words(llm) for llm in verdicts)), rows)


def _link(title: str) -> _Written:
    """Return a link to a heading of this page, as GitHub names it."""
    anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    return _Written(f"[{escape_markdown(title)}](#{anchor})")


def _claims(verdicts: Mapping[str, Sequence[ClaimVerdict]]) -> str:
    return "\n\n".join(_claim(found) for found in zip(*verdicts.values(), strict=True))


def _claim(found: Sequence[ClaimVerdict]) -> str:
    claim = found[0].claim
    parts = [f"### {claim.title}", ""]
    parts += [f"The paper: {escape_markdown(claim.says)}", ""] if claim.says else []
    parts += [escape_markdown(claim.remark), ""] if claim.remark else []
    parts += [f"- {escape_markdown(llm_words(v.llm))}: **{v.words}**" for v in found]
    rows = {llm_words(v.llm): [_outcome_row(outcome) for outcome in v.outcomes if outcome.was_run]
            for v in found}  # fmt: skip
    if any(rows.values()):
        heads = ("data set", "metric", "A", "B", "n", "mean A", "mean B", "B − A",
                 "95 % interval", "p", "the paper's A → B", "must be", "is it?")  # fmt: skip
        table = _grids(heads, rows)
        parts += ["", f"<details><summary>Numbers (`{claim.plan}`)</summary>", "", table, "",
                  "</details>"]  # fmt: skip
    return "\n".join(parts)


def _outcome_row(outcome: ClaimOutcome) -> tuple[str, ...]:
    expected, found = outcome.expected, outcome.found
    digits = MEASURES[expected.metric].digits if expected.metric in MEASURES else 2
    metric = expected.metric.replace("_", " ")
    metric = f"{metric} against {expected.other.replace('_', ' ')}" if expected.other else metric
    answer = outcome.answer if expected.is_judged else ""
    interval = (
        ""
        if found.low is None
        else f"[{_number(found.low, digits)}, {_number(found.high, digits)}]"
    )
    theirs = [_number(value, digits) for value in outcome.theirs]
    return (
        title_of(outcome.data), metric, outcome.a, outcome.b, str(found.n),
        _number(found.mean_a, digits), _number(found.mean_b, digits),
        _number(found.delta, digits, "+"), interval,
        "" if found.p is None else f"{found.p:.2g}",
        " → ".join(theirs) if all(theirs) else "", expected.how, answer,
    )  # fmt: skip


# Words and tables ------------------------------------------------------------------------------


def _number(value: float | None, digits: int, sign: str = "") -> str:
    # Adding 0 makes a plain zero of a negative one, which rounding leaves behind.
    return "" if value is None else f"{round(value, digits) + 0.0:{sign}.{digits}f}"


def _titled(verdict: ClaimVerdict) -> str:
    """Name a claim, with what each data set says if they differ or were not all run."""
    return f"{verdict.claim.title}{f' ({verdict.where})' if verdict.where else ''}"


def _published(sample: ArmSample) -> float | None:
    value = paper.number(llm_budget_row(sample.arm), "unique_valid")
    return value if isinstance(value, float) else None


def _rank(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> str:
    from scipy import stats

    if not np.ptp(ours):  # nothing is in any order
        return "no rank correlation"
    return f"rank correlation {stats.spearmanr(ours, theirs).statistic:.2f}"


def _who(llm: str) -> str:
    return llm_words(llm) if llm else "none is asked"


def _code(name: str) -> _Written:
    return _Written(f"`{name}`")


def _spent(cells: Sequence[Cell]) -> tuple[str, ...]:
    kept = list(cells)
    sums = (
        sum(cell.value(name) or 0.0 for cell in kept)
        for name in ("calls", "tokens_in", "tokens_out")
    )
    return tuple(f"{value:,.0f}" for value in sums)


def _clock(seconds: float) -> str:
    """Write a time so that it can be read.

    >>> _clock(42.4), _clock(4000), _clock(100_000)
    ('42 s', '1 h 7 min', '27 h 47 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _disagreements() -> str:
    rows = [(title_of(d.data), d.what, f"{d.one_value} ({d.one})", f"{d.other_value} ({d.other})")
            for d in paper.disagreements()]  # fmt: skip
    return _grid(("data set", "what", "one value", "another"), rows)


def _folded(table: ResultTable, llm: str) -> str:
    """Return a table in Markdown, under a heading with its LLM; its lines are folded if many."""
    whose = f", {llm_words(llm)}" if llm else ""
    text = render([replace(table, title=f"{table.title}{whose}")], "markdown")
    text = f"#{text}"
    if len(table.lines) <= LONG:
        return text
    lines = text.splitlines()
    grid = [i for i, line in enumerate(lines) if line.startswith("|")]
    fold = [f"<details><summary>{len(table.lines)} lines</summary>", ""]
    end = ["", "</details>"]
    return "\n".join([*lines[: grid[0]], *fold, *lines[grid[0] : grid[-1] + 1], *end,
                      *lines[grid[-1] + 1 :]]) + "\n"  # fmt: skip


def _grids(
    heads: Sequence[str], rows: Mapping[str, Sequence[Sequence[str]]], numbers: int = 0
) -> str:
    """Return a table of each LLM under its name: as a column names would make tables too wide."""
    return "\n\n".join(
        f"**{escape_markdown(name)}**\n\n{_grid(heads, found, numbers)}"
        for name, found in rows.items()
        if found
    )


def _grid(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """Return a Markdown table whose last columns are numbers."""
    rule = ["---"] * (len(heads) - numbers) + ["---:"] * numbers
    lines = [[escape_markdown(head) for head in heads], rule]
    lines += [
        [cell if isinstance(cell, _Written) else escape_markdown(cell) for cell in row]
        for row in rows
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


class _Written(str):
    """A cell that is Markdown already; all others are escaped."""
