"""A GGUF model in this process, through llama.cpp.

Several requests run side by side in slots, each of which remembers its last prompt: a request that
begins alike computes only the rest. The library's own HTTP listener cannot be turned off; it is put
on a socket file in a private folder, which is removed before the first request.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from waysout.errors import LLMError, LLMFailure, MissingExtra
from waysout.llm import models
from waysout.llm.base import Backend, Form, Limits, Reply, Request
from waysout.llm.openai.replies import ReplyReader, error_details

SLOTS = 4
# A prompt is read in pieces of this many tokens, and can be stopped between two; larger pieces are
# no faster on a processor.
_BATCH = 128
CONTEXT = 4096
# A small machine may take minutes for one reply of a large model; no other request waits for it.
PATIENT = Limits(seconds=900.0)


class LlamaCpp(Backend):
    """Answers with a GGUF model loaded on first use."""

    form: Form = "grammar"

    def __init__(
        self,
        model: str = models.DEFAULT,
        *,
        slots: int = SLOTS,
        threads: int | None = None,
        context: int = CONTEXT,
        limits: Limits = PATIENT,
    ) -> None:
        self.model = model
        self.threads = threads
        self.context = context
        self.limits = limits
        self.parallel = slots
        # A file is called by its name and size, so that no two share recordings.
        file = Path(model)
        if model.endswith(".gguf"):
            model = f"{file.name}@{file.stat().st_size}" if file.is_file() else file.name
        self.name = f"llamacpp:{model}"
        self._server: Any = None
        self._starting = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._running: set[threading.Event] = set()

    async def complete(self, request: Request) -> Reply:
        """Answer one request in one of the slots; a cancelled one soon frees its slot."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.parallel, thread_name_prefix="llamacpp")
        stop = threading.Event()
        self._running.add(stop)
        ask = partial(self._ask, request, stop)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, ask)
        finally:
            stop.set()
            self._running.discard(stop)

    async def aclose(self) -> None:
        """Stop what is running and unload the model; another request would load it again."""
        for stop in self._running:
            stop.set()
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)
        self._server = None

    def _ask(self, request: Request, stop: threading.Event) -> Reply:
        with self._starting:
            if self._server is None:
                self._server = self._load()
            server = self._server
        body: dict[str, Any] = {
            "messages": [{"role": m.role, "content": m.content} for m in request.messages],
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.sampling_seed,
            "cache_prompt": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,  # so that a request can be stopped while its prompt is read
        }
        if request.constraint and request.constraint.grammar:
            body["grammar"] = request.constraint.grammar
        started = time.monotonic()
        reader = ReplyReader(request, self.limits.bytes)
        reader.begin(streamed=True)

        def take(chunk: Any) -> bool:
            """Take the next piece; a true answer tells the library to stop."""
            reader.add_event(chunk)
            # A server's reasoning is bounded by the bytes on the wire; here there is no wire.
            if reader.unseen > self.limits.bytes:
                reader.stop("bytes")
            if time.monotonic() - started > self.limits.seconds:
                reader.stop("time")
            return reader.enough or stop.is_set()

        returned = server.handle_chat_completions(body, take)
        error = reader.error or (returned.get("error") if isinstance(returned, dict) else None)
        if error:
            message = error_details(error)[0]
            more = " (llamacpp:NAME?context=8192)" if "context size" in message else ""
            raise LLMError(f"{self.name}: {message[:300]}{more}")
        if not reader.complete:
            raise LLMFailure(f"{self.name} ended without a reply")
        # The library calls every model by the path of its file.
        return replace(reader.reply(time.monotonic() - started, self.name), model=self.name)

    def _load(self) -> Any:
        try:
            import xllamacpp
        except ImportError as error:
            raise MissingExtra("xllamacpp", "llamacpp") from error
        path = models.path(self.model)
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_parallel = self.parallel
        params.n_ctx = self.context * self.parallel
        params.n_batch = params.n_ubatch = _BATCH
        # All cores at once are far slower than half of them as soon as another process is busy.
        affinity = getattr(os, "sched_getaffinity", None)
        cores = len(affinity(0)) if affinity else os.cpu_count() or 1
        threads = self.threads or max(1, cores // 2)
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.verbosity = -1
        params.warmup = False
        # The library's listener gets a random key, and where it can a socket file that is removed.
        params.api_keys = [secrets.token_hex(32)]
        params.cors_origins = ""
        with tempfile.TemporaryDirectory(prefix="waysout-") as private:
            if os.name == "posix":
                params.hostnames = [str(Path(private) / "s.sock")]
            try:
                return xllamacpp.Server(params)
            except RuntimeError as error:
                raise LLMError(
                    f"llama.cpp cannot load {path}: {error} Is it a GGUF file of a chat model, and "
                    "is there enough memory?"
                ) from None
