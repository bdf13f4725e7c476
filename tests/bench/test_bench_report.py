"""The page of results: what it says of made-up searches, and that the page on file is fresh."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from measured_world import LLM, SIMULATED, all_of, cells_of, lively
from waysout.bench import report_claims
from waysout.bench.arms import Arm
from waysout.bench.cell import Cell, Cells
from waysout.bench.claims import CLAIMS
from waysout.bench.judge import Claim, Expected
from waysout.bench.plan import GROUPS, plan_names
from waysout.bench.report import Report
from waysout.bench.tables import TABLES, build
from waysout.errors import InputError

pytest.importorskip("scipy", reason="needs waysout[bench]")
ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "results.md"
GUIDE = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
SCRIPTED = "scripted:1"


@pytest.fixture(scope="module")
def cells() -> Cells:
    """A real LLM and a scripted one under the same calls, searches without any, and a stand-in."""
    real = [*cells_of("llm-budget", lively), *cells_of("llm-budget", lively, llm=SCRIPTED)]
    return Cells([*real, *cells_of("oracle-budget", lively),
                  *cells_of("reward-weights", lively, llm=SIMULATED)])  # fmt: skip


@pytest.fixture(scope="module")
def few() -> Cells:
    """Some of one table, with both LLMs: enough for what holds of any page."""
    return Cells(
        cell
        for llm in (LLM, SIMULATED)
        for cell in cells_of("llm-budget", lively, llm=llm, queries=3, datasets=("loan",))
    )


def report_of(cells: Cells, tables: Path | None = None) -> Report:
    return Report(cells, ["kept/a.jsonl.gz"], Path("docs/results.md"), tables)


@pytest.fixture(scope="module")
def plain(few: Cells) -> str:
    return report_of(few).page()


@pytest.fixture(scope="module")
def page(cells: Cells) -> str:
    return report_of(cells).page()


def part(page: str, heading: str) -> str:
    """Return what stands under a heading, as far as the next one of its level."""
    level = heading.partition(" ")[0]
    text = page.partition(f"\n{heading}\n")[2].partition(f"\n{level} ")[0]
    return text.replace("\u00a0", " ")


def line(page: str, title: str) -> list[str]:
    """Return the cells of the first line of a table that begins with a title."""
    text = next(text for text in page.splitlines() if text.startswith(f"| {title}"))
    return [cell.strip() for cell in text.replace("\u00a0", " ").strip("|").split("|")]


def effects(page: str, title: str) -> list[str]:
    """Return the cells of a claim's line in the fold of effects."""
    return line(page.partition("<summary>Effects and intervals")[2], title)


def test_the_page_says_how_it_was_made_and_links_to_the_guide(page: str) -> None:
    command = "waysout bench report --results kept/a.jsonl.gz --out docs/results.md"
    assert f"```sh\n{command}\n```" in page.partition("\n## ")[0]
    assert "[Experiments](experiments.md)" in page


def test_every_fold_ends(page: str) -> None:
    assert page.count("<details>") == page.count("</details>") > 5


# What the field should learn -------------------------------------------------------------------


def yields(levels: Mapping[str, float]) -> Cells:
    """Return searches on Loan where arms have these yields, by name or else by method."""

    def value(arm: Arm, place: int) -> Mapping[str, float]:
        level = levels.get(arm.name, levels.get(arm.method, 10.0)) + place % 2
        return {"unique_valid": level, "valid": 2 * level, "evaluated": 100.0}

    plans = (cells_of(plan, value, datasets=("loan",)) for plan in ("llm-budget", "oracle-budget"))
    return Cells(cell for plan in plans for cell in plan)


