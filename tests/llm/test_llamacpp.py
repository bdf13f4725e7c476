"""The embedded backend. What needs a model is marked `llm`."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from waysout.errors import InputError, LLMError, MissingExtra, UnavailableError, WaysoutError
from waysout.llm import models
from waysout.llm.base import Backend, Constraint, Limits, Message, Reply, Request
from waysout.llm.check import check_backend
from waysout.llm.llamacpp import LlamaCpp

STORY = Request((Message("user", "Tell a long story about a king."),), max_tokens=300)


def ask(backend: Backend, *requests: Request) -> list[Reply]:
    async def together() -> list[Reply]:
        return list(await asyncio.gather(*map(backend.complete, requests)))

    return asyncio.run(together())


@pytest.fixture(scope="session")
def gguf() -> str:
    named = os.environ.get("WAYSOUT_GGUF")
    if named:
        return named
    try:
        return str(models.path())
    except WaysoutError:
        pytest.skip("no model: set WAYSOUT_GGUF to a GGUF file, or `waysout models pull`")


@pytest.fixture
def backend(gguf: str) -> Iterator[LlamaCpp]:
    made = LlamaCpp(gguf, slots=2, context=1024)
    yield made
    asyncio.run(made.aclose())


def test_nothing_is_loaded_before_the_first_request() -> None:
    assert LlamaCpp("no-such-model").name == "llamacpp:no-such-model"


def test_a_model_that_is_not_here_says_how_to_get_it() -> None:
    with pytest.raises(UnavailableError, match="waysout models pull"):
        ask(LlamaCpp(models.DEFAULT), STORY)
    with pytest.raises(InputError, match="unknown"):
        ask(LlamaCpp("smollm3"), STORY)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.gguf"
    path.write_text("hello")
    with pytest.raises(WaysoutError, match="GGUF"):
        ask(LlamaCpp(str(path)), STORY)


def test_a_file_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    path = tmp_path / "torn.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(LLMError, match="cannot load"):
        ask(LlamaCpp(str(path)), STORY)


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtra, match=r"waysout\[llamacpp\]"):
        ask(LlamaCpp(), STORY)


class Thinker:
    """Stands in for the library: a model that reasons for ever, until it is told to stop."""

    def __init__(self) -> None:
        self.pieces = 0

    def handle_chat_completions(self, body: dict[str, Any], take: Callable[[Any], bool]) -> None:
        thought = {"choices": [{"index": 0, "delta": {"reasoning_content": "hm " * 10}}]}
        while self.pieces < 1000 and not take(thought):
            self.pieces += 1


def test_reasoning_without_end_is_cut_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    thinker = Thinker()
    backend = LlamaCpp("any", limits=Limits(bytes=300))
    monkeypatch.setattr(backend, "_load", lambda: thinker)
    [reply] = ask(backend, STORY)
    assert (reply.finish, reply.text) == ("bytes", "")
    assert thinker.pieces == 300 // 30
    assert reply.usage.tokens_out > 0  # it was written, and costs


@pytest.mark.llm
def test_it_keeps_the_protocol(backend: LlamaCpp) -> None:
    check_backend(backend)


@pytest.mark.llm
def test_the_same_seed_repeats_and_another_draw_differs(gguf: str) -> None:
    single = LlamaCpp(gguf, slots=1, context=1024)
    short = replace(STORY, max_tokens=40, temperature=1.0)
    [first], [again] = ask(single, short), ask(single, short)
    [other] = ask(single, replace(short, draw=1))
    asyncio.run(single.aclose())
    assert first.text == again.text != other.text


@pytest.mark.llm
def test_a_prompt_that_begins_alike_is_computed_once(backend: LlamaCpp) -> None:
    long = "The king had a horse. " * 40
    [first] = ask(backend, Request((Message("user", long + "What had he?"),), max_tokens=4))
    [second] = ask(backend, Request((Message("user", long + "Who had it?"),), max_tokens=4))
    assert first.usage.cached_tokens < 0.2 * first.usage.tokens_in
    assert second.usage.cached_tokens > 0.9 * second.usage.tokens_in


@pytest.mark.llm
def test_a_grammar_is_kept(backend: LlamaCpp) -> None:
    held = replace(STORY, constraint=Constraint('root ::= "A" [0-9]{3} "Z"'), temperature=1.5)
    texts = [r.text for r in ask(backend, *(replace(held, draw=i) for i in range(6)))]
    assert all(t[0] == "A" and t[1:4].isdigit() and t[4:] == "Z" for t in texts)


@pytest.mark.llm
def test_a_wrong_grammar_is_an_error(backend: LlamaCpp) -> None:
    with pytest.raises(LLMError, match="grammar"):
        ask(backend, replace(STORY, constraint=Constraint("root ::= [a")))


@pytest.mark.llm
def test_a_prompt_beyond_the_context_is_an_error(backend: LlamaCpp) -> None:
    with pytest.raises(LLMError, match=r"exceeds the available context.*\?context="):
        ask(backend, Request((Message("user", "word " * 5000),)))


@pytest.mark.llm
@pytest.mark.parametrize(
    ("limits", "finish"),
    [(Limits(bytes=60), "bytes"), (Limits(seconds=1.0), "time"), (Limits(), "length")],
    ids=["bytes", "time", "tokens"],
)
def test_an_endless_reply_is_cut_and_counts_as_one(gguf: str, limits: Limits, finish: str) -> None:
    endless = replace(STORY, constraint=Constraint('root ::= "a"*'), max_tokens=900)
    backend = LlamaCpp(gguf, slots=1, context=1024, limits=limits)
    [reply] = ask(backend, endless)
    asyncio.run(backend.aclose())
    assert reply.finish == finish
    assert reply.usage.tokens_out > 0
    assert reply.usage.estimated == (finish != "length")
    assert len(reply.text) <= limits.bytes + 16


@pytest.mark.llm
def test_a_cancelled_request_frees_its_slot(backend: LlamaCpp) -> None:
    async def cancelled() -> None:
        tasks = [asyncio.create_task(backend.complete(replace(STORY, draw=i))) for i in range(2)]
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    started = time.monotonic()
    ask(backend, replace(STORY, max_tokens=1))
    asyncio.run(cancelled())
    ask(backend, *(replace(STORY, max_tokens=2, draw=i) for i in range(2)))
    assert time.monotonic() - started < 30


@pytest.mark.llm
def test_the_openai_backend_talks_to_a_real_llama_cpp_server(gguf: str) -> None:
    import xllamacpp

    from waysout.llm.openai.backend import OpenAIBackend

    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = gguf, 2048, 2
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.verbosity = -1
    params.api_keys = ["the-key"]
    server = xllamacpp.Server(params)
    url = f"{server.listening_address}/v1"
    backend = OpenAIBackend("any", url, key="the-key")
    check_backend(backend)
    assert backend.capabilities.json_schema
    assert backend.capabilities.cached_tokens
    with pytest.raises(LLMError, match="does not let us in"):
        ask(OpenAIBackend("any", url, key="another"), STORY)


@pytest.mark.llm
@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="looks at /proc")
def test_nobody_can_connect_to_it(backend: LlamaCpp) -> None:
    before = _listening()
    ask(backend, replace(STORY, max_tokens=1))
    assert _listening() <= before
    address = backend._server.listening_address
    assert not Path(address.removeprefix("unix://")).exists()


def _listening() -> set[str]:
    """Return the sockets of this process that listen on TCP, by inode."""
    tables = (Path(f"/proc/self/net/{name}") for name in ("tcp", "tcp6"))
    lines = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
    open_here = {str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()}
    return {cells[9] for cells in lines if cells[3] == "0A" and f"socket:[{cells[9]}]" in open_here}
