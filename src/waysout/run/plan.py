"""What a run is to do: the method, its budget, and how problem and plan are described on file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from waysout import __version__
from waysout.domain.budget import Budget
from waysout.domain.known import Known
from waysout.domain.memory import Past
from waysout.domain.oracle import Goal
from waysout.domain.problem import Problem
from waysout.domain.result import plain
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import InputError, shown
from waysout.prompts.propose import Proposer, Style
from waysout.report.rules import limits_in_words
from waysout.report.words import Wording
from waysout.search.base import Case, Method, Search
from waysout.search.finish import Finishing, without_set_aside
from waysout.store import Store

MOST_K = 50
_NO_AND_YES = (("0", "1"), ("n", "y"), ("f", "t"), ("no", "yes"), ("false", "true"))
_LATER = (
    ("ask", "throughout"), ("tips", 0.0), ("history", "all"), ("patience", 0), ("published", False),
)  # fmt: skip
# What a run of an earlier release did where its method has a setting more today.
_EARLIER: Mapping[str, Mapping[str, Any]] = {
    "wayfinder": {"tips": 0.0},
    "comp-mcts": {"history": "all", "patience": 0},
}


@dataclass(frozen=True)
class Plan:
    """Everything that decides what a run does, besides the problem and the rows."""

    name: str
    method: Method
    budget: Budget = field(default_factory=Budget)
    k: int = 5
    seed: int = 0
    style: Style = field(default_factory=Style)
    polish: int = 0

    def __post_init__(self) -> None:
        check_whole("seed", self.seed, 0, 2**31 - 1)
        check_whole("polish", self.polish, 0)
        rows = self.budget.oracle_rows
        if self.polish and rows is not None and self.polish >= rows:
            raise InputError(
                f"polish reserves {self.polish} of {rows} oracle rows, which leaves none for "
                f"{self.name}: polish with fewer, or allow more rows (oracle_rows)"
            )

    @property
    def asks_llm(self) -> bool:
        """Whether an LLM will be asked at all."""
        method, calls = self.method, self.budget.llm_calls
        return method.needs_llm and (method.needs_calls or calls != 0)

    def as_dict(self, llm: str | None) -> dict[str, Any]:
        """Return the plan as results and runs store it."""
        return {
            "method": self.name,
            "method_settings": as_before(self.method.settings()),
            "llm": llm,
            "style": self.style.as_dict() if self.asks_llm else None,
            "k": self.k,
            "seed": self.seed,
            "budget": asdict(self.budget),
            # Left out where it is off: a run of a release without polish is the same run.
            **({"polish": self.polish} if self.polish else {}),
        }

    def start(
        self,
        problem: Problem,
        query: Row,
        probability: float,
        *,
        proposer: Proposer | None = None,
        known: Known | None = None,
        past: Past | None = None,
    ) -> Search:
        """Start the search for one row, given the oracle's probability for it."""
        case = Case(
            problem=replace(problem, goal=problem.goal.for_query(probability)),
            query=query,
            probability=probability,
            budget=self.budget,
            k=self.k,
            seed=self.seed,
            proposer=proposer,
            known=known,
            past=past,
        )
        search = self.method.start(without_set_aside(case, self.polish))
        if not isinstance(search, Search):
            raise InputError(f"{self.name!r}: start() returns a Search, not {shown(search)}")
        # What earlier searches found is in this search's archive, from which finishing goes on.
        return Finishing(replace(case, past=None), search, self.polish) if self.polish else search


