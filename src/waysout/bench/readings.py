"""How the paper is read where its text is silent, or its tables speak against our first reading.

Two readings, each a set of settings for the paper's plans. ``settled`` is the reproduction's;
``first`` is how we read the paper before its tables were held against it. Every plan of the paper
runs under either: ``pruning-sweep`` is ``pruning-sweep@settled``, the other one
``pruning-sweep@first``.

What has a value to choose (``patience``) was chosen on HELOC and Credit and is reported on Loan and
Adult: what is made to look like its target proves nothing there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from waysout.domain.problem import Binning
from waysout.errors import InputError, unknown
from waysout.methods import method_class
from waysout.search.memory import MEMORY

MARK = "@"
CHOSEN_ON = ("heloc", "credit")
"""The data sets that a value was chosen on, where there is one to choose."""


@dataclass(frozen=True)
class Reading:
    """Settings by method, how replies are read by tree searches, and the key by data set.

    What an arm sets itself comes before its plan's reading.
    """

    name: str
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unchanged: bool = False
    binning: Mapping[str, Binning] = field(default_factory=dict)

    def settings(self, method: str) -> Mapping[str, Any]:
        """Return the settings of a method; variants of one share them."""
        return self.methods.get(method_class(method).name, {})

    def style(self, method: str) -> dict[str, Any]:
        """Return how replies are read; other methods than the paper's keep their own way."""
        return {"unchanged": self.unchanged} if method_class(method).name in self.methods else {}


@dataclass(frozen=True)
class ReadingElement:
    """One thing that the paper leaves open, both readings of it, and what decides."""

    what: str
    setting: str
    first: str
    settled: str
    evidence: str


READINGS: Mapping[str, Reading] = {
    "settled": Reading(
        "settled",
        {"comp-mcts": {"history": "approved", "patience": 2}, "lats": {"memory": 0}},
        unchanged=True,
        binning={"heloc": "none"},
    ),
    "first": Reading(
        "first", {"comp-mcts": {"history": "all", "patience": 0}, "lats": {"memory": MEMORY}}
    ),
}
DEFAULT = "settled"

ELEMENTS = (
    ReadingElement(
        "the key on HELOC",
        "`binning`",
        "binned like the others",
        "unbinned",
        "The paper names bins for Loan, Adult and Credit alone, and prunes 0.7 / 6.4 / 90 % of its "
        "candidates on HELOC at path θ = .005 / .01 / .02.",
    ),
    ReadingElement(
        "whose keys the global scope remembers",
        "`history`",
        "all nodes, as “across all branches” says",
        "approved nodes",
        "HELOC decides: at θ = .02 the paper asks 115 ± 50 rows there, where path scope asks 15 ± "
        "1. That needs a history which stays empty where nothing is approved; its 44 ± 54 on "
        "Credit look like it, too. On Loan and Adult all nodes come nearer to the paper with "
        "scripted and with simulated proposals, also where these are as often valid as the "
        "paper's (`readings-validity`): they speak against it.",
    ),
    ReadingElement(
        "a leaf whose replies are pruned whole",
        "`patience`",
        "asked again until the calls are spent (0)",
        "given up after two such replies; with no leaf left, the root is expanded once more (2)",
        "HELOC alone: path θ = .02 asks 14.8 ± 0.9 rows at 1.055 changes, that is three expansions "
        "of the root. Three expansions of *every* node give that too, but fewer than two changes "
        "without pruning, where the paper has 2.5 to 2.7; pruned candidates kept as nodes change "
        "nothing. On Credit and Loan asking again comes nearer, on Adult it makes no difference: "
        "no reading that was tried fits all four. It matters only where whole replies are pruned, "
        "most at θ = .02 and τ = .1, which the paper selects nowhere.",
    ),
    ReadingElement(
        "what LATS is told",
        "`memory`",
        "earlier attempts, as Comp-MCTS is (10)",
        "nothing of them (0)",
        "The text: it lists prompt-as-memory as Comp-MCTS's own. The tables do not tell: the "
        "paper's standard and high-temp LATS with K = 1 change 1.4 to 1.8 features, ours more "
        "without memory than with it (`llm-budget`).",
    ),
    ReadingElement(
        "edits to the value that is there",
        "`unchanged`",
        "refused before the oracle",
        "evaluated",
        "Without pruning the paper asks 147.8 to 150.0 of 150 rows.",
    ),
    ReadingElement(
        "how tokens are drawn",
        "`?sampling=` of the LLM",
        "by temperature alone (`plain`)",
        "as the model's `generation_config` says (`own`), which transformers' `generate` follows",
        "At the higher temperature the paper still asks 144.9 to 149.5 of 150 rows with K = 5; "
        "drawn by temperature alone a small model loses the format.",
    ),
)


def others(reading: str) -> tuple[str, ...]:
    """Return the other readings of a plan that has one.

    >>> others("settled"), others("")
    (('first',), ())
    """
    return tuple(name for name in READINGS if name != reading) if reading else ()


def split(name: str) -> tuple[str, str]:
    """Split a plan's name from its reading, if it names one.

    >>> split("pruning-sweep@first"), split("pruning-sweep")
    (('pruning-sweep', 'first'), ('pruning-sweep', ''))
    """
    plan, mark, reading = name.rpartition(MARK)
    return (plan, reading) if mark and not name.endswith(".toml") else (name, "")


def reading_of(name: str) -> Reading:
    """Return a reading by name; without one nothing is set but what the arms say."""
    if not name:
        return Reading("")
    if name not in READINGS:
        raise InputError(unknown("reading", name, READINGS))
    return READINGS[name]
