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
from concurrent.futures import Future, InvalidStateError
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
from waysout.llm.local.process import Ask, EngineAnswer, EngineFailure, Loaded, Process, Setup
from waysout.llm.local.sampling import FILE, Sampling, as_options, from_file, from_options

# Before the engine has said how many slots it has.
_SLOTS_ON_GPU, _SLOTS_ON_CPU = 512, 4
_DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,2})?")
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
_WEIGHTS = ("*.safetensors", "*.bin")
_BESIDE_WEIGHTS = ("*.json", "*.jinja", "*.model", "*.txt")
_TAIL, _SMALL = 64 * 1024, 64 * 1024 * 1024
# How often requests look whether the engine is stuck, in seconds.
_LOOK = 10.0
PATIENT = Limits(seconds=900.0)


class Transformers(Backend):
    """Answers with a model of transformers, loaded on first use.

    ``slots`` are the replies written side by side, ``context`` the most tokens of a prompt and its
    reply together; 0 means as the memory allows. With ``sampling="own"`` tokens are drawn as the
    model's ``generation_config.json`` says, as transformers' ``generate`` does it (by temperature
    alone a small model loses the format when it is hot); with ``"plain"`` by the temperature alone.
    What is given of ``top_k`` and the like counts in either case.
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
        sampling: str = "own",
        top_k: int | str | None = None,
        top_p: float | str | None = None,
        min_p: float | str | None = None,
        repetition_penalty: float | str | None = None,
        limits: Limits = PATIENT,
    ) -> None:
        if not _DEVICE.fullmatch(device):
            raise InputError(f"device is auto, cpu, cuda or cuda:NUMBER, not {shown(device)}")
        if sampling not in ("own", "plain"):
            raise InputError(f"sampling is own or plain, not {shown(sampling)}")
        asked = from_options(
            top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=repetition_penalty
        )
        self.model = model
        self.slots = slots
        self.context = context
        self.threads = threads
        self.device = device
        self.limits = limits
        self.sampling = sampling
        on_hub = _is_on_hub(model)
        said = {} if sampling == "plain" or on_hub else _said_by(model)
        self._settings = {**said, **asked}
        self._asks_model = on_hub and sampling == "own"
        # What the hub's file says is known too late for a name: there it is plain that is marked.
        applied = as_options(asked) if self._asks_model else str(Sampling(**self._settings))
        marked = "sampling=plain" if on_hub and sampling == "plain" else ""
        suffix = "&".join(filter(None, (marked, applied)))
        self.name = f"transformers:{_identity(model)}{suffix and '?'}{suffix}"
        # A guess: torch would know, but takes seconds to load.
        has_gpu = shutil.which("nvidia-smi") is not None or Path("/dev/nvidia0").exists()
        on_gpu = device.startswith("cuda") or (device == "auto" and has_gpu)
        self.parallel = 2 * (slots or _SLOTS_ON_GPU) if on_gpu else (slots or _SLOTS_ON_CPU)
        self.loaded = ""
        """How the model runs, once it is loaded."""
        self._engine: Process | None = None
        self._changing = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[Process, Future[EngineAnswer]]] = {}

    async def complete(self, request: Request) -> Reply:
        """Answer one request; a cancelled one soon frees its slot.

        Control tokens in a message are the model's own, and no text: searches make look-alikes of
        those that come from outside (`waysout.prompts.spelling`).
        """
        began = time.monotonic()
        number, pending = next(self._numbers), Future[EngineAnswer]()
        # Of all that tells requests apart, so that no two draw by the same numbers.
        seed = int(request.key(self.name)[:8], 16)
        messages = tuple((m.role, m.content) for m in request.messages)
        asked = Ask(messages, request.max_tokens, float(request.temperature), seed)
        with self._changing:
            if self._engine is None:
                self._engine = Process(self.setup(), self._receive)
            engine = self._engine
            self._waiting[number] = engine, pending
        engine.send((number, asked))
        future = asyncio.wrap_future(pending)
        try:
            while not future.done():
                if engine.is_stuck(began):
                    engine.kill()
                await asyncio.wait([future], timeout=_LOOK)
        except asyncio.CancelledError:
            engine.send((number, None))
            raise
        finally:
            self._waiting.pop(number, None)
        answer = future.result()
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

    def setup(self) -> Setup:
        """Return what the engine is to load, once all it needs is here."""
        kind, place = _source(self.model)
        for package in ("transformers", "torch", *(["gguf"] if kind == "gguf" else [])):
            if importlib.util.find_spec(package) is None:
                raise MissingExtra(package, "transformers")
        with suppress(PackageNotFoundError):
            found = version("transformers")
            if int(found.partition(".")[0]) < 5:
                raise UnavailableError(
                    f"transformers {found} is too old: pip install 'waysout[transformers]' -U"
                )
        sizes = self.slots, self.context, self.threads
        limits = self.limits.seconds, self.limits.bytes
        sampling = self._settings, self._asks_model
        return Setup(self.name, place, kind, self.device, *sizes, *limits, *sampling)

    # In the thread that reads from the engine

    def _receive(self, engine: Process, message: Any) -> None:
        if isinstance(message, Loaded):
            self.loaded, self.parallel = message.about, message.parallel
        elif isinstance(message, list):
            for number, answer in message:
                _, future = self._waiting.get(number, (None, None))
                with suppress(InvalidStateError):  # it was cancelled
                    if future is not None:
                        future.set_result(answer)
        else:
            if isinstance(message, EngineFailure):
                error = message.kind(message.reason)
            else:
                # One that never got as far as to answer would not the next time either.
                kind = LLMFailure if engine.loaded else LLMError
                error = kind(f"{self.name}: the engine ended ({engine.why_it_ended})")
            # The next request starts another engine.
            with self._changing:
                if self._engine is engine:
                    self._engine = None
                left = [future for asked, future in [*self._waiting.values()] if asked is engine]
            for future in left:
                with suppress(InvalidStateError):
                    future.set_exception(error)


def _source(model: str) -> tuple[str, str]:
    """Return what kind of model this is, and where: a file, a folder or a name on the hub."""
    if model.endswith(".gguf") or model.startswith("hub:") or model in models.MODELS:
        return "gguf", str(models.path(model))
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InputError(f"{folder} is not a transformers model: it has no config.json")
        return "folder", str(folder)
    if _is_on_hub(model):
        return "hub", model
    raise InputError(
        f"{unknown('model', model, models.MODELS)}; or give the path of a folder or a GGUF file, "
        "or a name on the Hugging Face hub (OWNER/NAME)"
    )


def _is_on_hub(model: str) -> bool:
    """Whether transformers gets this model from the hub."""
    if model.endswith(".gguf") or model in models.MODELS or Path(model).expanduser().is_dir():
        return False
    return _HUB_NAME.fullmatch(model) is not None


def _said_by(model: str) -> dict[str, Any]:
    """Return how the makers of a model on this machine draw from it.

    In the cache of `waysout models pull` such a file would be anyone's: it has many models.
    """
    place = Path(model).expanduser()
    if place.is_dir():
        return from_file(place / FILE)
    is_own = model.endswith(".gguf") and not model.startswith("hub:")
    return from_file(place.parent / FILE) if is_own else {}


def _identity(model: str) -> str:
    """Return what to call a model: files by more than their names, so that none share recordings.

    No folder of this machine is in it.
    """
    place = Path(model).expanduser()
    if place.is_file():
        return f"{place.name}@{place.stat().st_size}"
    if not place.is_dir():
        named = model in models.MODELS or model.startswith("hub:") or _HUB_NAME.fullmatch(model)
        return model if named and not model.endswith("/") else place.name
    # The ends of its weights, and all that is small.
    seen = hashlib.sha256()
    for patterns, most in ((_WEIGHTS, _TAIL), (_BESIDE_WEIGHTS, _SMALL)):
        found = (file for pattern in patterns for file in place.glob(pattern))
        for file in sorted(file for file in found if file.is_file()):
            size = file.stat().st_size
            with file.open("rb") as opened:
                opened.seek(max(0, size - most))
                seen.update(f"{file.name} {size}\n".encode() + opened.read())
    return f"{place.resolve().name}@{seen.hexdigest()[:8]}"
