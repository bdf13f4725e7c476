"""What stands first on the page of results: what a search without an LLM finds beside the others.

Every sentence with a figure, or that a figure could make false, is made of the searches on file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

from waysout.bench import paper
from waysout.bench.render import Markdown, markdown_grid
from waysout.bench.report_claims import brief, interval
from waysout.bench.stats import Paired
from waysout.bench.tables_arms import llm_budget_row
from waysout.bench.tables_base import View, title_of
from waysout.bench.tables_lead import CALLED, TREES, Worth, leads, proposals, without_llm
from waysout.llm.connect import stand_in
from waysout.report.tables import escape_markdown

_WITH_LLM = "recombine"
_PROPOSALS = (
    "**What an LLM's proposals would have to be worth to change that.** Without pruning, a search "
    "turns the rows it asks into unique options at the rate *valid × new*: the share that the "
    "oracle approves, times the share of these that repeat no earlier one. Of "
    f"{paper.LLM} these are the paper's figures, for its 15 held-out queries; the simulated and "
    "the scripted proposals come from no language model."
)
_KINDS = {"simulated": "random edits (simulated)", "scripted": "sensible edits (scripted)"}


@dataclass(frozen=True)
class Lesson:
    """The search without an LLM beside those that ask one, on the data sets where both were run.

    ``view`` has the plan of the same calls, and the LLM whose methods are compared.
    """

    view: View

    def text(self) -> str:
        """Return the section, or what to run for it."""
        if not self.datasets:
            return (
                "Not run: `waysout bench run llm-budget oracle-budget` compares methods that ask "
                "an LLM with a search that asks none."
            )
        lead = (self._headline(), self._lead_table(), *self._gain())
        return "\n\n".join([*lead, _PROPOSALS, self._proposal_table(), *self._needed()])

    @cached_property
    def datasets(self) -> list[str]:
        """The data sets where a method of the paper and the search without an LLM were run."""
        return [data for data in self.view.plan.datasets if self._papers(data)]

    @cached_property
    def _leads(self) -> dict[str, dict[str, Paired]]:
        return {data: leads(self.view, data) for data in self.view.plan.datasets}

    def _papers(self, data: str) -> dict[str, Paired]:
        """Return the lead over each arm of the paper's methods."""
        return {name: found for name, found in self._leads[data].items()
                if not name.startswith(_WITH_LLM)}  # fmt: skip

    def _best(self, data: str) -> str:
        """Return the arm of the paper's methods with most unique valid options."""
        found = self._papers(data)
        return max(found, key=lambda name: found[name].mean_a or 0.0)

    def _row(self, name: str, cell: Callable[[str], str]) -> tuple[str, ...]:
        return (Markdown(name), *(Markdown(cell(data)) for data in self.datasets))

    def _grid(self, first: str, rows: list[tuple[str, ...]]) -> str:
        heads = (first, *map(title_of, self.datasets))
        return markdown_grid(heads, rows, 1, len(heads) - 1)

    # The lead ----------------------------------------------------------------------------------

    def _headline(self) -> str:
        found = [one for data in self.datasets for one in self._papers(data).values()]
        ahead = sum((one.low or 0.0) > 0 for one in found)
        arms = {name for data in self.datasets for name in self._papers(data)}
        which = "every method" if ahead == len(found) else "most methods"
        counts = sorted({one.n for one in found})
        queries = "–".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
        return (
            f"**At these budgets, a search that asks no LLM finds more options than {which} of "
            f"the paper, all of which ask one.** It is `recombine` with no call and 150 oracle "
            f"rows (evaluations of the model): the same {queries} queries of each data set, the "
            f"same rules, counted by the same key. Its rivals are {len(arms)} variants of "
            "Comp-MCTS and LATS with 30 calls of "
            f"{escape_markdown(_called(self.view.llm))} and 150 rows (with K = 1: 30 rows). In "
            f"{ahead} of {len(found)} comparisons the 95 % interval of its lead lies above 0. "
            "Mean unique valid options (distinct validated counterfactuals) per query:"
        )

    def _lead_table(self) -> str:
        def best(data: str) -> str:
            name = self._best(data)
            return f"{self._mean(name, data)} ({name})"

        rows = [
            self._row("**no LLM: recombine, 150 rows**", self._without),
            self._row("the paper's methods: the best of them here", best),
            self._row("lead over it [95 % interval]", self._lead),
            *(self._row(f"lead if their proposals are {_called(llm)}",
                        replace(self, view=replace(self.view, llm=llm))._lead)
              for llm in self.view.llms if stand_in(llm) == "scripted" != stand_in(self.view.llm)),
            self._row("no LLM: edits at random, 150 rows", partial(self._mean, "random")),
            self._row(f"{paper.LLM} in the paper, its best (other oracles, queries and key)",
                      self._papers_best),
        ]  # fmt: skip
        return self._grid("", rows)

    def _lead(self, data: str) -> str:
        found = self._papers(data)
        return interval(found[self._best(data)]) if found else ""

    def _without(self, data: str) -> str:
        ours = without_llm(self.view, data)
        return f"{ours.mean('unique_valid') or 0.0:.1f}" if ours else ""

    def _mean(self, name: str, data: str) -> str:
        sample = self.view.sample(data, name)
        mean = sample.mean("unique_valid") if sample else None
        return "" if mean is None else f"{mean:.1f}"

    def _papers_best(self, data: str) -> str:
        values = (paper.number(llm_budget_row(arm), "unique_valid")
                  for arm in self.view.plan.arms if arm.data == data)  # fmt: skip
        known = [value for value in values if isinstance(value, float)]
        return f"{max(known):.1f}" if known else ""

    def _gain(self) -> Iterator[str]:
        """Say what the LLM adds to the search that does without."""
        found = {data: _turned(self._leads[data][_WITH_LLM]) for data in self.datasets
                 if _WITH_LLM in self._leads[data]}  # fmt: skip
        if found:
            each = "; ".join(f"{title_of(d)} {interval(one)}" for d, one in found.items())
            more = [title_of(d) for d, one in found.items() if (one.low or 0.0) > 0]
            less = [title_of(d) for d, one in found.items() if (one.high or 0.0) < 0]
            told = [f"it gains on {', '.join(more)}"] * bool(more)
            told += [f"it loses on {', '.join(less)}"] * bool(less)
            rest = "elsewhere" if more or less else "on every data set"
            told += [f"{rest} the interval contains 0"] * (len(more) + len(less) < len(found))
            yield (
                "Does the LLM add to the search that leads? With its 30 calls, recombine finds "
                f"this many more than with none: {each}. So {'; '.join(told)}. All this counts "
                "options, as the paper does, and many are variants of one another; which of them "
                "a person should be shown is another question: [wayfinder](wayfinder.md)."
            )

    # The worth of proposals --------------------------------------------------------------------

    @cached_property
    def _worths(self) -> Mapping[str, Mapping[tuple[str, str], Worth]]:
        every = replace(self.view, llm="")
        return {data: proposals(every, data) for data in self.datasets}

    @cached_property
    def _llms(self) -> list[str]:
        """The LLMs that are shown: one of each model, the paper's, and the stand-ins."""
        models = {brief(llm): llm for llm in reversed((self.view.llm, *self.view.llms)) if llm}
        order = ("simulated", "", "scripted")
        return sorted((*models.values(), paper.LLM), key=lambda llm: order.index(stand_in(llm)))

    def _proposal_table(self) -> str:
        """Return what each LLM's proposals come to, and what they would have to."""
        rows = []
        for search in TREES.values():
            for llm in self._llms:
                if any((search, llm) in self._worths[data] for data in self.datasets):
                    name = f"{search}, {escape_markdown(_called(llm))}"
                    rows.append(self._row(name, partial(self._product, (search, llm))))
        rows.append(self._row("**no LLM: recombine**", partial(self._product, (CALLED, ""))))
        return self._grid("valid × new → unique valid", rows)

    def _product(self, key: tuple[str, str], data: str) -> str:
        worth = self._worths[data].get(key)
        if worth is None:
            return ""
        return f"{100 * worth.validity:.0f} % × {100 * worth.new:.0f} % → {worth.unique:.1f}"

    def _needed(self) -> Iterator[str]:
        """Yield how many proposals would have to be valid, at the share of new ones seen."""
        search, rows = next(iter(TREES.values())), []
        for llm in self._llms:
            good = llm == paper.LLM or stand_in(llm) == "scripted"
            if good and any(self._level((search, llm), data) for data in self.datasets):
                name = escape_markdown(_called(llm))
                rows.append(self._row(name, partial(self._level, (search, llm))))
        if rows:
            yield (
                f"If proposals repeated each other as often as one of these does, {search} would "
                "match recombine without an LLM only if this share of its 150 rows were valid. "
                "Above 100 % no validity is enough: repetition is the limit."
            )
            yield self._grid("validity needed, if proposals repeat as", rows)

    def _level(self, key: tuple[str, str], data: str) -> str:
        one, ours = (self._worths[data].get(one) for one in (key, (CALLED, "")))
        return f"{100 * one.validity_for(ours.unique):.0f} %" if one and one.new and ours else ""


def _called(llm: str) -> str:
    if llm == paper.LLM:
        return f"{llm} (the paper's)"
    return _KINDS.get(stand_in(llm)) or brief(llm)


def _turned(found: Paired) -> Paired:
    """Return the same comparison the other way round."""
    low, high = (None if end is None else -end for end in (found.high, found.low))
    delta = None if found.delta is None else -found.delta
    return replace(found, mean_a=found.mean_b, mean_b=found.mean_a, delta=delta, low=low, high=high)