def as_before(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a method's settings as files store them.

    A setting added by a later release is left out where it changes nothing: a run of an earlier
    release is then still the same run.
    """
    return {name: value for name, value in settings.items() if (name, value) not in _LATER}


def as_now(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run on file, those included that it was made without."""
    return {**_EARLIER.get(method, {}), **settings}


def check_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Raise `InputError` unless a value is a whole number within its bounds."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):  # type: ignore[operator]
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InputError(f"{name} is a whole number {bounds}, not {shown(value)}")


def describe(problem: Problem) -> dict[str, Any]:
    """Return what a result says about its problem, and what a resumed run must have in common."""
    distance = problem.distance
    return {
        "name": problem.name,
        "title": problem.title,
        "yes": problem.yes,
        "no": problem.no,
        "oracle": problem.oracle.name,
        "labels_only": problem.oracle.labels_only,
        "goal": goal_told(problem.goal),
        "rules": [rule.says for rule in problem.rules.rules],
        "features": [feature.name for feature in problem.schema],
        "bins": {name: list(edges) for name, edges in problem.key.bins.items()},
        "distance": {"alpha": distance.alpha, "scales": dict(distance.scales)},
    }


def goal_told(goal: Goal) -> dict[str, Any]:
    """Return a goal as results and runs store it."""
    told = asdict(goal)
    if not goal.safer:  # a run of a release without safer variants is the same run
        del told["safer"]
    return told


def wording(schema: Schema) -> dict[str, dict[str, Any]]:
    """Return what results need to write features and values for people, where there is any.

    ``true`` is the spelling that stands for a yes, and ``coded`` says that numbers are names of
    levels: results hold the table's own values, which do not tell.
    """
    found = {}
    for feature in schema:
        # By their texts: Python takes (0, 1) for (False, True).
        spelled = feature.kind == "boolean" and feature.level_texts != ("False", "True")
        words = level_words(feature) if spelled or feature.kind == "category" else feature.words
        coded = any(type(level) in (int, float) for level in feature.levels)
        given = {
            "label": getattr(feature, "label", ""),
            "unit": feature.unit,
            "about": feature.about,
            "words": {level: said for level, said in words.items() if said != level},
            "decimals": feature.decimals,
            "true": feature.level_texts[1] if spelled else "",
            "coded": coded or None,
            "moves": dict(feature.moves),
        }
        told = {name: value for name, value in given.items() if value or value == 0}
        if told:
            found[feature.name] = told
    return found


def told(problem: Problem) -> dict[str, Any]:
    """Return what a result says about its problem, with the words to say it to people."""
    words, rules = wording(problem.schema), problem.rules
    for source, target, _ in rules.links:
        words.setdefault(target, {})["follows"] = source
    for group in rules.groups:
        for name in group:
            words.setdefault(name, {})["group"] = group[0]
    limits = limits_in_words(rules.rules, Wording(words))
    return {**describe(problem), "wording": words, "limits": limits}


def level_words(feature: Feature) -> dict[str, str]:
    """Return the words for each level: the card's, else no and yes for 0 and 1 and the like.

    >>> level_words(Feature("insured", "boolean", levels=("N", "Y")))
    {'N': 'no', 'Y': 'yes'}
    """
    words = {level: level for level in feature.level_texts}
    if feature.kind == "boolean" and tuple(map(str.casefold, words)) in _NO_AND_YES:
        words = dict(zip(words, ("no", "yes"), strict=True))
    return words | dict(feature.words)


def manifest(problem: Problem, plan: Plan, llm: str | None) -> dict[str, Any]:
    """Return what a run's file says about the run."""
    return {
        "version": __version__,
        "method": plan.name,
        "llm": llm,
        "plan": plan.as_dict(llm),
        "problem": describe(problem),
    }


def check_same_run(store: Store, wanted: Mapping[str, Any]) -> None:
    """Raise `InputError` unless the run on file is the one that a manifest describes."""
    same = plain(wanted)
    del same["version"]  # another release may resume it if it asks the same: the replay shows
    found = changed_settings(store.manifest, {**store.manifest, **same})
    if found:
        raise InputError(
            f"{store.path} holds another run ({'; '.join(found[:5])}): give the same settings to "
            "resume it, or another file"
        )


def changed_settings(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return where two manifests differ in what decides a search.

    The allowance for set-up does not: that of an earlier release was another.
    """
    return differences(_without_set_up(stored), _without_set_up(wanted))


def _without_set_up(told: Mapping[str, Any]) -> dict[str, Any]:
    plan = told.get("plan")
    if not isinstance(plan, Mapping) or not isinstance(plan.get("budget"), Mapping):
        return dict(told)
    budget = {name: most for name, most in plan["budget"].items() if name != "setup_rows"}
    return {**told, "plan": {**plan, "budget": budget}}


def differences(stored: Mapping[str, Any], wanted: Mapping[str, Any], at: str = "") -> list[str]:
    """Return where two manifests differ, as ``plan.k: 5 → 3``.

    >>> differences({"k": 5, "seed": 0}, {"k": 3, "seed": 0})
    ['k: 5 → 3']
    """
    found: list[str] = []
    for key in dict.fromkeys([*stored, *wanted]):
        here, there = stored.get(key), wanted.get(key)
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            found += differences(here, there, f"{at}{key}.")
        elif here != there:
            found.append(f"{at}{key}: {shown(here)} → {shown(there)}")
    return found
