"""Any chat model that transformers loads, many requests in one batch: best on a GPU.

A model is a folder, a name on the hub or a GGUF file. It is run by an engine in a process of its
own (`waysout.llm.local`), where requests join and leave a batch at any time. What a reply says
depends on its request alone, up to the rounding of sums.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import itertools
import re
import shutil
import threading
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from waysout.errors import (
    InputError,
    LLMError,
    LLMFailure,
    MissingExtra,
    UnavailableError,
    shown,
    unknown,
)
from waysout.llm import models
from waysout.llm.base import Backend, Form, Limits, Reply, Request
from waysout.llm.local.process import Process
from waysout.llm.local.wire import Ask, EngineAnswer, EngineFailure, Loaded, Setup

# Before the engine has said how many slots it has.
_SLOTS_ON_GPU, _SLOTS_ON_CPU = 512, 4
_DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,2})?")
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
_WEIGHTS = ("*.safetensors", "*.bin")
_BESIDE_WEIGHTS = ("*.json", "*.jinja", "*.model", "*.txt")
_TAIL, _SMALL = 64 * 1024, 64 * 1024 * 1024
# How often those who wait look whether the engine is stuck, in seconds.
_LOOK = 10.0
PATIENT = Limits(seconds=900.0)

_Waiting = tuple[asyncio.AbstractEventLoop, "asyncio.Future[EngineAnswer | LLMError]"]


class Transformers(Backend):
    """Answers with a model of transformers, loaded on first use.

    ``slots`` are the replies written side by side, ``context`` the most tokens of a prompt and its
    reply together; 0 means as the memory allows.
    """

    form: Form = "none"

    def __init__(
        self,
        model: str,
        *,
        slots: int = 0,
        context: int = 0,
        threads: int = 0,
        device: str = "auto",
        limits: Limits = PATIENT,
    ) -> None:
        if not _DEVICE.fullmatch(device):
            raise InputError(f"device is auto, cpu, cuda or cuda:NUMBER, not {shown(device)}")
        self.model = model
        self.slots = slots
        self.context = context
        self.threads = threads
        self.device = device
        self.limits = limits
        self.name = f"transformers:{_identity(model)}"
        on_gpu = device.startswith("cuda") or (device == "auto" and _has_gpu())
        self.parallel = 2 * (slots or _SLOTS_ON_GPU) if on_gpu else (slots or _SLOTS_ON_CPU)
        self.loaded = ""
        """How the model runs, in words, once it does."""
        self._engine: Process | None = None
        self._changing = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[Process, _Waiting]] = {}

    async def complete(self, request: Request) -> Reply:
        """Answer one request; a cancelled one soon frees its slot.

        Control tokens in a message are the model's own, and no text: searches make look-alikes of
        those that come from outside (`waysout.prompts.spelling`).
        """
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        number, future = next(self._numbers), loop.create_future()
        engine = self._ask(number, request, (loop, future))
        try:
            answer = await _answered(engine, future)
        except asyncio.CancelledError:
            engine.say((number, None))
            raise
        finally:
            self._waiting.pop(number, None)
        if isinstance(answer, Exception):
            raise answer
        if answer.error:
            raise LLMError(f"{self.name}: {answer.error}")
        latency = time.monotonic() - began
        return Reply(answer.text, answer.usage, latency, answer.finish, self.name)

    async def aclose(self) -> None:
        """Unload the model; another request would load it again."""
        with self._changing:
            engine, self._engine = self._engine, None
        if engine is not None:
            await asyncio.to_thread(engine.end)

    def _ask(self, number: int, request: Request, who: _Waiting) -> Process:
        # Of all that tells requests apart, so that no two draw by the same numbers.
        seed = int(request.key(self.name)[:8], 16)
        messages = tuple((m.role, m.content) for m in request.messages)
        asked = Ask(messages, request.max_tokens, float(request.temperature), seed)
        with self._changing:
            if self._engine is None:
                self._engine = Process(self._setup(), self._hear)
            engine = self._engine
            self._waiting[number] = (engine, who)
        engine.say((number, asked))
        return engine

    def _setup(self) -> Setup:
        kind, place = _source(self.model)
        _need("transformers", "torch", *(["gguf"] if kind == "gguf" else []))
        return Setup(
            name=self.name,
            place=place,
            kind=kind,
            device=self.device,
            slots=self.slots,
            context=self.context,
            threads=self.threads,
            seconds=self.limits.seconds,
            bytes=self.limits.bytes,
        )

    # What the engine says, in a thread of its own

    def _hear(self, engine: Process, said: Any) -> None:
        if isinstance(said, list):
            for number, answer in said:
                self._settle(number, answer)
        elif isinstance(said, Loaded):
            self.loaded, self.parallel = said.about, said.parallel
        elif isinstance(said, EngineFailure):
            self._lose(engine, said.kind(said.reason))
        else:
            # One that never got as far as to answer would not the next time either.
            kind = LLMFailure if engine.loaded else LLMError
            self._lose(engine, kind(f"{self.name}: the engine ended ({engine.last_words})"))

    def _lose(self, engine: Process, error: Exception) -> None:
        """Tell all who wait for an engine that it is gone; the next request starts another."""
        with self._changing:
            if self._engine is engine:
                self._engine = None
            left = [number for number, (asked, _) in self._waiting.items() if asked is engine]
        for number in left:
            self._settle(number, error)

    def _settle(self, number: int, answer: EngineAnswer | Exception) -> None:
        _, who = self._waiting.get(number, (None, None))
        if who is not None:
            loop, future = who
            with suppress(RuntimeError):  # its loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(_set, future, answer)


async def _answered(engine: Process, future: asyncio.Future[Any]) -> Any:
    """Wait for an answer, but not for ever: an engine that is stuck is ended."""
    asked = time.monotonic()
    while not future.done():
        if engine.is_stuck(asked):
            engine.give_up()
        await asyncio.wait([future], timeout=_LOOK)
    return future.result()


def _set(future: asyncio.Future[Any], answer: EngineAnswer | Exception) -> None:
    if not future.done():
        future.set_result(answer)


def _source(model: str) -> tuple[str, str]:
    """Return what kind of model this is, and where: a file, a folder or a name on the hub."""
    if model.endswith(".gguf") or model.startswith("hub:") or model in models.MODELS:
        return "gguf", str(models.path(model))
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InputError(f"{folder} is no model of transformers: it has no config.json")
        return "folder", str(folder)
    if _HUB_NAME.fullmatch(model):
        return "hub", model
    raise InputError(
        f"{unknown('model', model, models.MODELS)}; or give the path of a folder or a GGUF file, "
        "or a name on the Hugging Face hub (OWNER/NAME)"
    )


def _identity(model: str) -> str:
    """Return what to call a model: files by more than their names, so that none share recordings.

    No folder of this machine is in it.
    """
    place = Path(model).expanduser()
    if place.is_dir():
        return f"{place.resolve().name}@{_fingerprint(place)}"
    if place.is_file():
        return f"{place.name}@{place.stat().st_size}"
    named = model in models.MODELS or model.startswith("hub:") or _HUB_NAME.fullmatch(model)
    return model if named and not model.endswith("/") else place.name


def _fingerprint(folder: Path) -> str:
    """Return what tells a folder from others: the ends of its weights, and all that is small."""
    seen = hashlib.sha256()
    for patterns, most in ((_WEIGHTS, _TAIL), (_BESIDE_WEIGHTS, _SMALL)):
        found = (file for pattern in patterns for file in folder.glob(pattern))
        for file in sorted(file for file in found if file.is_file()):
            size = file.stat().st_size
            with file.open("rb") as opened:
                opened.seek(max(0, size - most))
                seen.update(f"{file.name} {size}\n".encode() + opened.read())
    return seen.hexdigest()[:8]


def _need(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, "transformers")
    with suppress(PackageNotFoundError):
        found = version("transformers")
        if int(found.partition(".")[0]) < 5:
            raise UnavailableError(
                f"transformers {found} is too old: pip install 'waysout[transformers]' -U"
            )


def _has_gpu() -> bool:
    """Guess whether there is a GPU; whoever knows takes seconds to load."""
    return shutil.which("nvidia-smi") is not None or Path("/dev/nvidia0").exists()


def connect(
    model: str, slots: int = 0, context: int = 0, threads: int = 0, device: str = "auto"
) -> Transformers:
    """Make the backend of ``transformers:NAME``."""
    return Transformers(model, slots=slots, context=context, threads=threads, device=device)
