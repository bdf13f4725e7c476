"""Whether searches support a claim, computed by fixed rules.

A claim is a list of comparisons with an expected outcome on each data set. Each says yes, no or
neither (undecided). A data set supports a claim if all its comparisons say yes, and does not if one
says no. What was not run is listed, never judged. The claims are in `claims.CLAIMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from waysout.bench import paper
from waysout.bench.arms import Arm, ExperimentPlan
from waysout.bench.cell import Cells
from waysout.bench.plan import load_plan
from waysout.bench.readings import DEFAULT as READING
from waysout.bench.readings import MARK
from waysout.bench.stats import Paired, best_setting, halves, paired, pairs_needed
from waysout.bench.tables_arms import llm_budget_row, oracle_row
from waysout.bench.tables_base import ArmSample, View, title_of
from waysout.bench.tables_pruning import sweep_row
from waysout.llm.connect import stand_in

Word = Literal["holds", "does not hold", "undecided", "mixed", "not run"]
How = Literal["more", "less", "no less", "twice", "about", "fails", "shown"]
Answer = Literal["yes", "no", "undecided"]
DATASETS = tuple(paper.NAMES)
WIDE = 2.0
NEAR = 0.05
MARGIN = 0.10
FEWEST = 5
"""With fewer pairs than this, a comparison is undecided whatever its interval."""


# Rules -----------------------------------------------------------------------------------------

RULES: Mapping[How, str] = {
    "more": "yes if the interval lies above 0, no if below, undecided if it contains 0",
    "less": "yes if the interval lies below 0, no if above, undecided if it contains 0",
    "no less": f"yes if the interval lies above −{MARGIN * 100:g} % of A, no if it reaches beyond "
    "that and lies below 0, else undecided",
    "twice": f"yes if the interval of B − {WIDE:g}·A lies above 0, no if below, else undecided",
    "about": f"yes if the interval lies within {NEAR * 100:g} % of A on either side of 0, no if it "
    "lies outside, else undecided",
    "fails": "B is the share of queries with an option, A one half: yes if the interval lies below "
    "0, no if above, else undecided",
    "shown": "for information, not judged",
}
"""What B − A (95 % interval of the mean paired difference) means for each expectation."""


def answer(how: How, found: Paired) -> Answer:
    """Apply a rule; without an interval, the difference is used for both ends.

    For "twice", A has been doubled already: a multiple of its mean would leave out its spread.
    """
    delta, a = found.delta or 0.0, found.mean_a or 0.0
    low = delta if found.low is None else found.low
    high = delta if found.high is None else found.high
    near = NEAR * abs(a)
    yes, no = {
        "more": (low > 0, high < 0),
        "less": (high < 0, low > 0),
        "no less": (low > -MARGIN * abs(a), high < 0),
        "twice": (low > 0, high < 0),
        "about": (-near <= low and high <= near, low > near or high < -near),
        "fails": (high < 0, low > 0),
        "shown": (False, False),
    }[how]
    return "yes" if yes else "no" if no else "undecided"


def queries_to_decide(how: How, found: Paired) -> int | None:
    """Return how many queries would decide a comparison at the effect and the spread seen.

    That is, how many it takes for the 95 % interval to exclude the end of the rule's range that
    the effect is on one side of. None if no number would: the effect is at that very end, or
    unknown.
    """
    if found.sd is None or not (found.mean_a or found.mean_b) or found.n < FEWEST:
        return None
    delta, a = found.delta or 0.0, found.mean_a or 0.0
    margin = MARGIN * abs(a)
    distance = {
        "more": abs(delta),
        "less": abs(delta),
        # Short of the margin more queries will say yes; beyond it they say no once 0 is excluded.
        "no less": delta + margin if delta > -margin else -delta,
        "twice": abs(delta),
        "about": abs(NEAR * abs(a) - abs(delta)),
        "fails": abs(delta),
    }.get(how, 0.0)
    if not distance:
        return None
    # By the bootstrap's interval it was not enough so far, whatever the formula says.
    return max(pairs_needed(found.sd, distance), found.n + 1, FEWEST)


NEVER = (
    f"Fewer than {FEWEST} pairs, or two means of 0, leave every comparison undecided, whatever the "
    "interval is."
)


# Claims ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """A comparison and the outcome expected of it: an arm (B) on a metric, against another (A).

    Both are named by patterns, with ``|`` between alternatives; of several arms that match, the one
    with the most unique valid options counts. ``other`` is A's metric where it is another one.
    ``datasets`` are those that it is about, all of the claim's if none are named.
    """

    metric: str
    how: How
    arm: str
    than: str
    other: str = ""
    datasets: tuple[str, ...] = ()

    def is_about(self, data: str) -> bool:
        """Whether it applies to a data set."""
        return not self.datasets or data in self.datasets

    @property
    def is_judged(self) -> bool:
        """Whether it decides anything."""
        return self.how != "shown"


@dataclass(frozen=True)
class Claim:
    """What is claimed (``says``), the plan that judges it, and the comparisons that follow from it.

    ``beside`` is another plan, whose arms are compared with those of the first. A claim about arms
    that ask no LLM has the same verdict whatever the LLM, and its verdict names none.
    ``remark`` is what a reader should know, ``caveat`` what must stand beside the verdict. A claim
    about time is not judged with a stand-in for an LLM, which takes none. One whose settings are
    ``chosen_on`` all queries, or on half of them to be judged on the others, is judged only where
    every setting has the searches that choose.
    """

    name: str
    title: str
    says: str
    plan: str
    expected: tuple[Expected, ...]
    datasets: tuple[str, ...] = DATASETS
    remark: str = ""
    caveat: str = ""
    about_time: bool = False
    chosen_on: Literal["", "all", "half"] = ""
    beside: str = ""

    def judge(self, cells: Cells, llm: str, reading: str = READING) -> ClaimVerdict:
        """Return the verdict of the searches with an LLM, under a reading of the paper."""
        if self.about_time and stand_in(llm):
            return ClaimVerdict(self, llm, (), reading)
        if self.about_time:  # replies from a file take no time
            cells = Cells(cell for cell in cells if not cell.value("from_file"))
        llm = llm if self.asks_llm else ""
        view = View(self.plan_of(reading), cells, llm, (llm,))
        outcomes = (_compare(view, data, e, self.chosen_on) for data in self.datasets
                    for e in self.expected if e.is_about(data))  # fmt: skip
        return ClaimVerdict(self, llm, tuple(outcomes), reading)

    def plan_of(self, reading: str = READING) -> ExperimentPlan:
        """Return its plan under a reading, with the arms of the one beside it."""
        first, *others = (known_plan(f"{name}{MARK}{reading}")
                          for name in (self.plan, self.beside) if name)  # fmt: skip
        return replace(first, arms=(*first.arms, *(arm for plan in others for arm in plan.arms)))

    @property
    def asks_llm(self) -> bool:
        """Whether searches that it is about ask an LLM."""
        return any(arm.asks_llm for arm in self.plan_of().arms)

    @property
    def judged_on(self) -> tuple[str, ...]:
        """The data sets that can support it; on others comparisons are shown only."""
        judged = [e for e in self.expected if e.is_judged]
        return tuple(data for data in self.datasets if any(e.is_about(data) for e in judged))


@dataclass(frozen=True)
class ClaimOutcome:
    """The outcome of one comparison on one data set, and the paper's means of A and B.

    ``doubled`` is the difference to twice A, where that is what counts. ``ran`` is how many queries
    all its arms have finished, of those ``wanted``; ``arms`` how many of these arms were run at
    all, and how many there are. ``at_once`` is how many searches ran at once, where they are timed.
    """

    data: str
    expected: Expected
    a: str
    b: str
    found: Paired
    theirs: tuple[float | None, float | None] = (None, None)
    ran: int = 0
    wanted: int = 0
    arms: tuple[int, int] = (0, 0)
    doubled: Paired | None = None
    at_once: int = 1

    @property
    def was_run(self) -> bool:
        """Whether there is any query to compare on."""
        return self.ran > 0

    @property
    def is_judged(self) -> bool:
        """Whether it was run and decides anything."""
        return self.was_run and self.expected.is_judged

    @property
    def answer(self) -> Answer:
        """Whether it came out as expected."""
        found = self.found
        if found.n < FEWEST or not (found.mean_a or found.mean_b):
            return "undecided"
        return answer(self.expected.how, self.doubled or found)

    @property
    def tells_apart(self) -> bool:
        """Whether the answer says that the two sides differ, which a t-test is about as well."""
        how, answer = self.expected.how, self.answer
        return (
            answer == "no"
            if how == "no less"
            else (how in ("more", "less", "twice") and answer != "undecided")
        )

    @property
    def queries_to_decide(self) -> int | None:
        """How many queries would decide it, where it is undecided and some number would."""
        if self.answer != "undecided":
            return None
        return queries_to_decide(self.expected.how, self.doubled or self.found)


_VERDICTS: Mapping[Answer, Word] = {
    "yes": "holds",
    "no": "does not hold",
    "undecided": "undecided",
}


@dataclass(frozen=True)
class ClaimVerdict:
    """The verdict of an LLM's searches on a claim, under a reading of the paper."""

    claim: Claim
    llm: str
    outcomes: tuple[ClaimOutcome, ...]
    reading: str = READING

    @property
    def answers(self) -> dict[str, Answer]:
        """The answer of each data set that was run.

        It is yes only if all comparisons of the data set say yes.
        """
        found: dict[str, list[Answer]] = {}
        for outcome in self._judged:
            found.setdefault(outcome.data, []).append(outcome.answer)
        order: tuple[Answer, ...] = ("no", "undecided", "yes")
        return {data: min(answers, key=order.index) for data, answers in found.items()}

    @property
    def word(self) -> Word:
        """The verdict in a word or two, on what was run: ``where`` says on which part that is."""
        given = set(self.answers.values())
        if not given:
            return "not run"
        return _VERDICTS[given.pop()] if len(given) == 1 else "mixed"

    @property
    def where(self) -> str:
        """Which data sets say what, unless all were run, with all comparisons, and agree."""
        answers = self.answers
        parts = [
            f"{word} on "
            + ", ".join(f"{title_of(d)}{self._share(d)}" for d in answers if answers[d] == given)
            for given, word in _VERDICTS.items()
            if given in answers.values()
        ]
        missing = [data for data in self.claim.judged_on if data not in answers]
        if answers and missing:
            parts.append(f"not run on {', '.join(map(title_of, missing))}")
        whole = len(parts) == 1 and not any(self._share(data) for data in answers)
        return "" if whole else "; ".join(parts)

    @property
    def words(self) -> str:
        """The verdict with the data sets that it is about, and what limits it."""
        # Undecided beside a yes contradicts nothing.
        both = {"yes", "no"} <= set(self.answers.values())
        where = f"mixed: {self.where}" if both else self.where
        limits, judged = [], self._judged
        if judged:
            limits += [instead] if (instead := stand_in(self.llm)) else []
            ran, wanted = min(((o.ran, o.wanted) for o in judged), key=_share_of)
            if ran < wanted:
                same = all(o.ran == ran for o in judged)
                limits.append(f"{'' if same else 'as few as '}{ran} of {wanted} queries")
            ran, wanted = min((o.arms for o in judged), key=_share_of)
            limits += [f"the best of {ran} of {wanted} arms"] if ran < wanted else []
            at_once = max(outcome.at_once for outcome in judged)
            limits += [f"{at_once} searches at once, each of another arm"] if at_once > 1 else []
        return (where or self.word) + (f" ({', '.join(limits)})" if limits else "")

    @property
    def _judged(self) -> list[ClaimOutcome]:
        return [outcome for outcome in self.outcomes if outcome.is_judged]

    def _share(self, data: str) -> str:
        """Return how many comparisons of a data set were run, unless all were."""
        there = [o for o in self.outcomes if o.data == data and o.expected.is_judged]
        ran = sum(outcome.was_run for outcome in there)
        return "" if ran == len(there) else f" ({ran} of {len(there)} comparisons)"


