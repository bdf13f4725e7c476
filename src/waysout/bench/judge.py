"""Whether searches support a claim, by rules that are stated.

A claim is a list of comparisons that must come out in a certain way on each data set. Each says
yes, no or neither (undecided). A data set supports a claim if all its comparisons say yes, and does
not if one says no. What was not run is named, never judged. The claims: `claims.CLAIMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from waysout.bench import paper
from waysout.bench.arms import Arm, ExperimentPlan
from waysout.bench.cell import Cells
from waysout.bench.plan import load_plan
from waysout.bench.stats import Paired, Setting, best_setting, halves, paired
from waysout.bench.tables_base import ArmSample, View, title_of
from waysout.bench.tables_budget import llm_budget_row
from waysout.bench.tables_pruning import sweep_row
from waysout.llm.connect import is_simulated

Word = Literal["supported", "not supported", "undecided", "mixed", "not run"]
How = Literal["more", "less", "no less", "twice", "about", "shown"]
Answer = Literal["yes", "no", "undecided"]
DATASETS = tuple(paper.NAMES)
WIDE = 2.0
NEAR = 0.05
MARGIN = 0.10
FEWEST = 5
"""Fewer pairs than this decide nothing, whatever their interval is."""


# Rules -----------------------------------------------------------------------------------------


def _ends(found: Paired) -> tuple[float, float]:
    """Return the interval of the difference; one query has none but the difference itself."""
    delta = found.delta or 0.0
    low = delta if found.low is None else found.low
    return low, delta if found.high is None else found.high


def _above(low: float, high: float, least: float) -> Answer:
    return "yes" if low > least else "no" if high < least else "undecided"


def _more(found: Paired) -> Answer:
    return _above(*_ends(found), 0.0)


def _less(found: Paired) -> Answer:
    low, high = _ends(found)
    return _above(-high, -low, 0.0)


def _no_less(found: Paired) -> Answer:
    low, high = _ends(found)
    if low > -MARGIN * abs(found.mean_a or 0.0):
        return "yes"
    return "no" if high < 0 else "undecided"


def _twice(found: Paired) -> Answer:
    return _above(*_ends(found), (WIDE - 1) * (found.mean_a or 0.0))


def _about(found: Paired) -> Answer:
    low, high = _ends(found)
    margin = NEAR * abs(found.mean_a or 0.0)
    if -margin <= low and high <= margin:
        return "yes"
    return "no" if low > margin or high < -margin else "undecided"


RULES: Mapping[How, tuple[str, Callable[[Paired], Answer]]] = {
    "more": ("yes if the interval lies above 0, no if below, undecided if it contains 0", _more),
    "less": ("yes if the interval lies below 0, no if above, undecided if it contains 0", _less),
    "no less": (
        f"yes if the interval lies above −{MARGIN * 100:g} % of A, no if it reaches beyond that "
        "and lies below 0, else undecided",
        _no_less,
    ),
    "twice": (
        f"yes if the interval says that B is more than {WIDE:g} times A, no if less, else "
        "undecided",
        _twice,
    ),
    "about": (
        f"yes if the interval lies within {NEAR * 100:g} % of A on either side of 0, no if it lies "
        "outside, else undecided",
        _about,
    ),
    "shown": ("for information, not judged", lambda found: "undecided"),
}
"""What is made of B − A (95 % interval of the mean paired difference) for each kind of words."""
NEVER = (
    f"Fewer than {FEWEST} pairs, or two means of 0, leave every comparison undecided, whatever the "
    "interval is."
)


# Claims ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """A comparison that must come out as ``how`` says: an arm (B) on a metric, against another (A).

    Both are named by patterns, with ``|`` between alternatives; of several arms that fit, the one
    with the most unique valid options counts. ``other`` is the metric of A where that is another.
    ``datasets`` are those that it is about, all of the claim's if none are named.
    """

    metric: str
    how: How
    arm: str
    than: str
    other: str = ""
    datasets: tuple[str, ...] = ()

    def is_about(self, data: str) -> bool:
        """Whether it is made on a data set."""
        return not self.datasets or data in self.datasets

    @property
    def is_judged(self) -> bool:
        """Whether it decides anything."""
        return self.how != "shown"


@dataclass(frozen=True)
class Claim:
    """What is claimed (``says``), the plan that it is judged on, and what follows from it.

    ``remark`` is what a reader should know. A claim about time is not judged with a simulated LLM,
    which takes none. One whose settings are ``chosen_on`` all queries, or on half of them to be
    judged on the others, is judged only where every setting has the searches that choose.
    """

    name: str
    title: str
    says: str
    plan: str
    expected: tuple[Expected, ...]
    datasets: tuple[str, ...] = DATASETS
    remark: str = ""
    about_time: bool = False
    chosen_on: Literal["", "all", "half"] = ""

    def judge(self, cells: Cells, llm: str) -> ClaimVerdict:
        """Return what the searches with an LLM say."""
        if self.about_time and is_simulated(llm):
            return ClaimVerdict(self, llm, ())
        if self.about_time:  # a search that got replies from a file tells no time
            cells = Cells(cell for cell in cells if not cell.value("from_file"))
        view = View(known_plan(self.plan), cells, llm, (llm,))
        outcomes = (_compare(view, data, e, self.chosen_on) for data in self.datasets
                    for e in self.expected if e.is_about(data))  # fmt: skip
        return ClaimVerdict(self, llm, tuple(outcomes))

    @property
    def judged_on(self) -> tuple[str, ...]:
        """The data sets that can support it; on others comparisons are shown only."""
        judged = [e for e in self.expected if e.is_judged]
        return tuple(data for data in self.datasets if any(e.is_about(data) for e in judged))


@dataclass(frozen=True)
class ClaimOutcome:
    """How one comparison came out on one data set, and the paper's means of A and B.

    ``ran`` is how many queries all arms that it is about have finished, of those ``wanted``;
    ``arms`` how many of these arms were run at all, and how many there are.
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
        """Whether it came out as it must."""
        found = self.found
        if found.n < FEWEST or not (found.mean_a or found.mean_b):
            return "undecided"
        return RULES[self.expected.how][1](found)


