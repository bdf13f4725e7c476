"""What all tables are made of: an arm's searches, their means, paired comparisons, a header."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import groupby
from urllib.parse import parse_qsl

from waysout.bench import paper
from waysout.bench.arms import Arm, ExperimentPlan
from waysout.bench.cell import Cell, Cells
from waysout.bench.stats import Paired, non_empty_mean, paired, zeros
from waysout.bench.table import NOT_DEFINED, NOT_RUN, Figure, Number, ResultTable, TableLine
from waysout.datasets.queries import QueryList, query_list
from waysout.domain.result import OutcomeKind
from waysout.llm.connect import stand_in

Mean = Callable[[Iterable[float | None]], float | None]
Find = Callable[[Arm], paper.PaperRow]
"""Finds the paper's row of an arm by the arm's name."""


@dataclass(frozen=True)
class Metric:
    """A column: its title, its name in cells, its digits, and its name in the paper's files."""

    title: str
    name: str
    digits: int = 2
    paper: str = ""


UNIQUE = Metric("unique valid", "unique_valid", 2, "unique_valid")
PROXIMITY = Metric("proximity", "proximity", 3, "proximity")
SPARSITY = Metric("sparsity", "sparsity", 3, "sparsity")
NOVELTY = Metric("novelty", "novelty", 3, "novelty")
PRUNED = Metric("prune %", "prune_pct", 2, "prune_pct")
ROWS = Metric("oracle rows", "rows", 1, "oracle_evals")
CALLS = Metric("calls", "calls", 1)
VALIDITY = Metric("validity %", "validity_pct", 1, "validity_pct")
# Differences of means are small: one more digit.
FINE = (UNIQUE, *(replace(m, digits=4) for m in (PROXIMITY, SPARSITY, NOVELTY)))
NON_EMPTY = (
    "Means: proximity, sparsity and novelty over the queries with an option (non-empty means), "
    "prune % and validity % over those with a candidate, all else over all queries. Prune % is "
    "pruned / (pruned + evaluated): candidates that break the format or a rule are in neither."
)
METRIC = "metric"
PAIRED_COLUMNS = ("n", "A", "B", "Δ", "low", "high", "t", "p", "dz")
PAIRED = (
    "Δ is the mean of B − A over the n queries that both have a value for; low and high are its "
    "95 % interval (percentile bootstrap, 10,000 resamples, seed 42); t and p: two-tailed paired "
    "t-test; dz = t/√n. No correction for the number of tests."
)
SAME_DIFFERENCE = (
    f"{NOT_DEFINED}: every query shows the same difference, or there are fewer than two: "
    "there is no spread to test against."
)


@lru_cache(maxsize=16)
def stored(data: str) -> QueryList:
    """Return the stored queries of a data set, in their order."""
    return query_list(data)


@dataclass(frozen=True)
class ArmSample:
    """An arm's finished searches by query, of all that are ``wanted``, in the stored order."""

    arm: Arm
    wanted: tuple[int, ...]
    cells: dict[int, Cell]

    @property
    def n(self) -> int:
        """The number of finished searches."""
        return len(self.cells)

    @property
    def complete(self) -> bool:
        """Whether every wanted search is finished."""
        return self.n == len(self.wanted) > 0

    def values(self, name: str) -> list[float | None]:
        """Return a figure of each finished search."""
        return [cell.value(name) for cell in self.cells.values()]

    def mean(self, name: str, mean: Mean = non_empty_mean) -> float | None:
        """Return the mean of a figure, over the searches that have it unless ``mean`` differs."""
        return mean(self.values(name))

    def at(self, positions: Sequence[int]) -> ArmSample:
        """Return the part for some of the queries, given by their positions in the stored order."""
        wanted = tuple(self.wanted[i] for i in positions)
        cells = {query: self.cells[query] for query in wanted if query in self.cells}
        return replace(self, wanted=wanted, cells=cells)

    def count(self) -> Figure:
        """Return the number of finished searches, and of how many where some are missing."""
        some = f"{self.n} of {len(self.wanted)}" if self.n else NOT_RUN
        return Figure(float(self.n) if self.complete else some, digits=0)

    def empty(self) -> Figure:
        """Return the number of queries for which nothing was found."""
        found = sum(not cell.value("unique_valid") for cell in self.cells.values())
        return Figure(float(found) if self.n else None, digits=0)


