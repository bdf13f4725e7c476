"""The claims on the page of results: a verdict each, and the effects and intervals behind it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from waysout.bench import paper
from waysout.bench.arms import ExperimentPlan
from waysout.bench.cell import Cells
from waysout.bench.claims import CLAIMS
from waysout.bench.judge import (
    FEWEST,
    Answer,
    Claim,
    ClaimOutcome,
    ClaimVerdict,
    Expected,
    known_plan,
)
from waysout.bench.readings import DEFAULT, READINGS, others
from waysout.bench.render import Markdown, markdown_grid
from waysout.bench.stats import Paired
from waysout.bench.table import Figure
from waysout.bench.tables_base import llm_words, title_of
from waysout.llm.connect import stand_in
from waysout.report.tables import escape_markdown

MOST = 1000
"""An effect that needs more queries than this to be told from none is none to speak of."""
MARKS: dict[Answer, str] = {"yes": "✓", "no": "✗", "undecided": "?"}
_CALLED = {
    "unique_valid": "options", "rows": "rows", "prune_pct": "pruned %", "validity_pct": "valid %",
    "sparsity": "changes", "llm_seconds": "LLM seconds",
}  # fmt: skip
_MUST = {
    "twice": "more than twice", "about": "about equal", "fails": "none for most queries",
}  # fmt: skip
"""What a difference must be, where the name of the rule does not say it."""
_DIGITS = {"proximity": 3, "novelty": 3}
_LIKELY = 0.05
"""A p above this is shown where the interval decides all the same."""
_SMALL = 10
_MOST_DIGITS = 4


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of all LLMs on all claims; ``llms`` are in the order they are shown."""

    cells: Cells
    llms: Sequence[str]

    def of(self, claim: Claim, reading: str = DEFAULT) -> ClaimVerdict | None:
        """Return the verdict that counts: that of the real LLM with most of the claim's plan.

        LLMs that differ in how tokens are drawn are two. None if no real LLM has searches that
        judge it; a claim about searches that ask none needs none.
        """
        asked = [llm for llm in self.ranked(claim.plan_of(reading)) if not stand_in(llm)]
        found = (self.judge(claim, llm, reading) for llm in (asked if claim.asks_llm else [""]))
        return next((verdict for verdict in found if verdict.answers), None)

    def judge(self, claim: Claim, llm: str, reading: str) -> ClaimVerdict:
        """Return the verdict with one LLM, computed once."""
        key = (claim.name, llm, reading)
        if key not in self._judged:
            self._judged[key] = claim.judge(self.cells, llm, reading)
        return self._judged[key]

    @cached_property
    def _judged(self) -> dict[tuple[str, str, str], ClaimVerdict]:
        return {}

    def ranked(self, plan: ExperimentPlan) -> list[str]:
        """Return the LLMs with searches of a plan, those with most first."""
        ran = {llm: sum(len(self.cells.of(arm, llm)) for arm in plan.arms if arm.asks_llm)
               for llm in self.llms}  # fmt: skip
        return sorted((llm for llm in self.llms if ran[llm]), key=lambda llm: -ran[llm])

    @cached_property
    def main(self) -> dict[str, str]:
        """The LLM that most verdicts are of, by reading."""
        found = {}
        for reading in READINGS:
            used = Counter(v.llm for claim in CLAIMS if (v := self.of(claim, reading)) and v.llm)
            found[reading] = used.most_common(1)[0][0] if used else ""
        return found


# One line each -----------------------------------------------------------------------------------


def claim_table(verdicts: Verdicts) -> str:
    """Return a line for each claim: its verdict, and a mark for each data set."""
    heads = ("claim", "verdict", *map(title_of, paper.NAMES))
    return markdown_grid(heads, [_line(verdicts, claim) for claim in CLAIMS], len(heads), 0)


def effect_table(verdicts: Verdicts) -> str:
    """Return a line for each claim that was judged: the effects and intervals on each data set."""
    heads = ("claim, and what must be", *map(title_of, paper.NAMES), "n")
    found = [(claim, verdict) for claim in CLAIMS if (verdict := verdicts.of(claim))]
    return markdown_grid(heads, [_effect_line(*one) for one in found], len(heads), 0)


