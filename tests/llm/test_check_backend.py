from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from waysout.errors import LLMError
from waysout.llm.base import Backend, Form, Reply, Request, Usage
from waysout.llm.check import check_backend
from waysout.llm.replay import Recorder, Replay
from waysout.llm.simulated import Simulated


class Parrot(Backend):
    """Keeps the protocol, unless told how to break it."""

    name = "parrot"

    def __init__(self, form: Form = "none", **wrong: Any) -> None:
        self.form = form
        self.wrong = wrong
        self.loops: list[asyncio.AbstractEventLoop] = []

    async def complete(self, request: Request) -> Reply:
        text = "hello"
        if request.constraint and self.form == "grammar":
            text = "yes"
        if request.constraint and self.form == "json_schema":
            text = json.dumps({"answer": "no"})
        reply = Reply(text, Usage(3, 2, 1))
        return dataclasses.replace(reply, **self.wrong)


@pytest.mark.parametrize("form", ["none", "grammar", "json_schema"])
def test_a_backend_that_keeps_the_protocol_passes(form: Form) -> None:
    check_backend(Parrot(form))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"text": None}, "the text is None"),
        ({"usage": Usage(1, -1)}, "usage"),
        ({"usage": Usage(1, 1, 5)}, "usage"),
        ({"usage": Usage(1, 9)}, "token limit"),
        ({"usage": None}, "usage is None"),
        ({"usage": Usage(True, False)}, "usage"),
        ({"latency": "fast"}, "latency"),
        ({"latency": -1.0}, "latency"),
        ({"finish": "because"}, "finish is 'because'"),
    ],
)
def test_a_malformed_reply_is_named(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(LLMError, match=reason):
        check_backend(Parrot(**wrong))


@pytest.mark.parametrize("form", ["grammar", "json_schema"])
def test_a_constraint_that_is_not_kept_is_named(form: Form) -> None:
    with pytest.raises(LLMError, match="claims the form"):
        check_backend(Parrot(form, text="maybe"))


def test_what_a_backend_says_of_itself_is_checked() -> None:
    nameless = Parrot()
    nameless.name = ""
    with pytest.raises(LLMError, match="its name is ''"):
        check_backend(nameless)
    with pytest.raises(LLMError, match="form"):
        check_backend(Parrot("poetry"))  # type: ignore[arg-type]
    idle = Parrot()
    idle.parallel = 0
    with pytest.raises(LLMError, match="parallel"):
        check_backend(idle)


def test_a_backend_bound_to_one_event_loop_is_found() -> None:
    class Bound(Parrot):
        async def complete(self, request: Request) -> Reply:
            loop = asyncio.get_running_loop()
            if self.loops and loop not in self.loops:
                raise LLMError("bound to another event loop")
            self.loops.append(loop)
            return await super().complete(request)

    with pytest.raises(LLMError, match="another event loop"):
        check_backend(Bound())


def test_a_backend_that_never_answers_is_given_up() -> None:
    class Mute(Parrot):
        async def complete(self, request: Request) -> Reply:
            await asyncio.sleep(3600)
            raise AssertionError

    with pytest.raises(LLMError, match=r"did not answer within 0\.1 seconds"):
        check_backend(Mute(), seconds=0.1)


def test_ours_without_a_model_pass(tmp_path: Path) -> None:
    check_backend(Simulated(7))
    recorder = Recorder(Simulated(7), tmp_path / "calls.jsonl")
    check_backend(recorder)
    check_backend(Replay.load(recorder.path))