@dataclass(frozen=True)
class View:
    """A plan's searches with one LLM, and the header of tables made of them.

    ``llms`` are all LLMs that the plan's arms were run with. ``own`` is the plan of ours that has
    the paper's arms, where ``plan`` is another.
    """

    plan: ExperimentPlan
    cells: Cells
    llm: str
    llms: tuple[str, ...]
    command: str = ""
    own: ExperimentPlan | None = None

    def of(self, arm: Arm) -> ArmSample:
        """Return the searches of an arm."""
        wanted = arm.query_rows[: self.plan.queries]
        there = self.cells.of(arm, self.llm)
        return ArmSample(arm, wanted, {q: there[q] for q in wanted if q in there})

    def samples(self, data: str) -> list[ArmSample]:
        """Return the searches of each arm on a data set, in the plan's order."""
        return [self.of(arm) for arm in self.plan.arms if arm.data == data]

    def sample(self, data: str, name: str) -> ArmSample | None:
        """Return the searches of an arm by name; None where the plan has no such arm."""
        arms = (arm for arm in self.plan.arms if (arm.data, arm.name) == (data, name))
        return next((self.of(arm) for arm in arms), None)

    def papers(self, arm: Arm) -> Arm | None:
        """Return the arm of our own plan that searches as this one does, whatever its name."""
        return self._papers.get(arm.id)

    @cached_property
    def _papers(self) -> dict[str, Arm]:
        return {arm.id: arm for arm in (self.own or self.plan).arms}

    def row(self, arm: Arm, find: Find) -> paper.PaperRow:
        """Return the paper's row of an arm; an empty one where the settings are not the paper's."""
        same = self.papers(arm)
        return {} if same is None else find(same)

    def unlike(self, find: Find) -> list[str]:
        """Return a note on the arms that have a name of the paper's but other settings."""
        unlike = [a for a in self.plan.arms if self.papers(a) is None and find(a)]
        names = list(dict.fromkeys(f"{title_of(arm.data)}, {arm.name}" for arm in unlike))
        return [other_settings(names)] if names else []

    def table(
        self,
        name: str,
        title: str,
        labels: Sequence[str],
        columns: Sequence[str],
        lines: Iterable[TableLine],
        about: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> ResultTable:
        """Return a table with the header and the notes that all have."""
        lines = tuple(shortened(lines, by_metric=labels[-1] == METRIC))
        made = ResultTable(name, title, (), tuple(labels), tuple(columns), lines, (), self.command)
        theirs = [THEIRS] if made.has_paper else []
        found = list(notes)
        if any(figure.ours == NOT_DEFINED for line in lines for figure in line.figures):
            found.append(SAME_DIFFERENCE)
        if any(isinstance(n := line.figures[0].ours, str) and n != NOT_RUN for line in lines):
            found.append(
                "Lines with fewer searches than wanted are means over other queries than the rest."
            )
        kinds = (OutcomeKind.ALREADY_APPROVED, OutcomeKind.INFEASIBLE)
        counts = Counter(cell.outcome for cell in self._used() if cell.outcome in kinds)
        if counts:
            kinds_found = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()))
            found.append(
                f"Queries with nothing to search for count as a yield of 0: {kinds_found}."
            )
        about = (*self.header(), *theirs, *about)
        return replace(made, about=about, notes=tuple(found))

    def header(self) -> Iterator[str]:
        """Say which LLM, oracles, queries and code the figures come from."""
        used = self._used()
        asked = any(arm.asks_llm for arm in self.plan.arms)
        names = [llm_words(llm) for llm in self._llms() if llm and asked]
        yield f"LLM: {'; '.join(names) or 'none is asked'}"
        oracles = []
        for data, sha in dict.fromkeys((cell.data, cell.oracle) for cell in used):
            queries = stored(data)
            # The rows that measure an oracle also ended its training early, as in the paper.
            accuracy = f", accuracy {queries.accuracy:.3f} (optimistic)"
            oracles.append(f"{data} {sha[:12]}{accuracy if queries.oracle_sha256 == sha else ''}")
        yield f"Oracles (LightGBM): {'; '.join(oracles) or 'unknown'}"
        listed = any(arm.rows_of for arm in self.plan.arms)
        with_others = any("others" in arm.query_sets for arm in self.plan.arms)
        which = "rows that the plan lists" if listed else "stored queries"
        which += " and others" if with_others and not listed else ""
        if self.plan.reading:
            yield f"Reading of the paper: {self.plan.reading}"
        yield f"Queries: the first {self.plan.queries} {which} of each data set"
        counts = Counter(f"waysout {cell.version} commit {short(cell.commit)}" for cell in used)
        codes = [f"{code} ({n} searches)" for code, n in counts.most_common(MOST_NAMED)]
        others = len(counts) - len(codes)
        yield f"Code: {', '.join([*codes, *([f'{others} more'] if others else [])])}"

    def _used(self) -> list[Cell]:
        """Return the cells, those of arms that ask no LLM once."""
        found = {cell.key: cell for arm in self.plan.arms for llm in self._llms()
                 for cell in replace(self, llm=llm).of(arm).cells.values()}  # fmt: skip
        return list(found.values())

    def _llms(self) -> tuple[str, ...]:
        return (self.llm,) if self.llm else self.llms or ("",)