def _line(verdicts: Verdicts, claim: Claim) -> tuple[str, ...]:
    verdict = verdicts.of(claim)
    unknown = "**not run in full with a real LLM**" if claim.asks_llm else "**not run**"
    told = [f"**{escape_markdown(verdict.words)}**" if verdict else unknown]
    if verdict is None:
        told += _stand_ins(verdicts, claim)
    elif not verdict.llm:
        told.append("no LLM is asked")
    elif verdict.llm != verdicts.main[DEFAULT]:
        told.append(f"with {escape_markdown(short_llm(verdict.llm))}")
    for reading in others(known_plan(claim.plan).reading):
        if claim.asks_llm:
            told += _as_read(verdicts, claim, reading)
    told += [f"(But {escape_markdown(claim.caveat)}.)"] if claim.caveat else []
    answers = verdict.answers if verdict else {}
    marks = (MARKS[answers[d]] if d in answers else "" if d in claim.judged_on else "–"
             for d in paper.NAMES)  # fmt: skip
    return claim.title, Markdown("<br>".join(told)), *marks


def _as_read(verdicts: Verdicts, claim: Claim, reading: str) -> Iterator[str]:
    """Say what another reading gives, unless that is the same, and with which LLM."""
    verdict, other = verdicts.of(claim), verdicts.of(claim, reading)
    said = verdict.answers if verdict else {}
    if other is None:
        yield f"*as {reading} read:* not run"
    elif any(said.get(data) != answer for data, answer in other.answers.items()):
        unlike = other.llm != verdicts.main[reading]
        whose = f", with {escape_markdown(short_llm(other.llm))}" if unlike else ""
        yield f"*as {reading} read{whose}:* {escape_markdown(other.words)}"


def _effect_line(claim: Claim, verdict: ClaimVerdict) -> tuple[str, ...]:
    outcomes = [outcome for outcome in verdict.outcomes if outcome.is_judged]
    counts = sorted({outcome.found.n for outcome in outcomes})
    return (
        Markdown(f"{escape_markdown(claim.title)}: *{_must(claim)}*"),
        *(Markdown(_effects(claim, data, outcomes)) for data in paper.NAMES),
        "–".join(str(n) for n in dict.fromkeys((counts[0], counts[-1]))) if counts else "",
    )


def _must(claim: Claim) -> str:
    """Say what each difference must be for the claim to hold."""
    judged = [e for e in claim.expected if e.is_judged]
    plain = {e.metric for e in judged} == {"unique_valid"}
    found = []
    for e in judged:
        against = f" against {_CALLED.get(e.other, e.other)}" if e.other else ""
        what = "" if plain else f"{_called(e)}{against} "
        found.append(f"{what}{_MUST.get(e.how, e.how)}")
    return ", ".join(dict.fromkeys(found))


def _called(expected: Expected) -> str:
    return _CALLED.get(expected.metric, expected.metric.replace("_", " "))


def _stand_ins(verdicts: Verdicts, claim: Claim) -> Iterator[str]:
    """Yield what the stand-ins for an LLM say."""
    for llm in verdicts.llms:
        kind, verdict = stand_in(llm), verdicts.judge(claim, llm, DEFAULT)
        if kind and verdict.answers:
            words = verdict.words.replace(f" ({kind})", "").replace(f"({kind}, ", "(")
            yield f"{kind}: {escape_markdown(words)}"


def _effects(claim: Claim, data: str, outcomes: Sequence[ClaimOutcome]) -> str:
    here = [outcome for outcome in outcomes if outcome.data == data]
    if not here:
        return "–" if outcomes and data not in claim.judged_on else ""
    labels = _labels([e for e in claim.expected if e.is_judged])
    return "<br>".join(_effect(outcome, labels[outcome.expected]) for outcome in here)


def _labels(expected: Sequence[Expected]) -> dict[Expected, str]:
    """Return what tells the comparisons of a claim apart: metrics, and words of their arms."""
    words = {e: e.arm.replace(",", "").replace("threshold=", "θ=").split() for e in expected}
    shared = set.intersection(*map(set, words.values()))
    several = len({e.metric for e in expected}) > 1
    return {e: " ".join([*([_called(e)] if several else []), *(w for w in own if w not in shared)])
            for e, own in words.items()}  # fmt: skip


