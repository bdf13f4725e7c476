"""The backend `transformers:`, and the process it asks. What needs a real model is marked `llm`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from waysout.errors import InputError, LLMError, LLMFailure, MissingExtra, UnavailableError
from waysout.llm import models
from waysout.llm.base import Backend, Limits, Message, Reply, Request
from waysout.llm.check import check_backend
from waysout.llm.connect import connect
from waysout.llm.local import process
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


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "chat_template.jinja"])
def test_what_lies_beside_the_weights_counts_as_well(tmp_path: Path, file: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"1" * 99)
    (tmp_path / file).write_text("{% for %}")
    before = connect(f"transformers:{tmp_path}").name
    assert connect(f"transformers:{tmp_path}").name == before
    (tmp_path / file).write_text("{% FOR %}")
    assert connect(f"transformers:{tmp_path}").name != before


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


def test_a_model_that_is_not_here_says_how_to_get_it() -> None:
    need_packages()
    with pytest.raises(UnavailableError, match="waysout models pull"):
        ask(Transformers("qwen2.5-7b"), STORY)


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


def test_a_dead_engine_fails_those_who_wait_and_is_started_again(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [before] = ask(backend, STORY)
    engine = engine_of(backend)

    async def killed() -> list[Any]:
        endless = (replace(STORY, draw=i, max_tokens=400) for i in range(5))
        waiting = [asyncio.create_task(backend.complete(each)) for each in endless]
        await asyncio.sleep(0)
        os.kill(engine.pid, signal.SIGKILL)
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert all(isinstance(error, LLMFailure) for error in asyncio.run(killed()))
    # As after `python -m` in a folder where a file beside the table is named like a package.
    (tmp_path / "torch.py").write_text("raise SystemExit('this was run')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    [after] = ask(backend, STORY)
    assert after.text == before.text
    assert engine_of(backend).pid != engine.pid


def test_it_is_stuck_only_where_it_was_asked_and_is_silent(backend: Backend) -> None:
    engine_of(backend)
    assert isinstance(backend, Transformers)
    assert backend._engine is not None
    long_ago = time.monotonic() - 1000
    assert not backend._engine.is_stuck(long_ago)  # it spoke since
    backend._engine.last_message = long_ago
    assert not backend._engine.is_stuck(time.monotonic())  # it had nothing to do
    assert backend._engine.is_stuck(long_ago)


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


# Engines that are none ---------------------------------------------------------------------------

LOADED = """
import os, sys, time
from waysout.llm.local.process import Loaded, receive, send
receive(sys.stdin.buffer)
send(Loaded(os.environ["USE_HUB_KERNELS"], 1), sys.stdout.buffer)
"""


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Transformers]:
    """Make a backend whose engine is a script."""
    need_packages()
    (tmp_path / "config.json").write_text("{}")

    def made(script: str) -> Transformers:
        monkeypatch.setattr(process, "_ENGINE", ("-P", "-c", script))
        return Transformers(str(tmp_path), device="cpu", limits=Limits(seconds=0.1))

    return made


def failure(backend: Backend) -> LLMError:
    """Return why there is no reply."""
    with pytest.raises(LLMError) as caught:
        asyncio.run(asyncio.wait_for(backend.complete(STORY), 30))
    return caught.value


def test_an_engine_that_never_loads_is_not_started_again(stub: Callable[..., Transformers]) -> None:
    error = failure(stub("import sys; sys.exit('no such instruction')"))
    assert type(error) is LLMError  # no failure, which would be tried again
    assert "exit code 1: …no such instruction" in str(error)
    assert type(failure(stub(LOADED))) is LLMFailure


def test_what_the_engine_says_is_wrong_is_raised(stub: Callable[..., Transformers]) -> None:
    said = "EngineFailure(UnavailableError, 'set HF_TOKEN')"
    backend = stub(
        "import sys\nfrom waysout.errors import UnavailableError\n"
        "from waysout.llm.local.process import EngineFailure, send\n"
        f"send({said}, sys.stdout.buffer)"
    )
    with pytest.raises(UnavailableError, match=r"^set HF_TOKEN$"):
        ask(backend, STORY)


def test_a_stuck_engine_is_ended(
    stub: Callable[..., Transformers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waysout.llm.transformers._LOOK", 0.05)
    monkeypatch.setattr(process, "_MARGIN", 0.1)
    backend = stub(LOADED + "time.sleep(100)")
    error = failure(backend)
    assert type(error) is LLMFailure
    assert "sent nothing for 0.2 s" in str(error)
    assert backend._engine is None
    assert backend.loaded == "NO"  # code of the hub

    monkeypatch.setattr(process, "_LOADING", 0.3)
    error = failure(stub("import time; time.sleep(100)"))
    assert type(error) is LLMError
    assert "sent nothing for 0.3 s" in str(error)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs a list of open files")
def test_a_dead_engine_leaves_nothing_behind(
    stub: Callable[..., Transformers], monkeypatch: pytest.MonkeyPatch
) -> None:
    def held() -> tuple[int, int]:
        return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

    def more_than(before: tuple[int, int]) -> bool:
        return any(now > then for now, then in zip(held(), before, strict=True))

    engines = []
    plain, backend = Transformers._receive, stub(LOADED)

    def kept(engine: process.Process, said: Any) -> None:
        engines.append(engine)
        plain(backend, engine, said)

    monkeypatch.setattr(backend, "_receive", kept)
    before, until = held(), time.monotonic() + 10
    failure(backend)
    failure(backend)
    while more_than(before) and time.monotonic() < until:
        time.sleep(0.01)
    assert not more_than(before)
    assert len(set(engines)) == 2


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

    from waysout.llm.local.engine import Engine
    from waysout.llm.local.process import Ask, Setup

    engine = Engine(Setup("real", gguf, "gguf", "cpu", slots=2, context=512))
    asked = ["What is the capital of France?", "Name three colours.", "Count to ten."]
    jobs = [
        engine.generation(i, Ask((("user", text),), 20, 0.0, 0)) for i, text in enumerate(asked)
    ]
    for job in jobs:
        engine.scheduler.submit(job)
    while engine.scheduler.busy:
        engine.scheduler.advance()
    network = engine.scheduler.model.network
    network.set_attn_implementation("sdpa")
    for job in jobs:
        with torch.inference_mode():
            out = network.generate(
                torch.tensor([job.prompt]), max_new_tokens=20, do_sample=False, pad_token_id=0,
                repetition_penalty=1.0, eos_token_id=sorted(engine.scheduler.ends),
            )  # fmt: skip
        assert job.written == out[0, len(job.prompt) :].tolist()
    assert "Paris" in engine.answer(jobs[0]).text


@pytest.mark.llm
def test_a_gguf_file_keeps_the_protocol(gguf: str) -> None:
    made = connect(f"transformers:{gguf}?slots=4&context=1024&device=cpu")
    check_backend(made)
    asyncio.run(made.aclose())
