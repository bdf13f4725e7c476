"""The backend `transformers:`, and the process it asks. What needs a real model is marked `llm`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from waysout.errors import InputError, LLMError, LLMFailure, MissingExtra, UnavailableError
from waysout.llm import models
from waysout.llm.base import Backend, Message, Reply, Request
from waysout.llm.check import check_backend
from waysout.llm.connect import connect
from waysout.llm.transformers import Transformers

STORY = Request((Message("system", "Be brief."), Message("user", "Tell a story.")), max_tokens=12)


def ask(backend: Backend, *requests: Request) -> list[Reply]:
    async def together() -> list[Reply]:
        return list(await asyncio.gather(*map(backend.complete, requests)))

    return asyncio.run(together())


def need_packages() -> None:
    pytest.importorskip("torch", reason="the engine needs torch")
    pytest.importorskip("transformers", minversion="5", reason="the engine needs transformers 5")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_packages()
    import tiny_models

    return tiny_models.save(tmp_path_factory.mktemp("model") / "tiny", "llama")


@pytest.fixture(scope="module")
def backend(folder: Path) -> Iterator[Backend]:
    made = connect(f"transformers:{folder}?slots=3&context=512&device=cpu&threads=1")
    yield made
    asyncio.run(made.aclose())


# Names -----------------------------------------------------------------------------------------


def test_nothing_is_loaded_before_the_first_request() -> None:
    assert (
        connect("transformers:google/gemma-3-12b-it").name == "transformers:google/gemma-3-12b-it"
    )
    assert connect("transformers:some/folder/my.gguf").name == "transformers:my.gguf"
    assert connect("transformers:/no/such/folder").name == "transformers:folder"
    assert connect("transformers:smollm2-135m").name == "transformers:smollm2-135m"


def test_weights_of_one_name_and_size_do_not_share_recordings(tmp_path: Path) -> None:
    for place, content in (("a", b"1" * 99), ("b", b"2" * 99)):
        (tmp_path / place / "final").mkdir(parents=True)
        (tmp_path / place / "final" / "model.safetensors").write_bytes(content)
    names = {connect(f"transformers:{tmp_path}/{place}/final").name for place in "ab"}
    assert len(names) == 2
    assert all(name.startswith("transformers:final@") for name in names)


def test_options_are_numbers_and_a_device() -> None:
    made = connect("transformers:a/b?slots=8&context=1024&threads=2&device=cpu")
    assert isinstance(made, Transformers)
    assert (made.slots, made.context, made.threads, made.device) == (8, 1024, 2, "cpu")
    assert made.parallel == 8
    assert connect("transformers:a/b?slots=8&device=cuda").parallel == 16


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("transformers:a/b?device=tpu", "device is auto, cpu, cuda"),
        ("transformers:a/b?slots=many", "slots is a whole number"),
        ("transformers:a/b?devise=cpu", "did you mean 'device'"),
    ],
)
def test_a_wrong_option_says_what_to_write(name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        connect(name)


# What cannot be loaded ---------------------------------------------------------------------------


def test_a_wrong_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    for model, reason in (
        ("no-such-model", "unknown model.*OWNER/NAME"),
        (f"{tmp_path}/nothing", "unknown model"),
        (f"{tmp_path}/nothing.gguf", "no model file"),
        (f"{tmp_path}/text.gguf", "no GGUF file"),
        (str(tmp_path), "no config.json"),
    ):
        with pytest.raises(InputError, match=reason):
            ask(Transformers(model), STORY)


@pytest.mark.parametrize("package", ["transformers", "torch"])
def test_a_missing_package_says_what_to_install(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    found = {"transformers": True, "torch": True, package: None}
    monkeypatch.setattr("importlib.util.find_spec", found.get)
    with pytest.raises(MissingExtra, match=rf"'{package}'.*waysout\[transformers\]"):
        ask(Transformers(str(tmp_path)), STORY)


def test_an_old_release_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_packages()
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr("waysout.llm.transformers.version", lambda _: "4.57.1")
    with pytest.raises(UnavailableError, match=r"4\.57\.1 is too old"):
        ask(Transformers(str(tmp_path)), STORY)


def test_a_model_that_is_not_here_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    need_packages()
    with pytest.raises(UnavailableError, match="waysout models pull"):
        ask(Transformers("qwen2.5-7b"), STORY)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UnavailableError, match=r"(?s)cannot get no/such-model.*HF_TOKEN.*folder"):
        ask(Transformers("no/such-model", device="cpu"), STORY)


# The process ---------------------------------------------------------------------------------


def test_it_keeps_the_protocol(backend: Backend) -> None:
    check_backend(backend)
    assert isinstance(backend, Transformers)
    assert "3 slots of 512 tokens" in backend.loaded


def test_replies_are_repeated_counted_and_cut(backend: Backend) -> None:
    asked = [replace(STORY, draw=i) for i in range(7)]
    together = ask(backend, *asked)
    assert [r.text for r in ask(backend, *asked[::-1])][::-1] == [r.text for r in together]
    assert len({r.text for r in together}) > 3
    assert {r.finish for r in together} <= {"stop", "length"}
    assert all(0 < r.usage.tokens_out <= 12 for r in together)
    assert all(r.usage.tokens_in == together[0].usage.tokens_in for r in together)
    assert all(r.model == backend.name for r in together)


def test_a_prompt_beyond_the_context_is_an_error(backend: Backend) -> None:
    long = Request((Message("user", "word " * 200),))
    with pytest.raises(LLMError, match=r"the prompt has .* tokens.*\?context=1024"):
        ask(backend, long)


def test_a_dead_engine_fails_those_who_wait_and_is_started_again(backend: Backend) -> None:
    [before] = ask(backend, STORY)
    engine = engine_of(backend)

    async def killed() -> list[Any]:
        endless = (replace(STORY, draw=i, max_tokens=400) for i in range(5))
        waiting = [asyncio.create_task(backend.complete(each)) for each in endless]
        await asyncio.sleep(0)
        os.kill(engine.pid, signal.SIGKILL)
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert all(isinstance(error, LLMFailure) for error in asyncio.run(killed()))
    [after] = ask(backend, STORY)
    assert after.text == before.text
    assert engine_of(backend).pid != engine.pid


def test_it_is_gone_when_it_was_sent_away(backend: Backend) -> None:
    """It sees the end of its input, as when this process dies."""
    engine = engine_of(backend)
    asyncio.run(backend.aclose())
    assert engine.poll() == 0


def engine_of(backend: Backend) -> subprocess.Popen[bytes]:
    """Return the process that answers, which has answered once."""
    ask(backend, STORY)
    assert isinstance(backend, Transformers)
    assert backend._engine is not None
    return backend._engine._started


# A real model ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def gguf() -> str:
    need_packages()
    pytest.importorskip("gguf", reason="GGUF files need the package gguf")
    named = os.environ.get("WAYSOUT_GGUF")
    try:
        return str(models.path(named or models.DEFAULT))
    except UnavailableError:
        pytest.skip("no model: set WAYSOUT_GGUF to a GGUF file, or `waysout models pull`")


@pytest.mark.llm
def test_a_gguf_file_writes_what_transformers_does(gguf: str) -> None:
    import torch

    from waysout.llm.local.wire import Ask, Setup
    from waysout.llm.local.work import Engine

    engine = Engine(Setup("real", gguf, "gguf", "cpu", slots=2, context=512))
    asked = ["What is the capital of France?", "Name three colours.", "Count to ten."]
    jobs = [engine.job(i, Ask((("user", text),), 20, 0.0, 0)) for i, text in enumerate(asked)]
    for job in jobs:
        engine.slots.submit(job)
    while engine.slots.busy:
        engine.slots.advance()
    network = engine.slots.model.network
    network.set_attn_implementation("sdpa")
    for job in jobs:
        with torch.inference_mode():
            out = network.generate(
                torch.tensor([job.prompt]), max_new_tokens=20, do_sample=False, pad_token_id=0,
                repetition_penalty=1.0, eos_token_id=sorted(engine.slots.ends),
            )  # fmt: skip
        assert job.written == out[0, len(job.prompt) :].tolist()
    assert "Paris" in engine.answer(jobs[0]).text


@pytest.mark.llm
def test_a_gguf_file_keeps_the_protocol(gguf: str) -> None:
    made = connect(f"transformers:{gguf}?slots=4&context=1024&device=cpu")
    check_backend(made)
    asyncio.run(made.aclose())