def test_the_lead_of_a_search_without_an_llm() -> None:
    levels = {"recombine rows=150": 40.0, "LATS diversity, K=5": 20.0, "recombine": 43.0}
    learn = part(report_of(yields(levels)).page(), "## What the field should learn")
    assert "every search of the paper that asks an LLM finds fewer options than" in learn
    assert "In 11 of 11 comparisons the 95 % interval of the lead lies above 0" in learn
    assert "the same 6 queries" in learn
    assert line(learn, "**no LLM: recombine")[1] == "40.5 · 2.5 · 6 of 6"
    assert line(learn, "the paper's searches")[1] == "20.5 · 2.5 · 6 of 6 (LATS diversity, K=5)"
    assert line(learn, "Gemma-3-12B in the paper")[1] == "28.2"  # with weights for diversity
    assert line(learn, "lead over it")[1] == "+20.0 [20.0, 20.0]"
    assert "with none: Loan +3.00 [3.00, 3.00]. So it gains on Loan." in learn


def test_where_it_does_not_lead_the_page_does_not_say_so() -> None:
    learn = part(report_of(yields({"Comp-MCTS": 15.0})).page(), "## What the field should learn")
    assert "in 0 of 11 comparisons a search of the paper that asks an LLM finds fewer" in learn
    assert "In 0 of 11 comparisons" in learn
    assert "So on every data set the interval contains 0." in learn


def test_the_worth_of_proposals_is_valid_times_new() -> None:
    levels = {"recombine rows=150": 59.5, "Comp-MCTS, no pruning": 9.5, "LATS standard, K=5": 24.5}
    cells = [*yields(levels), *(replace(cell, llm=SCRIPTED) for cell in yields(levels) if cell.llm)]
    learn = part(report_of(Cells(cells)).page(), "## What the field should learn")
    # Of 100 rows 20 are valid, half of them new.
    assert line(learn, "Comp-MCTS without pruning, openai:some-model")[1] == "20 % × 50 % → 10.0"
    assert line(learn, "Comp-MCTS without pruning, Gemma-3-12B")[1] == "66 % × 24 % → 23.8"
    # Of 150 rows 120 would have to be valid, were half of them new, to give the 60 of recombine.
    assert line(learn, "sensible edits (scripted)")[1] == "80 %"


def test_what_is_not_on_file_is_named_with_its_command(plain: str) -> None:
    learn = part(plain, "## What the field should learn")
    assert learn.strip().startswith("Not run: `waysout bench run llm-budget oracle-budget`")


# Claims ----------------------------------------------------------------------------------------


def test_every_claim_has_one_line_with_a_verdict(page: str) -> None:
    claims = part(page, "## The claims").partition("<details>")[0]
    rows = [text for text in claims.splitlines() if text.startswith("| ")][2:]
    assert len(rows) == len(CLAIMS)
    assert all("**" in row for row in rows)


def test_a_line_has_effect_interval_and_n(page: str) -> None:
    title = "Five candidates a call beat one by a wide margin"
    verdict, found = line(page, title), effects(page, title)
    assert verdict[1].startswith("**holds (6 of 30 queries)**")
    assert verdict[2:] == ["✓"] * 4
    assert found[0].endswith(": *more than twice*")
    effect = r"✓ standard [\d.]+ − 2 × [\d.]+ = \+[\d.]+ \[[\d.]+, [\d.]+\]<br>✓ high-temp "
    assert re.match(effect, found[1])
    assert found[-1] == "6"
    assert line(page, "On HELOC, diversity")[2:5] == ["–", "–", "–"]


def test_a_decision_that_a_t_test_does_not_share_names_its_p() -> None:
    """One query in six gains 6, the others 0 or a little: the bootstrap alone is sure of it."""

    def value(arm: Arm, place: int) -> Mapping[str, float]:
        gains = (6.0, 0.0, 1.0, 0.5, 0.0, 0.5)
        return {"unique_valid": 10 + (gains[place] if arm.name == "VALIDITY" else 0)}

    page = report_of(all_of(value, "reward-weights")).page()
    told = re.fullmatch(r"✓ \+1\.33 \[[\d.]+, [\d.]+\] \(p = ([\d.]+)\)",
                        effects(page, "VALIDITY raises the yield")[1])  # fmt: skip
    assert told
    assert float(told[1]) > 0.05


def test_what_no_real_llm_has_run_says_so_with_what_stand_ins_say(page: str) -> None:
    found = line(page, "VALIDITY raises the yield over BASELINE")
    assert found[1].startswith(
        "**not run in full with a real LLM**<br>simulated: undecided (6 of 30"
    )
    assert found[2:] == [""] * 4
    assert line(page, "Pruning adds no time")[1].startswith("**not run in full with a real LLM**")


