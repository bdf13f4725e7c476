"""The page of results: what to learn, a verdict on each claim, and how to print every table.

The page is a function of the cells and the code alone, so that a test can find a stale one. Its
prose is in ``report.txt``.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from itertools import groupby
from pathlib import Path
from string import Template

from waysout.bench import paper
from waysout.bench.arms import ExperimentPlan
from waysout.bench.cell import Cell, Cells
from waysout.bench.judge import NEVER, RULES, known_plan
from waysout.bench.plan import plan_names
from waysout.bench.readings import DEFAULT, ELEMENTS, MARK, others
from waysout.bench.render import Markdown, markdown_grid, render
from waysout.bench.report_claims import (
    MOST,
    Verdicts,
    claim_table,
    effect_table,
    other_verdicts,
    short_llm,
)
from waysout.bench.report_lesson import Lesson
from waysout.bench.table import ResultTable
from waysout.bench.tables import TABLES, build
from waysout.bench.tables_base import View, real_first, title_of
from waysout.errors import InputError
from waysout.llm.connect import stand_in
from waysout.report.tables import escape_markdown
from waysout.report.words import clean

ENOUGH = 0.5
"""More than this share of a plan's searches must have been run to list another reading of it."""


@dataclass(frozen=True)
class Report:
    """A page about cells; ``tables`` is a folder for all tables, one file each."""

    cells: Cells
    places: Sequence[str]
    out: Path
    tables: Path | None = None

    def page(self) -> str:
        """Return the page, in Markdown."""
        verdicts = Verdicts(self.cells, self.llms)
        contradictions, (first,) = paper.disagreements(), others(DEFAULT)
        text = (resources.files("waysout.bench") / "report.txt").read_text("utf-8")
        return Template(text).substitute(
            command=self.command,
            lesson=Lesson(self._view(known_plan("llm-budget"), self._llm("llm-budget"))).text(),
            no_llm_command=self._table_command("no-llm", ""),
            main=_names(verdicts.main[DEFAULT]),
            first=_names(verdicts.main[first]),
            claims=claim_table(verdicts),
            effects=effect_table(verdicts),
            claims_command=self._table_command("claims", ""),
            most=f"{MOST:,}",
            rules="\n".join(f"- *{how}*: {words}." for how, words in RULES.items()),
            never=NEVER,
            others=other_verdicts(verdicts),
            readings=_grid(
                ("what is open", "setting", "first reading", "settled", "what decides"),
                [(e.what, Markdown(e.setting), Markdown(e.first), Markdown(e.settled),
                  Markdown(e.evidence)) for e in ELEMENTS],
            ),
            nearer=self._nearer(),
            disagreements=len(contradictions),
            disagreement_list="\n".join(_disagreements(contradictions)),
            ran=self._ran(),
            oracles="\n".join(f"- {escape_markdown(line)}" for line in self._header()),
            tables="\n".join(self._commands()),
        )  # fmt: skip

    def files(self) -> Iterator[tuple[Path, bytes]]:
        """Yield the page and then its tables: the path and the content of each file."""
        if not len(self.cells):
            raise InputError(
                "there are no searches in these results; run some with: waysout bench run PLAN"
            )
        yield self.out, self.page().encode()
        for name, llm in self.listed() if self.tables else ():
            text = render(self._built(name, llm), "markdown")
            yield Path(self.tables or "", f"{name}.md"), text.encode(errors="replace")

    @cached_property
    def command(self) -> str:
        """The command that writes this page."""
        return _shell(["waysout", "bench", "report", *self._from, "--out", self.out.as_posix()])

    @property
    def _from(self) -> list[str]:
        return [word for place in self.places for word in ("--results", place)]

    @cached_property
    def llms(self) -> tuple[str, ...]:
        """The LLMs that were used: real ones first, then scripted and simulated ones."""
        return real_first(self.cells.llms, self.cells)

    def _llm(self, plan: str) -> str:
        """Return the LLM with most searches of a plan, a real one if there is any."""
        ranked = Verdicts(self.cells, self.llms).ranked(known_plan(plan))
        return min(ranked, key=lambda llm: bool(stand_in(llm)), default="")

    def _view(self, plan: ExperimentPlan, llm: str) -> View:
        return View(plan, self.cells, llm, self.llms)

    # Tables ------------------------------------------------------------------------------------

    def listed(self) -> list[tuple[str, str]]:
        """Return the tables of which something was run, each with the LLM it is shown for."""
        found = []
        for name, entry in TABLES.items():
            plan = known_plan(entry.plan)
            llm = self._llm(entry.plan) if any(arm.asks_llm for arm in plan.arms) else ""
            if llm or any(self._of_plan(plan, "")):
                found.append((name, "" if entry.every_llm else llm))
        return found

    def _built(self, name: str, llm: str) -> list[ResultTable]:
        return build(name, self.cells, llm=llm or None, places=self.places)

    def _table_command(self, name: str, llm: str) -> str:
        words = ["waysout", "bench", "table", name, *self._from]
        return _shell([*words, *(["--llm", llm] if llm else [])])

    def _commands(self) -> Iterator[str]:
        """Yield the command of each table; the LLM that most have is named once."""
        listed = self.listed()
        main = Counter(llm for _, llm in listed if llm and not stand_in(llm)).most_common(1)
        if main:
            yield f"LLM={_shell([main[0][0]])}"
        for name, llm in listed:
            known = bool(main) and llm == main[0][0]
            command = self._table_command(name, "" if known else llm)
            told = "" if name in ("claims", "no-llm") else known_plan(TABLES[name].plan).title
            yield command + ' --llm "$LLM"' * known + (f"  # {told}" if told else "")

    # What was run ------------------------------------------------------------------------------

    def _ran(self) -> str:
        """Return the searches of each plan by LLM, and what they spent."""
        llms = (*self.llms, "")
        rows: list[tuple[str, ...]] = []
        for name in self._plans():
            plan = known_plan(name)
            cells = [self._share(plan, llm) for llm in llms]
            if any(cells):
                rows.append((Markdown(f"`{name}`"), *cells))
        for title, spent in (("calls", "calls"), ("tokens read", "tokens_in"),
                             ("tokens written", "tokens_out")):  # fmt: skip
            rows.append((title, *(_sum(self.cells, llm, spent) if llm else "" for llm in llms)))
        return _grid(("plan", *(_headed(llm) if llm else "no LLM" for llm in llms)), rows)

    def _share(self, plan: ExperimentPlan, llm: str) -> str:
        ran = len(self._of_plan(plan, llm))
        wanted = sum(arm.queries for arm in plan.arms if arm.asks_llm is bool(llm))
        # Readings share what they agree on: a part of another one is no run of it.
        if not ran or (plan.reading != DEFAULT and ran <= ENOUGH * wanted):
            return ""
        return f"{ran:,}" if ran == wanted else f"{ran:,} of {wanted:,}"

    def _plans(self) -> Iterator[str]:
        """Yield the names of all plans, with those of their other readings."""
        for name in plan_names():
            yield name
            for other in others(known_plan(name).reading):
                yield f"{name}{MARK}{other}"

    def _of_plan(self, plan: ExperimentPlan, llm: str) -> list[Cell]:
        """Return a plan's cells with an LLM, or those without one."""
        view = self._view(plan, llm)
        arms = [arm for arm in plan.arms if arm.asks_llm is bool(llm)]
        return [cell for arm in arms for cell in view.of(arm).cells.values()]

    def _header(self) -> Iterator[str]:
        """Yield which oracles and which code all searches were made with."""
        plans = [known_plan(name) for name in plan_names()]
        arms = {arm.id: arm for plan in plans for arm in plan.arms}
        most = max(plan.queries for plan in plans)
        every = replace(plans[0], arms=tuple(arms.values()), queries=most)
        lines = View(every, self.cells, "", self.llms).header()
        yield from (line for line in lines if line.startswith("Oracles"))
        made = Counter(f"waysout {cell.version} commit {cell.commit}" for cell in self.cells)
        yield f"Code: {', '.join(f'{code} ({n:,} searches)' for code, n in made.most_common())}"

    def _nearer(self) -> str:
        """Return, for each LLM, in how many settings of the sweep each reading is nearer."""
        nothing = "The sweep was not run under both readings."
        if ("readings", "") not in self.listed():
            return nothing
        lines = []
        arms = Counter(arm.data for arm in known_plan("pruning-sweep").arms)
        settings = max(arms.values()) - 1  # the one that prunes nothing aside
        for table in self._built("readings", ""):
            if table.name == "readings-nearer":
                parts = [f"{line.labels[0]} {' : '.join(f.ours_text for f in line.figures[1:3])}"
                         for line in table.lines]  # fmt: skip
                llm = escape_markdown(table.title.partition(", ")[2])
                ran = max(int(line.figures[0].ours or 0) for line in table.lines)
                few = f" (only {ran} of {settings} settings)" if ran < settings else ""
                lines.append(f"- {llm}{few}: {', '.join(parts)}")
        return "\n".join(lines) or nothing


def _shell(words: Sequence[str]) -> str:
    """Return a command for a block of code, which no name may end."""
    return clean(shlex.join(words)).replace("`", "'")


def _disagreements(found: Iterable[paper.Disagreement]) -> Iterator[str]:
    """Yield a line for each two tables of the paper that disagree."""
    for (one, other), group in groupby(found, key=lambda d: (d.one, d.other)):
        values = (f"{title_of(d.data)} {d.what.replace('_', ' ')} {d.one_value} / {d.other_value}"
                  for d in group)  # fmt: skip
        yield f"- `{one}` / `{other}`: {escape_markdown('; '.join(values))}"


def _headed(llm: str) -> str:
    return short_llm(llm) + (", no language model" if stand_in(llm) else "")


def _names(llm: str) -> str:
    return escape_markdown(short_llm(llm)) if llm else "none: no real LLM was run"


def _sum(cells: Iterable[Cell], llm: str, name: str) -> str:
    return f"{sum(cell.value(name) or 0.0 for cell in cells if cell.llm == llm):,.0f}"


def _grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return markdown_grid(heads, rows, len(heads), 0)
