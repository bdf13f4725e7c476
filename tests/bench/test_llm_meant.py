"""Which of the LLMs in some results is meant by what a user writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from waysout.bench.cell import llm_meant
from waysout.errors import InputError

GEMMA = "openai:google/gemma-3-12b@http://localhost:8000/v1"
QWEN = "llamacpp:qwen-0.5b.gguf@4"
KNOWN = (QWEN, GEMMA, "simulated:1", "simulated:12")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (GEMMA, GEMMA),
        (f"{GEMMA}?parallel=8", GEMMA),
        ("openai", GEMMA),
        ("google/gemma-3", GEMMA),
        ("qwen-0.5b", QWEN),
        ("llamacpp:elsewhere/qwen-0.5b.gguf", QWEN),
        ("simulated:1", "simulated:1"),
    ],
)
def test_an_llm_is_known_by_its_name_its_connection_and_their_beginnings(
    written: str, meant: str
) -> None:
    assert llm_meant(KNOWN, written) == meant


def test_a_file_is_known_by_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "qwen-0.5b.gguf").write_bytes(b"GGUF")
    larger = "llamacpp:qwen-0.5b.gguf@5"
    assert llm_meant([QWEN, larger], f"llamacpp:{tmp_path}/qwen-0.5b.gguf?slots=2") == QWEN


def test_half_a_word_is_no_beginning() -> None:
    with pytest.raises(InputError, match="unknown LLM in these results 'google/gemma-3-1'"):
        llm_meant(KNOWN, "google/gemma-3-1")
    with pytest.raises(InputError, match="did you mean 'simulated:12'"):
        llm_meant(["simulated:12"], "simulated:1")


def test_what_fits_several_is_asked_back() -> None:
    with pytest.raises(InputError, match="'simulated' matches simulated:1 and simulated:12"):
        llm_meant(KNOWN, "simulated")


def test_where_no_llm_was_asked_any_may_be_named() -> None:
    assert llm_meant([], f"{GEMMA}?parallel=8") == GEMMA