def _share_of(counts: tuple[int, int]) -> float:
    return counts[0] / counts[1]


@lru_cache(maxsize=64)
def known_plan(name: str) -> ExperimentPlan:
    """Return a built-in plan; cached, since loading takes longer than judging."""
    return load_plan(name)


# Comparing -------------------------------------------------------------------------------------


def _compare(view: View, data: str, expected: Expected, chosen_on: str) -> ClaimOutcome:
    sides = [
        [sample for sample in view.samples(data)
         if any(fnmatchcase(sample.arm.name, one) for one in pattern.split("|"))]
        for pattern in (expected.than, expected.arm)
    ]  # fmt: skip
    every = [sample for samples in sides for sample in samples]
    fewest = min((len(sample.wanted) for sample in every), default=0)
    choosing, judging = halves(fewest) if chosen_on == "half" else (range(fewest), range(fewest))
    complete = all(sample.at(choosing).complete for sample in every)
    a, b = (_best(samples, _shared(choosing, every)) for samples in sides)
    if a is None or b is None or (chosen_on and not complete):
        return ClaimOutcome(data, expected, expected.than, expected.arm, Paired(0))
    # Without a validation half, the best arm is known only on the queries that all have finished.
    both = _shared(judging, (a, b) if chosen_on == "half" else every)
    names, values, theirs, arms = [], [], [], []
    metrics = (expected.other or expected.metric, expected.metric)
    for best, samples, metric in zip((a, b), sides, metrics, strict=True):
        ran = sum(sample.n > 0 for sample in samples)
        few = "" if ran == len(samples) else f" (of {ran} of {len(samples)} arms that were run)"
        names.append(f"{best.arm.name}{few}")
        values.append([best.cells[best.wanted[i]].value(metric) for i in both])
        theirs.append(_of_paper(view.plan.name, best.arm, metric))
        arms.append((ran, len(samples)))
    if expected.how == "fails":
        names[0], theirs[0] = _HALF, None
        values = [[0.5] * len(both), [float(bool(value)) for value in values[1]]]
    doubled = None
    if expected.how == "twice":
        doubled = paired([None if a is None else WIDE * a for a in values[0]], values[1])
    timed = (best.cells[best.wanted[i]].value("at_once") for best in (a, b) for i in both)
    return ClaimOutcome(
        data, expected, names[0], names[1], paired(*values), (theirs[0], theirs[1]),
        len(both), len(judging), min(arms, key=_share_of), doubled,
        max((int(count) for count in timed if count), default=1),
    )  # fmt: skip