def test_the_caveat_stands_beside_the_verdict(page: str) -> None:
    assert "chosen with this order in sight" in line(page, "RLBWT and RePair prune more")[1]


def pruned(arm: Arm, place: int) -> Mapping[str, float]:
    """Prune more in path scope as first read, and less as settled."""
    share = {"global": 5.0, "path": 9.0}.get(str(arm.settings.get("scope")), 0.0)
    if arm.style.unchanged:
        share = 10.0 - share
    return {"unique_valid": 3.0, "rows": 100.0, "prune_pct": share + place % 2}


def sweeps(*names: str, llm: str = LLM) -> list[Cell]:
    """Return all searches of the sweep on Loan under some readings."""
    return [
        cell
        for name in names
        for cell in cells_of(name, pruned, llm=llm, datasets=("loan",), queries=30)
    ]


def test_the_other_reading_is_named_where_it_decides_otherwise() -> None:
    cells = Cells(sweeps("pruning-sweep@settled", "pruning-sweep@first"))
    page = report_of(cells).page()
    verdict = line(page, "Path prunes more than global")[1]
    assert verdict.startswith("**does not hold on Loan; not run on Adult, Credit, HELOC**")
    assert "<br>*as first read:* holds on Loan; not run on" in verdict
    assert line(page, "VALIDITY raises the yield")[1].endswith("<br>*as first read:* not run")
    # Yields are the same under both.
    assert "as first read" not in line(page, "At a similar strength of pruning")[1]
    assert f"- {LLM.partition('@')[0]}: Loan " in part(page, "## How the paper is read")


