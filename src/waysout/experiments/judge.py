"""Whether searches support a claim, by rules that are stated.

A claim is a list of comparisons that must come out in a certain way on each data set. A data set
supports it if all of them do; a claim is supported if all its data sets do, not supported if none
does, and mixed else. One that no search was run for is not judged. The claims: `claims.CLAIMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from waysout.experiments import paper
from waysout.experiments.arms import Arm, Plan
from waysout.experiments.cell import Cells
from waysout.experiments.plan import load_plan
from waysout.experiments.stats import Paired, Setting, best_setting, paired
from waysout.experiments.tables_base import Sample, View, title_of
from waysout.experiments.tables_budget import llm_budget_row

Word = Literal["supported", "not supported", "mixed", "not run"]
How = Literal["more", "less", "no less", "twice", "about", "shown"]
DATASETS = tuple(paper.NAMES)
WIDE = 2.0
NEAR = 0.05


# Rules -----------------------------------------------------------------------------------------


def _ends(found: Paired) -> tuple[float, float]:
    """Return the interval of the difference; one query has none but the difference itself."""
    delta = found.delta or 0.0
    low = delta if found.low is None else found.low
    return low, delta if found.high is None else found.high


def _is_wide(found: Paired) -> bool:
    least = WIDE * (found.mean_a or 0.0)
    return _ends(found)[0] > 0 and (found.mean_b or 0.0) >= least


def _is_near(found: Paired) -> bool:
    return abs(found.delta or 0.0) <= NEAR * abs(found.mean_a or 0.0)


RULES: Mapping[How, tuple[str, Callable[[Paired], bool]]] = {
    "more": ("the interval lies above 0", lambda found: _ends(found)[0] > 0),
    "less": ("the interval lies below 0", lambda found: _ends(found)[1] < 0),
    "no less": ("the interval reaches 0 or lies above it", lambda found: _ends(found)[1] >= 0),
    "twice": (f"the interval lies above 0, and B is {WIDE:g} times A or more", _is_wide),
    "about": (f"the means differ by at most {NEAR:.0%} of A", _is_near),
    "shown": ("for information, not judged", lambda found: True),
}
"""What must hold of B − A (95 % interval of the mean paired difference) for each kind of words."""


# Claims ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """A comparison that must come out as ``how`` says: an arm (B) on a metric, against another (A).

    Both are named by patterns, with ``|`` between alternatives; of several arms that fit, the one
    with the most unique valid options counts. ``other`` is the metric of A where that is another.
    """

    metric: str
    how: How
    arm: str
    than: str
    other: str = ""


@dataclass(frozen=True)
class Claim:
    """What is claimed (``says``), the plan that it is judged on, and what follows from it.

    ``remark`` is what a reader should know. A claim about time is not judged with a simulated LLM,
    which takes none; one that ``chooses`` the best of many settings, only where all were run.
    """

    name: str
    title: str
    says: str
    plan: str
    expected: tuple[Expected, ...]
    datasets: tuple[str, ...] = DATASETS
    remark: str = ""
    about_time: bool = False
    chooses: bool = False

    def judge(self, cells: Cells, llm: str) -> Verdict:
        """Return what the searches with an LLM say."""
        if self.about_time and is_simulated(llm):
            return Verdict(self, llm, ())
        if self.about_time:  # a search that got replies from a file tells no time
            cells = Cells(cell for cell in cells if not cell.value("from_file"))
        view = View(known_plan(self.plan), cells, llm, (llm,))
        outcomes = (_compare(view, data, e, self.chooses)
                    for data in self.datasets for e in self.expected)  # fmt: skip
        return Verdict(self, llm, tuple(outcomes))


@dataclass(frozen=True)
class Outcome:
    """How one comparison came out on one data set, and the paper's means of A and B.

    ``ran`` is how many queries both sides have finished, of those ``wanted``.
    """

    data: str
    expected: Expected
    a: str
    b: str
    found: Paired
    theirs: tuple[float | None, float | None] = (None, None)
    ran: int = 0
    wanted: int = 0

    @property
    def was_run(self) -> bool:
        """Whether there is any query to compare on."""
        return self.found.n > 0

    @property
    def holds(self) -> bool:
        """Whether it came out as it must."""
        return self.was_run and RULES[self.expected.how][1](self.found)


@dataclass(frozen=True)
class Verdict:
    """What an LLM's searches say of a claim."""

    claim: Claim
    llm: str
    outcomes: tuple[Outcome, ...]

    @property
    def by_data(self) -> dict[str, bool]:
        """Whether each data set supports the claim; those that were not run are left out."""
        judged: dict[str, bool] = {}
        for outcome in self.outcomes:
            if outcome.was_run:
                judged[outcome.data] = judged.get(outcome.data, True) and outcome.holds
        return judged

    @property
    def word(self) -> Word:
        """The verdict in a word or two."""
        judged = self.by_data
        if not judged:
            return "not run"
        if all(judged.values()):
            return "supported"
        return "mixed" if any(judged.values()) else "not supported"

    @property
    def words(self) -> str:
        """The verdict with the data sets that it is about, and what speaks against it."""
        judged = self.by_data
        sides = [_named(data for data, holds in judged.items() if holds is side)
                 for side in (True, False)]  # fmt: skip
        told: str = self.word
        if self.word == "mixed":
            told = f"mixed: supported on {sides[0]}, not on {sides[1]}"
        elif judged and len(judged) < len(self.claim.datasets):
            told = f"{self.word} on {_named(judged)}; the rest was not run"
        but = ["simulated"] if judged and is_simulated(self.llm) else []
        fewest = min((o for o in self.outcomes if o.was_run), key=lambda o: o.ran, default=None)
        if fewest is not None and fewest.ran < fewest.wanted:
            but.append(f"{fewest.ran} of {fewest.wanted} queries")
        return f"{told} ({', '.join(but)})" if but else told