_SAID: Mapping[Answer, Word] = {
    "yes": "supported",
    "no": "not supported",
    "undecided": "undecided",
}


@dataclass(frozen=True)
class ClaimVerdict:
    """What an LLM's searches say of a claim."""

    claim: Claim
    llm: str
    outcomes: tuple[ClaimOutcome, ...]

    @property
    def answers(self) -> dict[str, Answer]:
        """What each data set says of the claim; those that were not run are left out."""
        found: dict[str, list[Answer]] = {}
        for outcome in self._judged:
            found.setdefault(outcome.data, []).append(outcome.answer)
        return {data: _together(answers) for data, answers in found.items()}

    @property
    def word(self) -> Word:
        """The verdict in a word or two, on what was run: ``where`` says on which part that is."""
        given = set(self.answers.values())
        if not given:
            return "not run"
        return _SAID[given.pop()] if len(given) == 1 else "mixed"

    @property
    def where(self) -> str:
        """Which data sets say what, unless all were run, with all comparisons, and agree."""
        answers = self.answers
        parts = [
            f"{said} on {', '.join(self._named(d) for d in answers if answers[d] == answer)}"
            for answer, said in _SAID.items()
            if answer in answers.values()
        ]
        missing = [data for data in self.claim.judged_on if data not in answers]
        parts += [f"not run on {_named(missing)}"] if answers and missing else []
        whole = len(parts) == 1 and not any(self._share(data) for data in answers)
        return "" if whole else "; ".join(parts)

    @property
    def words(self) -> str:
        """The verdict with the data sets that it is about, and what speaks against it."""
        where = f"mixed: {self.where}" if self.word == "mixed" else self.where
        told, but = where or self.word, list(self._but())
        return f"{told} ({', '.join(but)})" if but else told

    @property
    def _judged(self) -> list[ClaimOutcome]:
        return [outcome for outcome in self.outcomes if outcome.is_judged]

    def _named(self, data: str) -> str:
        return f"{title_of(data)}{self._share(data)}"

    def _share(self, data: str) -> str:
        """Say so where some comparisons of a data set were not run."""
        there = [o for o in self.outcomes if o.data == data and o.expected.is_judged]
        ran = sum(outcome.was_run for outcome in there)
        return "" if ran == len(there) else f" ({ran} of {len(there)} comparisons)"

    def _but(self) -> Iterator[str]:
        """Say what a reader must know before relying on the verdict."""
        judged = self._judged
        if not judged:
            return
        if is_simulated(self.llm):
            yield "simulated"
        ran, wanted = min(((o.ran, o.wanted) for o in judged), key=_share_of)
        if ran < wanted:
            same = all(o.ran == ran for o in judged)
            yield f"{'' if same else 'as few as '}{ran} of {wanted} queries"
        ran, wanted = min((o.arms for o in judged), key=_share_of)
        if ran < wanted:
            yield f"the best of {ran} of {wanted} arms"


