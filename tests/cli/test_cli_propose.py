from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import CommandLine

APPLICANT = ("propose", "synthetic", "--row", "828", "--llm", "simulated:1")


def test_a_proposal_is_shown_with_its_cost(waysout: CommandLine) -> None:
    code, out, err = waysout(*APPLICANT)
    assert code == 0, err
    assert "Proposed by simulated:1" in out
    assert "simulated: " in out
    assert "of 5 edits kept" in out
    assert "of them different" in out


def test_json_holds_edits_rejections_and_the_ledger(waysout: CommandLine) -> None:
    code, out, _ = waysout(*APPLICANT, "--json", "-k", "8", "--price", "1/2")
    assert code == 0
    found = json.loads(out)
    assert found["llm"] == "simulated:1"
    assert found["asked"] == 8
    assert {"feature", "from", "to", "reason"} == set(found["edits"][0])
    assert len(found["edits"]) + sum(found["rejected"].values()) >= 7
    spent = found["spent"]
    assert (spent["llm_calls"], spent["attempts"]) == (1, 1)
    paid = spent["tokens_in"] * 1e-6 + spent["tokens_out"] * 2e-6
    assert spent["money"] == pytest.approx(paid)


def test_what_was_recorded_can_be_replayed(waysout: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    _, first, _ = waysout(*APPLICANT, "--json", "--record", path)
    code, again, _ = waysout("propose", "synthetic", "--row", "828", "--llm", f"replay:{path}",
                             "--json")  # fmt: skip
    assert code == 0
    assert json.loads(again)["edits"] == json.loads(first)["edits"]
    assert json.loads(again)["llm"] == "simulated:1"


def test_the_prompt_can_be_read(waysout: CommandLine) -> None:
    _, _, ours = waysout(*APPLICANT, "--show-prompt")
    _, _, paper = waysout(*APPLICANT, "--show-prompt", "--paper")
    assert "The person, and what may change:" in ours
    assert "DIVERSITY REQUIREMENTS" in paper


@pytest.mark.parametrize(
    ("args", "code", "reason"),
    [
        (("--row", "9999999"), 3, "there is no row 9999999"),
        (("--rules", "none-such"), 3, "unknown rule set"),
        (("--llm", "gpt"), 3, "unknown LLM backend"),
        (("--llm", "replay:nowhere"), 3, "cannot read the recording"),
        (("--llm", "llamacpp:smollm2-135m"), 5, "waysout models pull"),
        (("--llm", "openai:m@http://127.0.0.1:9/v1"), 9, "does not answer"),
        (("--price", "free"), 3, "per million tokens"),
        (("--temperature", "9"), 2, ""),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(
    waysout: CommandLine, args: tuple[str, ...], code: int, reason: str
) -> None:
    left, out, err = waysout("propose", "synthetic", *args, "--json")
    assert left == code
    assert reason in err
    assert json.loads(out)["error"]["code"] == code


def test_a_table_needs_its_card(waysout: CommandLine, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("a,b\n1,2\n")
    code, _, err = waysout("propose", table, "--llm", "simulated:1")
    assert (code, "needs its card" in err) == (3, True)
    code, _, err = waysout("propose", "synthetc", "--llm", "simulated:1")
    assert (code, "did you mean 'synthetic'" in err) == (3, True)


def test_what_a_card_names_cannot_command_the_terminal(
    waysout: CommandLine, tmp_path: Path
) -> None:
    card = tmp_path / "c.toml"
    card.write_text(
        'card = 1\nname = "t"\n[outcome]\ntarget = "y"\npositive = 1\nyes = "y"\nno = "n"\n'
        '[features.a]\nkind = "integer"\nrange = [0, 100]\n[features.b]\nkind = "integer"\n'
        'range = [0, 100]\n[[rules.r]]\nkind = "linear"\nthat = "a + b <= 4"\n'
        'name = "evil \\u001b]0;pwned\\u0007"\n'
    )
    table = tmp_path / "t.csv"
    table.write_text("a,b,y\n1,2,0\n")
    code, out, err = waysout("propose", table, "--card", card, "--llm", "simulated:1", "-k", "20")
    assert code == 0, err
    assert "breaks rule: evil" in out
    assert "\x1b" not in out
    assert "\x07" not in out


def test_a_row_in_which_nothing_may_change_is_no_question(
    waysout: CommandLine, tmp_path: Path
) -> None:
    card = tmp_path / "c.toml"
    card.write_text(
        'card = 1\nname = "t"\n[outcome]\ntarget = "y"\npositive = 1\nyes = "y"\nno = "n"\n'
        '[features.a]\nkind = "integer"\n[[rules.r]]\nkind = "immutable"\nfeatures = ["a"]\n'
    )
    table = tmp_path / "t.csv"
    table.write_text("a,y\n1,0\n")
    code, out, _ = waysout("propose", table, "--card", card, "--llm", "simulated:1", "--json")
    assert code == 3
    assert "nothing may be changed" in json.loads(out)["error"]["message"]


def test_check_says_what_an_llm_can_do(waysout: CommandLine) -> None:
    code, out, _ = waysout("models", "check", "simulated:3")
    assert code == 0
    assert "simulated:3 keeps the protocol" in out
    code, out, _ = waysout("models", "check", "simulated:3", "--json")
    assert json.loads(out)["form"] == "none"


def test_a_recording_does_not_take_the_place_of_the_card(
    waysout: CommandLine, tmp_path: Path
) -> None:
    card = tmp_path / "c.toml"
    card.write_text("card = 1\n")
    code, _, err = waysout("propose", "synthetic", "--card", card, "--record", card)
    assert (code, "the file of --card" in err) == (3, True)
