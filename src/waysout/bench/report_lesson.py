"""What stands first on the page of results: what a search without an LLM finds beside the others.

Every sentence with a figure, or that a figure could make false, is made of the searches on file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

from waysout.bench import paper
from waysout.bench.judge import known_plan
from waysout.bench.readings import MARK, others
from waysout.bench.render import Markdown, markdown_grid
from waysout.bench.report_claims import Verdicts, brief, interval
from waysout.bench.stats import Paired
from waysout.bench.tables_base import ArmSample, View, llm_words, title_of
from waysout.bench.tables_lead import CALLED, TREES, Worth, leads, proposals, without_llm
from waysout.llm.connect import stand_in
from waysout.report.tables import escape_markdown

_WITH_LLM = "recombine"
_PROPOSALS = (
    "**What an LLM's proposals would have to be worth to change that.** Without pruning, a search "
    "turns the rows it asks into unique options at the rate *valid × new*: the share that the "
    "oracle approves, times the share of these that repeat no earlier one. Of "
    f"{paper.LLM} these are the paper's figures, for its 15 held-out queries; simulated proposals "
    "are drawn at random and scripted ones come from a hand-written table of common sense: neither "
    "is a language model. recombine asks no key twice, so all it finds is new by design."
)
_KINDS = {"simulated": "random edits (simulated)", "scripted": "sensible edits (scripted)"}
_NO_LLM = {
    "random search": "random rows=150",
    "the nearest approved rows of the data": "nearest rows=150",
    "tabular diffusion (our stronger version)": "tabular-diffusion rows=150",
}
"""Other searches without an LLM that are shown, and their arms."""


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
        # The arms of a data set: what two plans share has one name there, and another elsewhere.
        arms = max((list(self._papers(data)) for data in self.datasets), key=len)
        lats = [name for name in arms if name.startswith("LATS")]
        added, single = (sum(part in name for name in lats) for part in ("with memory", "K=1"))
        which = "every" if ahead == len(found) else f"in {ahead} of {len(found)} comparisons a"
        counts = sorted({one.n for one in found})
        queries = "–".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
        llm = escape_markdown(_called(self.view.llm))
        return (
            f"**With 30 calls to {llm} and 150 evaluations of the model (rows), {which} search of "
            "the paper that asks an LLM finds fewer options than a search that asks none.** The "
            f"latter is `recombine` without a call, on the same {queries} queries of each data "
            f"set, under the same rules. The others are {len(arms) - len(lats)} variants of "
            f"Comp-MCTS (how it prunes, how it rewards) and {len(lats)} of LATS, of which {single} "
            f"make one proposal a call (K = 1), so that they may ask 30 rows only, and {added}, "
            f"with memory, are ours. In {ahead} of {len(found)} comparisons the 95 % interval of "
            f"the lead lies above 0. Whether that holds for {paper.LLM} was not tested; the "
            "paper's best figures stand in the last line. recombine is built for this count: "
            "its own edits take one value from each bin, and an LLM is shown no bins. "
            "Mean unique valid options (distinct validated counterfactuals) a query · features "
            "that each changes · queries with any option:"
        )

    def _lead_table(self) -> str:
        def best(data: str) -> str:
            name = self._best(data)
            return f"{_figures(self.view.sample(data, name))} ({name})"

        rows = [
            self._row("**no LLM: recombine**", lambda d: _figures(without_llm(self.view, d))),
            self._row("the paper's searches with an LLM: the best of them", best),
            self._row("lead over it [95 % interval]", self._lead),
            *(self._row(f"lead over the best as we {reading} read the paper"
                        f"{_drawn(lesson.view.llm, self.view.llm)}", lesson._best_and_lead)
              for reading, lesson in self._as_read()),
            *(self._row(f"lead if {_called(llm)} stood in for the LLM",
                        replace(self, view=replace(self.view, llm=llm))._lead)
              for llm in self.view.llms if stand_in(llm) == "scripted" != stand_in(self.view.llm)),
            *(self._row(f"no LLM: {name}", partial(self._other, arm))
              for name, arm in _NO_LLM.items()),
            self._row(f"{paper.LLM} in the paper, the best of all its tables (other oracles, "
                      "queries and key)", self._papers_best),
        ]  # fmt: skip
        return self._grid("", [row for row in rows if any(row[1:])])

    def _lead(self, data: str) -> str:
        found = self._papers(data)
        return interval(found[self._best(data)]) if found else ""

    def _best_and_lead(self, data: str) -> str:
        found = self._papers(data)
        if not found:
            return ""
        best = self._best(data)
        return f"{interval(found[best])} ({found[best].mean_a or 0.0:.1f}: {best})"

    def _as_read(self) -> Iterator[tuple[str, Lesson]]:
        """Yield the other readings of the plan, each with the real LLM that was run most."""
        plan = self.view.plan
        for reading in others(plan.reading):
            name = f"{plan.name.partition(MARK)[0]}{MARK}{reading}"
            view = replace(self.view, plan=known_plan(name))
            ranked = Verdicts(view.cells, view.llms).ranked(view.plan)
            most = next((llm for llm in ranked if not stand_in(llm)), "")
            if most and not stand_in(view.llm):
                yield reading, replace(self, view=replace(view, llm=most))

    def _other(self, arm: str, data: str) -> str:
        return _figures(without_llm(self.view, data, arm))

    def _papers_best(self, data: str) -> str:
        best = paper.best_yield(data)
        return "" if best is None else f"{best:.1f}"

    def _gain(self) -> Iterator[str]:
        """Say what the LLM adds to the search that does without."""
        found = {data: _turned(self._leads[data][_WITH_LLM]) for data in self.datasets
                 if _WITH_LLM in self._leads[data]}  # fmt: skip
        if found:
            samples = (self.view.sample(data, _WITH_LLM) for data in found)
            calls = sorted(sample.mean("calls") or 0.0 for sample in samples if sample)
            each = "; ".join(f"{title_of(d)} {interval(one)}" for d, one in found.items())
            more = [title_of(d) for d, one in found.items() if (one.low or 0.0) > 0]
            less = [title_of(d) for d, one in found.items() if (one.high or 0.0) < 0]
            told = [f"it gains on {', '.join(more)}"] * bool(more)
            told += [f"it loses on {', '.join(less)}"] * bool(less)
            rest = "elsewhere" if more or less else "on every data set"
            told += [f"{rest} the interval contains 0"] * (len(more) + len(less) < len(found))
            yield (
                "Does the LLM add to the search that leads? Allowed 30 calls, of which it makes "
                f"{calls[0]:.1f} to {calls[-1]:.1f} on average, recombine finds this many more "
                f"than with none: {each}. So {'; '.join(told)}. The weights of its ranking were "
                "chosen on these queries; on 30 others of each data set it finds as many without "
                "an LLM ([recombine](recombine.md)). All this counts options, as the paper does; "
                "many are variants of one another, and which of them a person should be shown is "
                "another question: [wayfinder](wayfinder.md)."
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
        search, rows = next(iter(TREES.values())), []  # the command below prints the other, too
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
        return f"{_percent(worth.validity)} × {_percent(worth.new)} → {worth.unique:.1f}"

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
                "Above 100 % no validity is enough: repetition is the limit. How often options "
                f"repeat depends on the key, which is the paper's own in the line of {paper.LLM}."
            )
            yield self._grid("validity needed, if proposals repeat as", rows)

    def _level(self, key: tuple[str, str], data: str) -> str:
        one, ours = (self._worths[data].get(one) for one in (key, (CALLED, "")))
        return f"{100 * one.validity_for(ours.unique):.0f} %" if one and one.new and ours else ""


def _figures(sample: ArmSample | None) -> str:
    """Return the mean number of options and of features that one changes, and who has any."""
    if sample is None or not sample.n:
        return ""
    changes, solved = sample.mean("sparsity"), sum(bool(v) for v in sample.values("unique_valid"))
    options = f"{sample.mean('unique_valid') or 0.0:.1f}"
    return f"{options} · {changes:.1f} · {solved} of {sample.n}" if changes else options


def _percent(share: float) -> str:
    """Return a share; a small one with a digit more.

    >>> _percent(0.0142), _percent(0.91)
    ('1.4 %', '91 %')
    """
    return f"{100 * share:.{1 if share < 0.0995 else 0}f} %"


def _drawn(llm: str, than: str) -> str:
    """Return how an LLM's tokens are drawn, if otherwise than another's."""
    how = llm_words(llm).partition(" (")[2].removesuffix(")")
    return f" ({how})" if how and llm != than else ""


def _called(llm: str) -> str:
    if llm == paper.LLM:
        return f"{llm} (the paper's)"
    return _KINDS.get(stand_in(llm)) or brief(llm)


def _turned(found: Paired) -> Paired:
    """Return the same comparison the other way round."""
    low, high = (None if end is None else -end for end in (found.high, found.low))
    delta = None if found.delta is None else -found.delta
    return replace(found, mean_a=found.mean_b, mean_b=found.mean_a, delta=delta, low=low, high=high)