def _effect(outcome: ClaimOutcome, label: str) -> str:
    found, digits = outcome.found, _DIGITS.get(outcome.expected.metric)
    label = f" {escape_markdown(label)}" if label else ""
    effect = interval(outcome.doubled or found, digits)
    if outcome.expected.how == "twice":  # the difference is to twice A
        b, a = (f"{mean or 0.0:.{1 if (mean or 0.0) >= 0.1 else 2}f}"
                for mean in (found.mean_b, found.mean_a))  # fmt: skip
        effect = f"{b} − 2\u00a0×\u00a0{a} = {effect}"
    if outcome.expected.how == "about":  # what is little depends on how much there is
        effect += f" of {found.mean_a or 0.0:.1f}"
    if outcome.expected.how == "fails":
        effect = f"finds some for {found.mean_b or 0.0:.0%}".replace("%", "\u00a0%")
    text = f"{MARKS[outcome.answer]}{label} {effect}"
    p = (outcome.doubled or found).p
    if outcome.tells_apart and p is not None and p > _LIKELY:
        text += f" (p\u00a0=\u00a0{p:.2f})"
    if outcome.answer == "undecided":
        needed = outcome.queries_to_decide
        if found.n < FEWEST:
            text += f" (only {found.n} queries)"
        elif needed is None:
            text += " (no effect)"
        else:
            text += (
                f" (n\u00a0>\u00a0{MOST:,})" if needed > MOST else f" (n\u00a0≈\u00a0{needed:,})"
            )
    return text


def interval(found: Paired, digits: int | None = None) -> str:
    """Return a mean paired difference with its interval; small ones with a digit more.

    >>> interval(Paired(30, delta=-0.5, low=-1.0, high=-0.03))
    '−0.50 [−1.00,\\xa0−0.03]'
    >>> interval(Paired(30, delta=-0.16, low=-0.3, high=-0.004))
    '−0.160 [−0.300,\\xa0−0.004]'
    """
    digits = digits or (2 if abs(found.delta or 0.0) < _SMALL else 1)
    # An end that is beside 0 must not look like 0: on which side it lies decides.
    while digits < _MOST_DIGITS and any(
        end and not round(end, digits) and round(end, _MOST_DIGITS)
        for end in (found.low, found.high)
    ):
        digits += 1

    def number(value: float | None, *, signed: bool = False) -> str:
        return Figure(None, digits=digits, signed=signed).write(value).replace("-", "−")

    # A space that does not break keeps the ends together in narrow columns.
    between = "" if found.low is None else f" [{number(found.low)},\u00a0{number(found.high)}]"
    return f"{number(found.delta, signed=True)}{between}"


# The others --------------------------------------------------------------------------------------


def other_verdicts(verdicts: Verdicts) -> str:
    """Return what the other LLMs and the stand-ins say, a mark for each data set."""
    shown = [llm for llm in verdicts.llms if any(_said(verdicts, claim, llm) for claim in CLAIMS)]
    heads = ("claim", *map(short_llm, shown))
    rows = [(claim.title, *(_said(verdicts, claim, llm) for llm in shown)) for claim in CLAIMS]
    return markdown_grid(heads, [row for row in rows if any(row[1:])], len(heads), 0)


def _said(verdicts: Verdicts, claim: Claim, llm: str) -> str:
    """Return an LLM's answers by reading, settled / first, unless they are in the table above.

    The first is left out where it says the same or was not run.
    """
    if not claim.asks_llm:
        return ""
    found = []
    for reading in READINGS:
        verdict, counts = verdicts.judge(claim, llm, reading), verdicts.of(claim, reading)
        new = verdict.answers and not (counts and counts.llm == llm)
        found.append(_marks(verdict) if new else "")
    same = all(marks in ("", found[0]) for marks in found[1:])
    return found[0] if same else " / ".join(marks or "–" for marks in found)


def _marks(verdict: ClaimVerdict) -> str:
    answers = verdict.answers
    return "".join(MARKS[answers[data]] if data in answers else "–"
                   for data in verdict.claim.judged_on)  # fmt: skip


def brief(llm: str) -> str:
    """Return a model's name as far as its size.

    >>> brief("transformers:qwen2.5-coder-1.5b-instruct-q4_k_m.gguf@10?top_k=20")
    'qwen2.5-coder-1.5b'
    """
    name = short_llm(llm).partition(" (")[0]
    sized = re.match(r".*?-[\d.]+[bm](?![a-z0-9])", name, re.IGNORECASE)
    return sized[0] if sized else name


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
