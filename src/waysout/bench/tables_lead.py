"""A search that asks no LLM beside those that do, and what an LLM's proposals are worth to these.

The search is recombine without an LLM, for the same queries, oracle rows, rules and key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from waysout.bench import paper
from waysout.bench.judge import known_plan
from waysout.bench.readings import MARK
from waysout.bench.stats import Paired, paired
from waysout.bench.table import Figure, ResultTable, TableLine
from waysout.bench.tables_base import (
    PAIRED,
    PAIRED_COLUMNS,
    UNIQUE,
    ArmSample,
    View,
    llm_words,
    paired_line,
    title_of,
)

PLAN, NAME = "oracle-budget", "recombine rows=150"
MORE = ("pruning-sweep", "reward-weights")
"""Plans whose arms have the budget of those that the search without an LLM is compared with."""
ROWS = 150
CALLED = "recombine, no LLM"
TREES = {"Comp-MCTS, no pruning": "Comp-MCTS without pruning", "LATS standard, K=5": "LATS, K = 5"}
"""The arms whose proposals are weighed, and what they are called: neither prunes."""


def without_llm(view: View, data: str, name: str = NAME) -> ArmSample | None:
    """Return a search without an LLM, counted by the same key as the plan's own."""
    plan = known_plan(f"{PLAN}{MARK}{view.plan.reading}" if view.plan.reading else PLAN)
    sample = replace(view, plan=replace(plan, queries=view.plan.queries)).sample(data, name)
    return sample if sample and sample.n else None


def rivals(view: View, data: str) -> list[ArmSample]:
    """Return the arms that ask an LLM: the plan's own, and those of `MORE` that are none of them.

    These have the same calls, rows, rules and prompt, and differ in how Comp-MCTS prunes and
    rewards.
    """
    found = {one.arm.id: one for one in view.samples(data) if one.arm.asks_llm and one.n}
    for name in MORE:
        plan = known_plan(f"{name}{MARK}{view.plan.reading}" if view.plan.reading else name)
        for one in replace(view, plan=replace(plan, queries=view.plan.queries)).samples(data):
            named = replace(one, arm=replace(one.arm, name=f"Comp-MCTS, {one.arm.name}"))
            if one.n:
                found.setdefault(one.arm.id, named)
    return list(found.values())


def leads(view: View, data: str) -> dict[str, Paired]:
    """Return the lead in unique valid options over each arm that asks an LLM, by its name."""
    ours, found = without_llm(view, data), {}
    for rival in rivals(view, data) if ours else ():
        if ours:
            both = [query for query in rival.wanted if query in rival.cells and query in ours.cells]
            found[rival.arm.name] = paired(
                *([one.cells[query].value(UNIQUE.name) for query in both] for one in (rival, ours))
            )
    return found


@dataclass(frozen=True)
class Worth:
    """What proposals come to: rows that the oracle saw, those it approved, and unique options.

    All are means a query. An option is new where no earlier one has its key.
    """

    rows: float
    valid: float
    unique: float

    @property
    def validity(self) -> float:
        """The share of the rows asked that are approved."""
        return self.valid / self.rows

    @property
    def new(self) -> float:
        """The share of the approved rows that are new."""
        return self.unique / self.valid if self.valid else 0.0

    def validity_for(self, unique: float) -> float:
        """Return the validity at which 150 rows yield so many, as many of them new as here."""
        return unique / (ROWS * self.new) if self.new else float("inf")


def worth(sample: ArmSample | None) -> Worth | None:
    """Return what the proposals of an arm's searches come to."""
    if sample is None or not sample.n:
        return None
    rows, valid, unique = (sample.mean(name) for name in ("evaluated", "valid", UNIQUE.name))
    return Worth(rows, valid or 0.0, unique or 0.0) if rows else None


def papers_worth(data: str) -> Worth | None:
    """Return what the paper's LLM came to without pruning, on its 15 held-out queries."""
    row = paper.selected_row("pruning_heldout", data, "No pruning")
    columns = ("oracle_evals", "validity_pct", "unique_valid")
    rows, share, unique = (paper.number(row, column) for column in columns)
    if not (isinstance(rows, float) and isinstance(share, float) and isinstance(unique, float)):
        return None
    return Worth(rows, rows * share / 100, unique)


def proposals(view: View, data: str) -> Mapping[tuple[str, str], Worth]:
    """Return the worth of each LLM's proposals by arm and LLM, the paper's, and without any."""
    found: dict[tuple[str, str], Worth | None] = {}
    for name, called in TREES.items():
        for llm in (view.llm,) if view.llm else view.llms:
            found[called, llm] = worth(replace(view, llm=llm).sample(data, name))
        if name == "Comp-MCTS, no pruning":
            found[called, paper.LLM] = papers_worth(data)
    found[CALLED, ""] = worth(without_llm(view, data))
    return {key: one for key, one in found.items() if one}


# Tables ------------------------------------------------------------------------------------------


def no_llm(view: View) -> list[ResultTable]:
    """Return the lead over each arm that asks an LLM, and the worth of each LLM's proposals."""
    return [_lead_table(view), _proposal_table(view)]


def _lead_table(view: View) -> ResultTable:
    lines = []
    for llm in (view.llm,) if view.llm else view.llms:
        of_llm = replace(view, llm=llm)
        for data in view.plan.datasets:
            ours = without_llm(of_llm, data)
            lines += [
                paired_line((title_of(data), llm_words(llm), rival.arm.name), rival, ours, UNIQUE)
                for rival in rivals(of_llm, data)
            ]  # fmt: skip
    labels = ("data set", "LLM", "A")
    title = "The lead of recombine without an LLM (B) over each arm that asks one (A)"
    about = (f"Unique valid options; all may ask {ROWS} oracle rows, but LATS with K = 1: 30.",
             PAIRED)  # fmt: skip
    lines.sort(key=lambda line: list(map(title_of, view.plan.datasets)).index(line.labels[0]))
    return view.table("no-llm", title, labels, PAIRED_COLUMNS, lines, about)


def _proposal_table(view: View) -> ResultTable:
    lines = [line for data in view.plan.datasets for line in _proposal_lines(view, data)]
    about = (
        "Means a query, without pruning. Valid: of the rows asked, those approved; new: of these, "
        "those whose key no earlier one has. Needed: the share valid at which 150 rows would yield "
        "as much as recombine without an LLM, at the same share of new ones; more than 100 % "
        f"cannot be. {paper.LLM}: the paper's, with its own oracles, queries and key.",
    )
    columns = ("rows", "valid %", "new %", UNIQUE.title, "needed %")
    labels = ("data set", "search", "proposals")
    return view.table("no-llm-proposals", "What proposals are worth", labels, columns, lines, about)


def _proposal_lines(view: View, data: str) -> Iterator[TableLine]:
    found = proposals(view, data)
    aim = found.get((CALLED, ""))
    for (search, llm), one in found.items():
        needed = 100 * one.validity_for(aim.unique) if aim and one.new and one is not aim else None
        figures = (one.rows, 100 * one.validity, 100 * one.new, one.unique, needed)
        called = llm if llm in ("", paper.LLM) else llm_words(llm)
        yield TableLine((title_of(data), search, called or "its own"),
                        tuple(Figure(value, digits=1) for value in figures))  # fmt: skip