@lru_cache(maxsize=32)
def known_plan(name: str) -> Plan:
    """Return a plan of ours, which is read once: it takes longer than to judge by it."""
    return load_plan(name)


def is_simulated(llm: str) -> bool:
    """Whether an LLM is the simulated one."""
    return llm.startswith("simulated")


def _named(datasets: Iterable[str]) -> str:
    return ", ".join(title_of(data) for data in datasets)


# Comparing -------------------------------------------------------------------------------------


def _compare(view: View, data: str, expected: Expected, chooses: bool) -> Outcome:
    sides = [_fitting(view, data, pattern) for pattern in (expected.than, expected.arm)]
    whole = all(sample.complete for samples in sides for sample in samples)
    a, b = (_best(samples) for samples in sides)
    if a is None or b is None or (chooses and not whole):
        return Outcome(data, expected, expected.than, expected.arm, Paired(0))
    both = [query for query in a.wanted if query in a.cells and query in b.cells]
    metric, other = expected.metric, expected.other or expected.metric
    found = paired(
        [a.cells[query].value(other) for query in both],
        [b.cells[query].value(metric) for query in both],
    )
    plan = view.plan.name
    theirs = _of_paper(plan, a.arm, other), _of_paper(plan, b.arm, metric)
    names = [f"{best.arm.name}{_of_how_many(samples)}"
             for best, samples in zip((a, b), sides, strict=True)]  # fmt: skip
    wanted = max(len(a.wanted), len(b.wanted))
    return Outcome(data, expected, names[0], names[1], found, theirs, len(both), wanted)


def _of_how_many(fitting: Sequence[Sample]) -> str:
    """Say so where the best is one of fewer arms than there are."""
    run = sum(sample.n > 0 for sample in fitting)
    return "" if run == len(fitting) else f" (of {run} of {len(fitting)} arms that were run)"


def _fitting(view: View, data: str, pattern: str) -> list[Sample]:
    return [sample for sample in view.samples(data)
            if any(fnmatchcase(sample.arm.name, one) for one in pattern.split("|"))]  # fmt: skip


def _best(fitting: Sequence[Sample]) -> Sample | None:
    """Return the arm with the highest yield; of settings of pruning as the tables choose it."""
    samples = [sample for sample in fitting if sample.n]
    # Where some have all their searches the others were judged on other queries.
    whole = [sample for sample in samples if sample.complete] or samples
    settings = {_setting(sample): sample for sample in whole}
    if len(whole) > 1 and None not in settings:
        means = {s: one.mean("unique_valid") or 0.0 for s, one in settings.items() if s}
        return settings[best_setting(means)]
    return max(whole, key=lambda sample: sample.mean("unique_valid") or 0.0, default=None)


def _setting(sample: Sample) -> Setting | None:
    settings = sample.arm.settings
    known = "scope" in settings and "threshold" in settings
    return (settings["scope"], float(settings["threshold"])) if known else None


_PAPER_COLUMNS = {"rows": "oracle_evals"}


def _of_paper(plan: str, arm: Arm, metric: str) -> float | None:
    column = _PAPER_COLUMNS.get(metric, metric)
    if plan == "reward-weights" and metric == "unique_valid":
        column = "yield"
    value = paper.number(_PAPER_ROWS[plan](arm), column) if plan in _PAPER_ROWS else None
    return value if isinstance(value, float) else None


def _sweep_row(arm: Arm) -> paper.PaperRow:
    if arm.settings["pruning"] == "none":
        return paper.best("pruning_best_all30", arm.data, "No pruning")
    return paper.find(
        "pruning_sweep24",
        dataset=title_of(arm.data),
        method=arm.paper,
        scope=arm.settings["scope"].capitalize(),
        threshold=f"{arm.settings['threshold']:g}",
    )


_PAPER_ROWS: Mapping[str, Callable[[Arm], paper.PaperRow]] = {
    "llm-budget": llm_budget_row,
    "reward-weights": lambda arm: paper.find(
        "reward_weights", dataset=title_of(arm.data), setting=arm.paper
    ),
    "pruning-sweep": _sweep_row,
    "compressors": lambda arm: paper.find("compressors", compressor=arm.paper),
}