MOST_NAMED = 3
THEIRS = (
    f"ours / paper: beneath our figures are the paper's where it has them ({paper.LLM}, with its "
    "own oracles, queries and key)"
)


def real_first(llms: Iterable[str], cells: Cells) -> tuple[str, ...]:
    """Return LLMs in order: real ones, then scripted and simulated ones.

    Of each kind the one with most searches comes first.
    """
    ran = Counter(cell.llm for cell in cells)
    return tuple(sorted(llms, key=lambda llm: (stand_in(llm), -ran[llm], llm)))


def llm_words(llm: str) -> str:
    """Return an LLM's name for readers, without a server's address.

    >>> llm_words("simulated:1"), llm_words("openai:gemma@http://localhost:80")
    ('simulated:1 (simulated: no language model)', 'openai:gemma')
    >>> llm_words("transformers:qwen.gguf@10?top_k=20&min_p=0.05")
    'transformers:qwen.gguf (top-k 20, min-p 0.05)'
    """
    if instead := stand_in(llm):
        return f"{llm} ({instead}: no language model)"
    name, _, rest = llm.partition("@")
    if not llm.startswith("transformers:"):
        return name
    # A file's name tells its size, and how it was sampled where the temperature was not all.
    drawn = ", ".join(" ".join(pair) for pair in parse_qsl((rest or name).partition("?")[2]))
    drawn = drawn.replace("_p ", "-p ").replace("_k ", "-k ").replace("_", " ")
    how = drawn or ("temperature alone" if rest else "")
    return f"{name.partition('?')[0]} ({how})" if how else name


def short(commit: str) -> str:
    """Return a commit short enough to read; what follows it about changes is kept."""
    sha, plus, changes = commit.partition("+")
    return f"{sha[:12]}{plus}{changes}" or "unknown"


def other_settings(names: Sequence[str]) -> str:
    """Say that arms are not the paper's, in spite of their names."""
    named, others = "; ".join(names[:MOST_NAMED]), len(names) - MOST_NAMED
    more = f"; {others} more" if others > 0 else ""
    return f"Other settings than in the paper's table, whose figures are left out: {named}{more}."


def run_command(plan: str, places: Sequence[str] = ()) -> str:
    """Return the command that runs a plan, into the folder that the results are read from."""
    folders = [place for place in places if not place.endswith((".jsonl", ".jsonl.gz"))]
    into = ["--results", folders[0]] if folders else []
    return shlex.join(["waysout", "bench", "run", plan, *into])


# Lines -----------------------------------------------------------------------------------------


