from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from measured_world import LLM, SIMULATED, all_of, cells_of, lively
from waysout.bench.arms import Arm
from waysout.bench.cell import Cells
from waysout.bench.plan import plan_names
from waysout.bench.report import Report
from waysout.bench.tables import TABLES
from waysout.errors import InputError

pytest.importorskip("matplotlib", reason="needs waysout[bench]")
ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "results.md"
GUIDE = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def cells() -> Cells:
    """A real LLM under the same calls, and the simulated one with that and the reward weights."""
    real = cells_of("llm-budget", lively)
    simulated = all_of(lively, "llm-budget", "reward-weights", llm=SIMULATED)
    return Cells([*real, *simulated])


@pytest.fixture(scope="module")
def few() -> Cells:
    """Some of one table, with both LLMs: enough for what holds of any page."""
    return Cells(
        cell
        for llm in (LLM, SIMULATED)
        for cell in cells_of("llm-budget", lively, llm=llm, queries=3, datasets=("loan",))
    )


def report_of(cells: Cells, figures: Path | None = None) -> Report:
    return Report(cells, ["kept/a.jsonl.gz"], Path("docs/results.md"), figures)


@pytest.fixture(scope="module")
def plain(few: Cells) -> str:
    """The page of those, without pictures."""
    return report_of(few).page()


@pytest.fixture(scope="module")
def page(cells: Cells) -> str:
    return report_of(cells, Path("docs/figures")).page()


def part(page: str, heading: str) -> str:
    """Return what stands under a heading, as far as the next one of its level."""
    level = heading.partition(" ")[0]
    return page.partition(f"\n{heading}")[2].partition(f"\n{level} ")[0]


def test_the_page_says_how_it_was_made_and_links_to_the_guide(page: str) -> None:
    first = page.splitlines()[0]
    assert first == (
        "<!-- Written by: waysout bench report --results kept/a.jsonl.gz --out docs/results.md "
        "--figures docs/figures"
    )
    assert "[experiments](experiments.md)" in page


def test_what_was_run_is_counted_by_plan_and_llm(page: str) -> None:
    ran = part(page, "## What was run")
    real, _, rest = ran.partition("**simulated:1 (simulated: no language model)**")
    simulated, _, none = rest.partition("**none is asked**")
    assert "**openai:some-model**" in real
    assert "| `llm-budget` | 312 of 1,560 | 8,784 |" in real
    assert "| `reward-weights` | 144 of 720 |" in simulated
    assert "| `llm-budget` | 24 of 120 | 0 |" in none
    assert "**all together**" in none
    assert "Oracles (LightGBM): loan " in ran
    assert "accuracy 0." in ran


def test_tables_are_shown_for_real_llms_or_a_stand_in_with_the_command_above(page: str) -> None:
    tables = part(page, "## Tables")
    command = "waysout bench table {} --results kept/a.jsonl.gz --llm {}"
    assert f"```sh\n{command.format('llm-budget', LLM)}\n```" in tables
    assert command.format("llm-budget", SIMULATED) not in tables
    assert f"```sh\n{command.format('reward-weights', SIMULATED)}\n```" in tables


def test_a_table_of_which_little_was_run_is_left_out(page: str, cells: Cells) -> None:
    tables = part(page, "## Tables")
    assert "### `reward-weights`" in tables
    assert "waysout bench table reward-weights --results kept/a.jsonl.gz --llm openai" not in tables
    assert "`compressors`" not in tables
    assert "`pruning-sweep`" not in tables  # a few arms are also in llm-budget


def test_long_tables_are_folded_and_every_fold_ends(page: str) -> None:
    assert page.count("<details>") == page.count("</details>") > 5
    paired_table = part(page, "#### Every arm (B) against Comp-MCTS (A), query by query")
    assert "<details><summary>260 lines</summary>" in paired_table


def test_claims_have_a_verdict_for_each_llm_and_numbers(page: str) -> None:
    claims = part(page, "## What the paper claims")
    rows = [line for line in claims.splitlines() if line.startswith("| [Five candidates")]
    (row,) = rows
    assert row.endswith("| supported (6 of 30 queries) | supported (simulated, 6 of 30 queries) |")
    numbers = part(page, "### Five candidates a call beat one by a wide margin")
    assert "- openai:some-model: **supported (6 of 30 queries)**" in numbers
    assert "- simulated:1 (simulated: no language model): **supported (simulated, 6 of" in numbers
    assert "| Loan | unique valid | LATS standard, K=1 | LATS standard, K=5 | 6 |" in numbers
    # The LLM is named above its lines: as a column it would make them too wide.
    _, real, simulated = re.split(r"^\*\*(?:openai|simulated).*\*\*$", numbers, flags=re.MULTILINE)
    for lines in (real, simulated):
        assert lines.strip().startswith("| data set | metric |")
    assert "openai" not in "".join(line for line in numbers.splitlines() if line.startswith("|"))
    assert "| 2.90 → 19.97 | twice | yes |" in numbers