def test_the_verdict_is_that_of_the_real_llm_with_most_searches() -> None:
    other = LLM.replace("some-model", "larger-7b-it")

    def reverse(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": 9.0 if arm.name == "BASELINE" else 3.0 + place % 2}

    some = cells_of("reward-weights", lively, queries=5)
    most = cells_of("reward-weights", reverse, llm=other, queries=6)
    stand_in = cells_of("reward-weights", lively, llm=SIMULATED, queries=30)
    page = report_of(Cells([*some, *most, *stand_in])).page()
    found = line(page, "VALIDITY raises the yield")
    assert found[1].startswith("**does not hold (6 of 30 queries)**")
    assert "drawing its tokens): openai:larger-7b-it, unless" in part(page, "## The claims")
    folded = part(page, "## The claims").partition("Other LLMs")[2]
    assert line(folded, "claim")[1:] == ["openai:some-model", "simulated:1"]
    assert line(folded, "VALIDITY raises the yield")[1] in ("✗???", "????", "?✗??")


def test_undecided_comparisons_name_the_number_of_queries_that_would_decide() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        more = {"loan": (-1, 3), "adult": (-10, 10.5), "credit": (-2, 2), "heloc": (1, 2)}
        return {"unique_valid": 10 + (more[arm.data][place % 2] if arm.name == "VALIDITY" else 0)}

    found = effects(report_of(all_of(value, "reward-weights")).page(), "VALIDITY raises the yield")
    assert found[1] == "? +1.00 [−0.33, 2.33] (n ≈ 19)"
    assert found[2].endswith("(n > 1,000)")
    assert found[3].endswith("(no effect)")
    assert found[4].startswith("✓ +1.50")


def test_a_claim_about_searches_without_an_llm_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    more = Expected("unique_valid", "more", "recombine rows=150", "random rows=150")
    claim = Claim("without", "It takes no LLM", "", "oracle-budget", (more,))
    monkeypatch.setattr(report_claims, "CLAIMS", (claim,))
    page = report_of(all_of(lively, "oracle-budget")).page()
    assert line(page, "It takes no LLM")[1] == ("**holds (6 of 30 queries)**<br>no LLM is asked")


# The rest --------------------------------------------------------------------------------------


def test_what_was_run_is_counted_by_plan_and_llm(page: str) -> None:
    ran = part(page, "## What was run")
    stand_ins = [f"{name}:1, no language model" for name in ("scripted", "simulated")]
    assert line(ran, "plan") == ["plan", "openai:some-model", *stand_ins, "no LLM"]
    assert line(ran, "`llm-budget`")[1:] == ["312 of 1,560"] * 2 + ["24 of 1,560", "24 of 120"]
    assert line(ran, "`reward-weights`")[3] == "144 of 720"
    assert line(ran, "calls")[1] == "8,784"
    assert "Oracles (LightGBM): loan " in ran


def test_less_than_half_of_another_reading_is_no_run_of_it() -> None:
    page = report_of(Cells(sweeps("pruning-sweep@settled", "pruning-sweep@first"))).page()
    assert line(page, "`pruning-sweep`")[1] == "750 of 3,000"
    assert "| `pruning-sweep@first` |" not in page


def test_tables_are_listed_with_the_command_that_prints_them(page: str, cells: Cells) -> None:
    commands = part(page, "## Every table")
    command = "waysout bench table {} --results kept/a.jsonl.gz"
    assert f"LLM={LLM}\n" in commands
    assert f'{command.format("llm-budget")} --llm "$LLM"  # The same LLM calls' in commands
    assert f"{command.format('reward-weights')} --llm {LLM}" not in commands
    assert f"{command.format('oracle-budget')}  #" in commands
    assert "quality" not in commands  # nothing of it was run
    assert ("llm-budget", LLM) in report_of(cells).listed()


def test_all_tables_can_be_written(few: Cells, tmp_path: Path) -> None:
    made = report_of(few, tmp_path)
    files = dict(made.files())
    assert {path.stem for path in list(files)[1:]} == {name for name, _ in made.listed()}
    assert b"### Methods under the same number of LLM calls" in files[tmp_path / "llm-budget.md"]


def test_the_same_cells_give_the_same_page_in_any_order(few: Cells, plain: str) -> None:
    again = Cells(reversed(list(few)))
    assert report_of(again).page() == plain


def test_one_more_option_makes_another_page(cells: Cells, page: str) -> None:
    changed = [
        replace(cell, metrics={**cell.metrics, "unique_valid": 500})
        if place == 0 and cell.llm == LLM
        else cell
        for place, cell in enumerate(sorted(cells, key=lambda cell: cell.llm != LLM))
    ]
    assert report_of(Cells(changed)).page() != page


def test_a_name_of_an_llm_is_text(few: Cells) -> None:
    evil = "openai:x|y](javascript:alert(1))<img src=x>```"
    named = Cells(replace(cell, llm=evil) if cell.llm == LLM else cell for cell in few)
    text = report_of(named).page()
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert "<img" not in outside
    assert "](javascript" not in outside.replace("\\](javascript", "")
    assert text.count("```") == 4


def test_no_searches_no_page() -> None:
    with pytest.raises(InputError, match="waysout bench run"):
        next(report_of(Cells()).files())


# The page on file ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def on_file(kept: str) -> Cells:
    """The searches that the page on file is made of."""
    places = options(made_with(kept), "--results")
    return Cells.read([ROOT / place for place in places])


def made_with(kept: str) -> str:
    """Return the command that writes the page."""
    found = re.search(r"^waysout bench report .*$", kept, re.MULTILINE)
    assert found
    return found[0]


def options(command: str, name: str) -> list[str]:
    words = shlex.split(command, comments=True)
    return [words[i + 1] for i, word in enumerate(words) if word == name]


def test_the_page_of_results_is_fresh(kept: str, on_file: Cells) -> None:
    """A change of code or results needs the command that the page begins with."""
    command = made_with(kept)
    made = Report(on_file, options(command, "--results"), Path("docs/results.md"))
    assert made.page() == kept, f"docs/results.md is stale: {command}"


def test_the_page_is_short(kept: str) -> None:
    """About two screens, and no more than that again in its folds."""
    outside = re.sub(r"<details>.*?</details>", "", kept, flags=re.DOTALL)
    assert len(outside) < 13_000
    assert len(kept) < 40_000


def test_every_command_of_the_page_prints_its_table(kept: str, on_file: Cells) -> None:
    block = part(kept, "## Every table").partition("```sh\n")[2].partition("\n```")[0]
    llm, *commands = block.splitlines()
    names = []
    for command in commands:
        words = shlex.split(command, comments=True)
        assert words[:3] == ["waysout", "bench", "table"]
        assert options(command, "--results") == options(made_with(kept), "--results")
        names.append(words[3])
        given = [word.replace("$LLM", shlex.split(llm)[0].removeprefix("LLM="))
                 for word in options(command, "--llm")]  # fmt: skip
        if words[3] not in ("readings", "quality"):  # built for the page itself, or not here
            assert build(words[3], on_file, llm=given[0] if given else None), command
    assert {"claims", "no-llm", "llm-budget", "pruning-sweep", "cost"} <= set(names)


def test_links_into_the_page_have_a_heading(kept: str) -> None:
    headings = re.findall(r"^#+ (.+)$", kept, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    linked = {
        anchor for page in pages for anchor in re.findall(r"results\.md#([\w-]+)", page.read_text())
    }
    assert linked
    assert linked | set(re.findall(r"\]\(#([\w-]+)\)", kept)) <= anchors


def test_what_the_page_says_of_the_papers_text_is_in_its_tables(kept: str) -> None:
    def rows(name: str) -> list[dict[str, str]]:
        text = (ROOT / "src/waysout/bench/paper" / f"{name}.csv").read_text("utf-8")
        return list(csv.DictReader(text.splitlines()))

    told = " ".join(kept.partition("Where the paper contradicts itself")[2].split())
    yields = {(row["dataset"], row["setting"]): float(row["yield"])
              for row in rows("reward_weights")}  # fmt: skip
    datasets = ("Loan", "Adult", "Credit", "HELOC")
    raised = [d for d in datasets if yields[d, "VALIDITY"] > yields[d, "BASELINE"]]
    assert raised == ["Loan"]
    assert "shows on Loan alone" in told
    held = {(row["dataset"], row["setting"].split(" ")[0]): row["prune_pct"]
            for row in rows("pruning_heldout")}  # fmt: skip
    for data in ("Loan", "Adult"):
        embedding, compression = float(held[data, "Embedding"]), float(held[data, "Compression"])
        assert embedding < compression
        assert f"{embedding:g} % against {compression:g} %" in told
    for data, tau, shown in (("loan", "0.05", "+0.60"), ("adult", "0.1", "−5.83"),
                             ("credit", "0.1", "+7.93")):  # fmt: skip
        pairs = [row for row in rows(f"pruning_paired_matched_{data}")
                 if "Global" in row["comparison"] and "0.02" in row["comparison"]
                 and tau in row["comparison"] and row["metric"].startswith("Unique")]  # fmt: skip
        assert [row["delta"].replace("-", "−") for row in pairs] == [shown]
        assert shown in told


def test_what_is_said_of_the_readings_is_what_the_page_counts(kept: str) -> None:
    """With both stand-ins, our first reading is nearer to the paper on Loan and Adult."""
    line = (
        r"^- (?:scripted|simulated):1 \([^)]*\): Loan (\d+) : (\d+), Adult (\d+) : (\d+), Credit "
    )
    counts = re.findall(line, kept, re.MULTILINE)
    assert len(counts) == 2
    for loan_settled, loan_first, adult_settled, adult_first in counts:
        assert int(loan_first) > int(loan_settled), "bench/readings.py says otherwise"
        assert int(adult_first) > int(adult_settled), "bench/readings.py says otherwise"


# The guide -------------------------------------------------------------------------------------


def test_the_guide_names_every_plan_and_table_there_is() -> None:
    for name in (*plan_names(), *TABLES):
        assert f"`{name}`" in GUIDE, name


def test_plans_that_the_guide_runs_exist() -> None:
    named = re.findall(r"waysout bench run ([a-z-]+)(?: |$)", GUIDE, re.MULTILINE)
    assert named
    assert set(named) <= {*plan_names(), *GROUPS}