def shortened(lines: Iterable[TableLine], *, by_metric: bool = False) -> Iterator[TableLine]:
    """Yield lines, with a single one at the end for all data sets that were not run.

    Where the last label is a metric, an arm or a pair that was not run has one line for them all.
    """
    missing: list[TableLine] = []
    for _, group in groupby(lines, key=lambda line: line.labels[0]):
        of_data = list(group)
        if not any(line.was_run for line in of_data):
            missing.append(of_data[0])
            continue
        for _, pair in groupby(of_data, key=lambda line: line.labels[:-1]):
            found = list(pair)
            if by_metric and not any(line.was_run for line in found):
                found = [_not_run(found[0], (*found[0].labels[:-1], ""))]
            yield from found
    if missing:
        names = ", ".join(line.labels[0] for line in missing)
        yield _not_run(missing[-1], (names, *[""] * (len(missing[-1].labels) - 1)))


def _not_run(line: TableLine, labels: tuple[str, ...]) -> TableLine:
    return TableLine(labels, (Figure(NOT_RUN), *[Figure(None)] * (len(line.figures) - 1)))


def mean_line(
    labels: Sequence[str],
    sample: ArmSample,
    measures: Sequence[Metric],
    row: paper.PaperRow | None = None,
    mean: Mean = non_empty_mean,
) -> TableLine:
    """Return a line of an arm: how many searches, their means, and how many found nothing."""
    figures = (sample.count(), *mean_figures(sample, measures, row, mean), sample.empty())
    return TableLine(tuple(labels), figures, sample.arm.id)


def mean_figures(
    sample: ArmSample,
    measures: Sequence[Metric],
    row: paper.PaperRow | None = None,
    mean: Mean = non_empty_mean,
) -> list[Figure]:
    """Return the means of an arm, each with the paper's."""
    return [beside(sample.mean(m.name, mean), row, m.paper, m.digits) for m in measures]


def beside(
    ours: Number,
    row: paper.PaperRow | None,
    column: str,
    digits: int,
    *,
    signed: bool = False,
    general: bool = False,
) -> Figure:
    """Return a figure of ours with the cell of the paper's row, where there is one."""
    there = row or {}
    printed = there.get(column, "")
    return Figure(ours, paper.number(there, column), digits, signed, general, printed)


def paired_line(
    labels: Sequence[str],
    a: ArmSample | None,
    b: ArmSample | None,
    measure: Metric,
    row: paper.PaperRow | None = None,
    *,
    empties_as_zero: bool = False,
) -> TableLine:
    """Return a comparison of two arms on the queries both have finished, and the paper's."""
    runs = " ".join(side.arm.id for side in (a, b) if side is not None and side.n)
    found, count = Paired(0), NOT_RUN
    if a is not None and b is not None and a.n and b.n:
        both = [query for query in a.wanted if query in a.cells and query in b.cells]
        left, right = ([side.cells[query].value(measure.name) for query in both] for side in (a, b))
        found = paired(zeros(left), zeros(right)) if empties_as_zero else paired(left, right)
        wanted = max(len(a.wanted), len(b.wanted))
        count = "" if len(both) == wanted else f"{found.n} ({len(both)}/{wanted} run)"
    row, digits = paper.with_ends(row or {}), measure.digits
    no_test: Number = NOT_DEFINED if found.n else None
    t, p, dz = (no_test if value is None else value for value in (found.t, found.p, found.dz))
    figures = (
        beside(count or float(found.n), row, "n", 0),
        beside(found.mean_a, row, "mean_a", digits),
        beside(found.mean_b, row, "mean_b", digits),
        beside(found.delta, row, "delta", digits, signed=True),
        beside(found.low, row, "low", digits, signed=True),
        beside(found.high, row, "high", digits, signed=True),
        beside(t, row, "t", 2, signed=True),
        beside(p, row, "p", 2, general=True),
        beside(dz, row, "dz", 2, signed=True),
    )
    return TableLine(tuple(labels), figures, runs)


def title_of(data: str) -> str:
    """Return the paper's name of a data set, or ours where it has none."""
    return paper.NAMES.get(data, data)
