from __future__ import annotations

from pathlib import Path

import pytest

from waysout.errors import InputError
from waysout.llm.connect import DEFAULT, PROVIDERS, connect
from waysout.llm.simulated import Simulated


def test_a_connection_string_names_a_backend() -> None:
    backend = connect("simulated:12")
    assert isinstance(backend, Simulated)
    assert backend.seed == 12


def test_options_follow_a_question_mark() -> None:
    backend = connect("llamacpp:smollm2-135m?slots=8&threads=2")
    assert backend.parallel == 8
    assert backend.name == DEFAULT


def test_a_file_is_named_without_its_folder() -> None:
    assert connect("llamacpp:some/folder/my.gguf").name == "llamacpp:my.gguf"
    assert connect("llamacpp:some/really?.gguf").name == "llamacpp:really?.gguf"


def test_two_files_of_one_name_do_not_share_recordings(tmp_path: Path) -> None:
    for folder, size in (("a", 10), ("b", 20)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.gguf").write_bytes(bytes(size))
    names = {connect(f"llamacpp:{tmp_path}/{folder}/model.gguf").name for folder in "ab"}
    assert names == {"llamacpp:model.gguf@10", "llamacpp:model.gguf@20"}


def test_a_server_is_named_by_model_and_address() -> None:
    backend = connect("openai:google/gemma-3-12b-it@http://localhost:8000/v1")
    assert backend.name == "openai:google/gemma-3-12b-it@http://localhost:8000/v1"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "unknown LLM backend ''"),
        ("gpt-4", "'transformers'. Write llamacpp:"),
        ("smollm2-135m", "did you mean llamacpp:smollm2-135m"),
        ("folder/my.gguf", "did you mean llamacpp:folder/my.gguf"),
        ("openia:x@http://h/v1", "did you mean 'openai'"),
        ("simulated", "write simulated:SEED"),
        ("simulated:", "write simulated:SEED"),
        ("simulated:x", "whole number"),
        ("simulated:-1", "whole number"),
        ("simulated:1²", "whole number"),
        ("llamacpp:", "write llamacpp:NAME"),
        ("llamacpp:smollm2-135m?slot=8", "did you mean 'slots'"),
        ("llamacpp:smollm2-135m?slots=0", "slots is a whole number"),
        ("llamacpp:smollm2-135m?slots=many", "slots is a whole number"),
        ("replay:no/such/file", "cannot read the recording"),
    ],
)
def test_a_wrong_one_says_what_to_write(name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        connect(name)


def test_a_name_without_a_target_is_refused_by_every_provider() -> None:
    for scheme in PROVIDERS:
        with pytest.raises(InputError, match="incomplete"):
            connect(f"{scheme}:")