def test_claims_are_judged_under_both_readings() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        pruned = {"global": 5.0, "path": 9.0}.get(str(arm.settings.get("scope")), 0.0)
        if arm.binning == "none" or arm.style.unchanged:
            pruned = 10.0 - pruned
        return {"unique_valid": 3.0, "rows": 100.0, "prune_pct": pruned + place % 2}

    cells = [
        cell
        for name in ("pruning-sweep@settled", "pruning-sweep@first")
        for cell in cells_of(name, value, llm=SIMULATED, datasets=("loan",), queries=30)
    ]
    page = report_of(Cells(cells)).page()
    scope = part(page, "### Path prunes more than global at θ = 0.005 and 0.01")
    simulated = "simulated:1 (simulated: no language model)"
    assert f"- {simulated}: **not supported on Loan;" in scope
    assert f"- {simulated}, as first read: **supported on Loan;" in scope
    row = next(line for line in page.splitlines() if line.startswith("| [Path prunes more"))
    assert "not supported on Loan" in row
    assert "as first read: supported on Loan" in row
    assert "| `pruning-sweep` | 750 of 3,000 |" in page
    assert "| `pruning-sweep@first` |" not in page  # less than half of it
    tables = part(page, "## Tables")
    assert "#### How far each reading is from the paper's sweep" in tables
    assert "| Loan | compression | path | 0.02 | 30 / 30 | 82.0 |" in tables


def test_claims_are_linked_to_where_they_stand(page: str) -> None:
    claims = part(page, "## What the paper claims")
    anchors = re.findall(r"\]\(#([^)]+)\)", claims)
    headings = re.findall(r"^### (.+)$", claims, re.MULTILINE)
    made = [re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings]
    assert anchors == made
    assert len(anchors) > 10


def test_the_frank_section_counts_and_lists_what_disagrees(page: str) -> None:
    frank = part(page, "## What reproduces, what does not, and why")
    assert "**openai:some-model**" in frank
    assert "- Supported (" in frank
    assert "Spearman" in frank
    assert "| Loan | BALANCED without pruning: unique\\_valid | 26.2 (reward\\_weights) |" in frank


def test_pictures_are_linked(cells: Cells, page: str, plain: str) -> None:
    linked = re.findall(r"!\[[^\]]*\]\(figures/([^)]+)\)", page)
    made = report_of(cells, Path("docs/figures")).pictures()
    assert sorted(linked) == sorted(picture.file for picture in made)
    assert "trade-off-openai-some-model.svg" in linked
    assert "paired-comp-mcts-recombine-openai-some-model.svg" in linked
    assert "paired-comp-mcts-recombine-simulated-1.svg" not in linked
    assert not any(name.startswith("sweep") for name in linked)
    assert "figures/" not in plain


def test_the_same_cells_give_the_same_page_in_any_order(few: Cells, plain: str) -> None:
    again = Cells(reversed(list(few)))
    assert report_of(again).page() == plain


def test_one_more_option_makes_another_page(few: Cells, plain: str) -> None:
    changed = [
        replace(cell, metrics={**cell.metrics, "unique_valid": 1}) if place == 0 else cell
        for place, cell in enumerate(few)
    ]
    assert report_of(Cells(changed)).page() != plain


def test_a_name_of_an_llm_is_text(few: Cells) -> None:
    evil = "openai:x|y](javascript:alert(1))<img src=x>"
    named = Cells(replace(cell, llm=evil) if cell.llm == LLM else cell for cell in few)
    text = report_of(named).page()
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert "<img" not in outside
    assert "](javascript" not in outside.replace("\\](javascript", "")


def test_no_searches_no_page() -> None:
    with pytest.raises(InputError, match="waysout bench run"):
        next(report_of(Cells()).files())


# The page that is kept -------------------------------------------------------------------------


def _options(command: str, name: str) -> list[str]:
    words = shlex.split(command)
    return [words[i + 1] for i, word in enumerate(words) if word == name]


def test_the_page_of_results_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of code or results needs the command that its first line names."""
    monkeypatch.chdir(ROOT)
    text = PAGE.read_text(encoding="utf-8")
    command = text.partition("\n")[0].removeprefix("<!-- Written by: ")
    places, figures = _options(command, "--results"), _options(command, "--figures")
    assert places
    made = Report(
        Cells.read(places), places, Path("docs/results.md"), Path(figures[0]) if figures else None
    )
    assert made.page() == text, f"docs/results.md is stale: {command}"
    for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
        assert (PAGE.parent / link).is_file(), link


# The guide -------------------------------------------------------------------------------------


def test_what_the_page_says_of_the_readings_is_what_its_tables_show() -> None:
    """Loan and Adult do not confirm the default, and HELOC does, by compression."""
    text = PAGE.read_text(encoding="utf-8")
    for data in ("Loan", "Adult"):
        counts = re.findall(
            rf"^\| {data} \| reported \| 24 \| (\d+) \| (\d+) \|", text, re.MULTILINE
        )
        assert len(counts) == 2  # scripted and simulated
        assert all(int(first) > int(settled) for settled, first in counts)
    points = re.findall(
        r"^\| HELOC \| chosen on \| compression \| \w+ \| 4 \| ([\d.]+) \| ([\d.]+) \|",
        text,
        re.MULTILINE,
    )
    assert len(points) == 6
    assert all(4 * float(settled) < float(first) for settled, first in points)


def test_the_guide_names_every_plan_and_table_there_is() -> None:
    for name in (*plan_names(), *TABLES):
        assert f"`{name}`" in GUIDE, name


def test_plans_that_the_guide_runs_exist() -> None:
    named = re.findall(r"waysout bench run ([a-z-]+)(?: |$)", GUIDE, re.MULTILINE)
    assert named
    assert set(named) <= set(plan_names())