def _shared(places: Sequence[int], samples: Sequence[ArmSample]) -> list[int]:
    """Return the positions of the queries that all arms with searches have finished."""
    run = [sample for sample in samples if sample.n]
    return [i for i in places if all(sample.wanted[i] in sample.cells for sample in run)]


def _best(matching: Sequence[ArmSample], places: Sequence[int]) -> ArmSample | None:
    """Return the arm with the highest yield on some queries; ties are broken as in the tables."""
    run = [sample for sample in matching if sample.n]
    means = [sample.at(places).mean("unique_valid") or 0.0 for sample in run]
    settings = [(s["scope"], float(s["threshold"])) for s in (sample.arm.settings for sample in run)
                if "scope" in s and "threshold" in s]  # fmt: skip
    if len(run) == len(set(settings)) > 1:
        return run[settings.index(best_setting(dict(zip(settings, means, strict=True))))]
    return run[means.index(max(means))] if run else None


_HALF = "half of the queries"
_PAPER_COLUMNS = {"rows": "oracle_evals"}


def _of_paper(plan: str, arm: Arm, metric: str) -> float | None:
    column = _PAPER_COLUMNS.get(metric, metric)
    if plan == "reward-weights" and metric == "unique_valid":
        column = "yield"
    value = paper.number(_PAPER_ROWS[plan](arm), column) if plan in _PAPER_ROWS else None
    return value if isinstance(value, float) else None


_PAPER_ROWS: Mapping[str, Callable[[Arm], paper.PaperRow]] = {
    "llm-budget": llm_budget_row,
    "reward-weights": lambda arm: paper.find(
        "reward_weights", dataset=title_of(arm.data), setting=arm.paper
    ),
    "pruning-sweep": sweep_row,
    "pruning-heldout": lambda arm: paper.selected_row("pruning_heldout", arm.data, arm.paper),
    # Beside arms of `llm-budget`, too.
    "oracle-budget": lambda arm: oracle_row(arm) or llm_budget_row(arm),
    "oracle-budget-published": lambda arm: oracle_row(arm) or llm_budget_row(arm),
    "compressors": lambda arm: paper.find("compressors", compressor=arm.paper),
}