def _together(answers: Sequence[Answer]) -> Answer:
    """Return what several comparisons say of one data set: all must come out."""
    if "no" in answers:
        return "no"
    return "undecided" if "undecided" in answers else "yes"


def _share_of(counts: tuple[int, int]) -> float:
    return counts[0] / counts[1]


@lru_cache(maxsize=32)
def known_plan(name: str) -> ExperimentPlan:
    """Return a plan of ours, which is read once: it takes longer than to judge by it."""
    return load_plan(name)


def _named(datasets: Iterable[str]) -> str:
    return ", ".join(title_of(data) for data in datasets)


# Comparing -------------------------------------------------------------------------------------


def _compare(view: View, data: str, expected: Expected, chosen_on: str) -> ClaimOutcome:
    sides = [_fitting(view, data, pattern) for pattern in (expected.than, expected.arm)]
    every = [sample for samples in sides for sample in samples]
    asked = min((len(sample.wanted) for sample in every), default=0)
    choosing, judging = halves(asked) if chosen_on == "half" else (range(asked), range(asked))
    whole = all(sample.at(choosing).complete for sample in every)
    a, b = (_best(samples, _shared(choosing, every)) for samples in sides)
    if a is None or b is None or (chosen_on and not whole):
        return ClaimOutcome(data, expected, expected.than, expected.arm, Paired(0))
    # Without a half that chooses, the best is known only on the queries that all have finished.
    both = _shared(judging, (a, b) if chosen_on == "half" else every)
    metric, other = expected.metric, expected.other or expected.metric
    found = paired(_values(a, both, other), _values(b, both, metric))
    plan = view.plan.name
    theirs = _of_paper(plan, a.arm, other), _of_paper(plan, b.arm, metric)
    names = [f"{best.arm.name}{_of_how_many(samples)}"
             for best, samples in zip((a, b), sides, strict=True)]  # fmt: skip
    arms = min(((_ran(samples), len(samples)) for samples in sides), key=_share_of)
    return ClaimOutcome(
        data, expected, names[0], names[1], found, theirs, len(both), len(judging), arms
    )


def _shared(places: Sequence[int], samples: Sequence[ArmSample]) -> list[int]:
    """Return the places of the queries that all have finished, except arms that were not run."""
    run = [sample for sample in samples if sample.n]
    return [i for i in places if all(sample.wanted[i] in sample.cells for sample in run)]


def _values(sample: ArmSample, places: Sequence[int], metric: str) -> list[float | None]:
    return [sample.cells[sample.wanted[i]].value(metric) for i in places]


def _ran(fitting: Sequence[ArmSample]) -> int:
    return sum(sample.n > 0 for sample in fitting)


def _of_how_many(fitting: Sequence[ArmSample]) -> str:
    """Say so where the best is one of fewer arms than there are."""
    run = _ran(fitting)
    return "" if run == len(fitting) else f" (of {run} of {len(fitting)} arms that were run)"


def _fitting(view: View, data: str, pattern: str) -> list[ArmSample]:
    return [sample for sample in view.samples(data)
            if any(fnmatchcase(sample.arm.name, one) for one in pattern.split("|"))]  # fmt: skip


def _best(fitting: Sequence[ArmSample], places: Sequence[int]) -> ArmSample | None:
    """Return the arm with the highest yield on some queries; ties of settings as in the tables."""
    run = [sample for sample in fitting if sample.n]
    means = [sample.at(places).mean("unique_valid") or 0.0 for sample in run]
    settings = [_setting(sample) for sample in run]
    known = [setting for setting in settings if setting is not None]
    if len(run) == len(set(known)) > 1:
        return run[settings.index(best_setting(dict(zip(known, means, strict=True))))]
    return run[means.index(max(means))] if run else None


def _setting(sample: ArmSample) -> Setting | None:
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


_PAPER_ROWS: Mapping[str, Callable[[Arm], paper.PaperRow]] = {
    "llm-budget": llm_budget_row,
    "reward-weights": lambda arm: paper.find(
        "reward_weights", dataset=title_of(arm.data), setting=arm.paper
    ),
    "pruning-sweep": sweep_row,
    "pruning-heldout": lambda arm: paper.best("pruning_heldout", arm.data, arm.paper),
    "compressors": lambda arm: paper.find("compressors", compressor=arm.paper),
}
