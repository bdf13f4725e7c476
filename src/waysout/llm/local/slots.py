"""Many replies at once: slots that requests join and leave while the others go on.

Every slot has its own place in the model's memory. A decode step writes one token in each of them;
on a GPU it is recorded once as a CUDA graph and played back. Tokens are looked at a few steps late
there, so that the GPU never waits: what a slot wrote beyond the end of its reply is ignored.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from waysout.llm.base import Finish
from waysout.llm.local.attention import BY_NAME, by_prompt, upload
from waysout.llm.local.model import Model
from waysout.llm.local.sampling import chances, sample

# The lengths a decode step is recorded for are multiples of this.
_SPAN = 256
# On a GPU a step is made for all slots, and for a quarter, a sixteenth and so on of them.
_PARTS = (64, 16, 4, 1)
# How many prompts are read at once, and tokens of them on a GPU and on a processor.
_GROUP, _GROUP_TOKENS, _FEW_TOKENS = 64, 16384, 2048
# A pass that reads prompts takes long to begin: fewer than this share of the slots wait for
# company, through so many rounds.
_COMPANY, _PATIENCE = 8, 8
# A shorter common beginning is not worth copying.
_PREFIX = 32
# What the attention is chosen by: slots are seldom fuller.
_USUAL_LENGTH = 2048


@dataclass(frozen=True, slots=True)
class Settings:
    """How the slots work: with graphs or without, and what of a prompt is taken from others."""

    seconds: float = 900.0
    graphs: bool = True
    attention: str = "auto"
    share: bool = True


@dataclass(slots=True, eq=False)
class Generation:
    """One request on its way; ``cached`` is how much of its prompt was not computed again."""

    id: int
    prompt: list[int]
    max_tokens: int
    temperature: float
    seed: int
    written: list[int] = field(default_factory=list)
    cached: int = 0
    finish: Finish | None = None
    slot: int = -1
    reach: int = 0
    began: float = 0.0


@dataclass(slots=True)
class Chunk:
    """Tokens of a few steps on their way here, and whose they are."""

    owners: list[Generation]
    tokens: Tensor
    arrived: Any = None


class Slots:
    """Runs jobs to their ends, as many side by side as there are slots."""

    def __init__(self, model: Model, ends: Collection[int], settings: Settings) -> None:
        self.model = model
        self.ends = frozenset(ends)
        self.settings = settings
        self.waiting: deque[Generation] = deque()
        self.live: dict[int, Generation] = {}
        count, device = model.slots, model.device
        self._free = list(range(count))
        self._known = np.full((count, model.context), -1, np.int32)
        self._pending: Chunk | None = None
        self._held = 0
        self._on_gpu = device.type == "cuda"
        self.tokens = torch.zeros(count, dtype=torch.long, device=device)
        self.lengths = torch.zeros(count, dtype=torch.long, device=device)
        self.seeds = torch.zeros(count, dtype=torch.long, device=device)
        self.temperatures = torch.zeros(count, device=device)
        self.graphs = self._on_gpu and settings.graphs
        self.no_graphs_because = ""
        self._steps: dict[tuple[int, int], Callable[[], object]] = {}
        self._pool: Any = None
        # One for all recordings: memory is shared between those of one stream only.
        self._aside = torch.cuda.Stream() if self._on_gpu else None
        self.attention = settings.attention
        if self.attention == "auto":
            self.attention = self._fastest() if self._on_gpu else "matmul"

    # What goes in and out

    def submit(self, job: Generation) -> None:
        """Queue a job; raise where its prompt leaves no room for a reply."""
        room = self.model.context - len(job.prompt)
        if room < 1:
            enough = 2 ** len(job.prompt).bit_length()
            raise ValueError(
                f"the prompt has {len(job.prompt)} tokens, and prompt and reply together may have "
                f"{self.model.context}: make room (transformers:NAME?context={enough})"
            )
        job.max_tokens = min(job.max_tokens, room)
        self.waiting.append(job)

    def cancel(self, number: int) -> None:
        """Forget a job; its slot is free at once."""
        self.waiting = deque(job for job in self.waiting if job.id != number)
        for slot in [slot for slot, job in self.live.items() if job.id == number]:
            self.live[slot].finish = "stop"
            self._release(slot)

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.waiting or self.live)

    def advance(self) -> list[Generation]:
        """Go on by a few steps, let waiting jobs join, and return the jobs that ended."""
        with torch.inference_mode():
            launched = self._launch() if self.live else None
            due, self._pending = (self._pending, launched) if self._on_gpu else (launched, None)
            ended = self._collect(due) if due else []
            self._admit()
        return ended

    # Decoding

    def _launch(self) -> Chunk:
        """Start a few steps; nothing here waits for the GPU."""
        steps = 4 if self._on_gpu else 1
        for job in self.live.values():
            job.reach = min(job.reach + steps, self.model.context)
        step = self._step(self._rows(max(self.live) + 1), max(j.reach for j in self.live.values()))
        tokens = torch.empty(steps, len(self.tokens), dtype=torch.long, device=self.tokens.device)
        for row in tokens:
            row.copy_(self.tokens)
            step()
        return self._fetch(tokens)

    def _fetch(self, tokens: Tensor) -> Chunk:
        owners = list(self.live.values())
        if not self._on_gpu:
            return Chunk(owners, tokens)
        here = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
        here.copy_(tokens, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        return Chunk(owners, here, arrived)

    def _collect(self, chunk: Chunk) -> list[Generation]:
        if chunk.arrived is not None:
            chunk.arrived.synchronize()
        columns = chunk.tokens.numpy().T
        now = time.monotonic()
        owners = [job for job in chunk.owners if not job.finish]
        for job in owners:
            job.finish = self._take(job, columns[job.slot].tolist(), now)
        ended = [job for job in owners if job.finish]
        for job in ended:
            self._release(job.slot)
        return ended

    def _take(self, job: Generation, tokens: Iterable[int], now: float) -> Finish | None:
        """Add the next tokens to a reply; return what ends it, if anything does."""
        for token in tokens:
            job.written.append(token)
            if token in self.ends:
                return "stop"
            if len(job.written) >= job.max_tokens:
                return "length"
        return "time" if now - job.began > self.settings.seconds else None

    def _release(self, slot: int) -> None:
        del self.live[slot]
        heapq.heappush(self._free, slot)

    def _rows(self, least: int) -> int:
        """Return for how many slots to make a step; few sizes where each must be recorded."""
        if not self._on_gpu:
            return least
        sizes = (-(-self.model.slots // part) for part in _PARTS)
        return next(size for size in sizes if size >= least)

    def _step(self, rows: int, reach: int) -> Callable[[], object]:
        """Return a decode step for the first slots that sees so many tokens of each."""
        span = min(-(-reach // _SPAN) * _SPAN, self.model.context)
        if (rows, span) not in self._steps:
            plain = lambda: self.decode(rows, span)  # noqa: E731
            self._steps[rows, span] = self._record(plain) if self.graphs else plain
        return self._steps[rows, span]

    def decode(self, rows: int, span: int) -> None:
        """Write one more token in each of the first slots; all tensors stay where they are."""
        # An ended job's slot goes on until it is taken, but not beyond its place.
        at = self.lengths[:rows].clamp(max=self.model.context - 1)
        slots = torch.arange(rows, device=at.device)
        attend = BY_NAME[self.attention](at, span)
        logits = self.model.forward(self.tokens[:rows], slots, at, attend)
        self._draw(logits, slice(rows), at + 1)

    def _draw(self, logits: Tensor, slots: slice | Tensor, lengths: Tensor) -> None:
        chance = chances(self.seeds[slots], lengths)
        self.tokens[slots] = sample(logits, self.temperatures[slots], chance)
        self.lengths[slots] = lengths

    def _record(self, step: Callable[[], None]) -> Callable[[], object]:
        """Record a step as a CUDA graph; the tokens and lengths are afterwards as before."""
        before = self.tokens.clone(), self.lengths.clone()
        aside: Any = self._aside
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            step()  # libraries set themselves up on first use, which cannot be recorded
        torch.cuda.current_stream().wait_stream(aside)
        try:
            return self._captured(step)
        except RuntimeError as error:
            torch.cuda.synchronize()
            self.graphs, self.no_graphs_because = False, str(error).splitlines()[0]
            return step
        finally:
            self.tokens.copy_(before[0])
            self.lengths.copy_(before[1])

    def _captured(self, step: Callable[[], None]) -> Callable[[], object]:
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # Nothing recorded outlives its step, so that all graphs can share their memory.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._aside, capture_error_mode="thread_local"
        ):
            step()
        replay: Callable[[], object] = graph.replay
        return replay

    def _fastest(self) -> str:
        """Return the attention with the shorter step, on this device, with every slot in use."""
        seconds: dict[str, float] = {}
        for name in BY_NAME:
            self.use(name)
            try:
                seconds[name] = self.time_step(self.model.slots, _USUAL_LENGTH)
            except RuntimeError as error:  # not every device and model has every kernel
                failure = error
        self.use("")
        if not seconds:
            raise failure
        return min(seconds, key=seconds.__getitem__)

    def use(self, attention: str) -> None:
        """Attend in another way from now on."""
        self.attention = attention
        self._steps.clear()
        self._pool = None  # memory that no graph is left in cannot be shared any more

    def time_step(self, rows: int, reach: int, times: int = 10) -> float:
        """Return the seconds a step takes; only for idle slots."""
        with torch.inference_mode():
            step = self._step(rows, reach)
            step()
            self._wait()
            began = time.perf_counter()
            for _ in range(times):
                step()
            self._wait()
            return (time.perf_counter() - began) / times

    def _wait(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize()

    # Reading prompts

    def _admit(self) -> None:
        """Let waiting jobs into free slots; a few wait for others, since one by one is slower."""
        ready = min(len(self.waiting), len(self._free))
        company = self.model.slots // _COMPANY
        if ready < company and self.live and self._held < _PATIENCE:
            self._held += ready > 0
            return
        self._held = 0
        while self.waiting and self._free:
            self._read(self._next_group())

    def _next_group(self) -> list[tuple[Generation, int]]:
        """Take jobs from the queue, each with the slot whose prompt begins most alike."""
        group: list[tuple[Generation, int]] = []
        tokens = 0
        most = _GROUP_TOKENS if self._on_gpu else _FEW_TOKENS
        while self.waiting and self._free and len(group) < _GROUP:
            job = self.waiting[0]
            source, job.cached = self._most_alike(job.prompt)
            tokens += len(job.prompt) - job.cached
            if group and tokens > most:
                break
            self.waiting.popleft()
            job.slot = heapq.heappop(self._free)
            job.reach = len(job.prompt)
            group.append((job, source))
        for job, _ in group:
            job.began = time.monotonic()
            self.live[job.slot] = job
            self._known[job.slot] = -1
            self._known[job.slot, : len(job.prompt)] = job.prompt
        return group

    def _most_alike(self, prompt: list[int]) -> tuple[int, int]:
        """Return the slot with the longest common beginning, and its length.

        What a slot has read stays in its place, also after its job has ended.
        """
        if not self.settings.share:
            return 0, 0
        # The last token is always computed: what follows it is what we want to know.
        ours = np.asarray(prompt[:-1], np.int32)
        differs = self._known[:, : len(ours)] != ours
        alike = np.where(differs.any(1), differs.argmax(1), len(ours))
        slot = int(alike.argmax())
        return (slot, int(alike[slot])) if alike[slot] >= _PREFIX else (0, 0)

    def _read(self, group: list[tuple[Generation, int]]) -> None:
        """Read the prompts of a group, and draw the first token of each reply."""
        jobs = [job for job, _ in group]
        self._share([(source, job.slot, job.cached) for job, source in group if job.cached])
        device = self.model.device
        rests = [job.prompt[job.cached :] for job in jobs]
        lengths = [len(rest) for rest in rests]
        tokens = upload(np.concatenate(rests), device)
        at = upload(np.concatenate([np.arange(j.cached, len(j.prompt)) for j in jobs]), device)
        owners = upload(np.repeat([job.slot for job in jobs], lengths), device)
        slots = upload([job.slot for job in jobs], device)
        span = min(-(-max(len(j.prompt) for j in jobs) // 64) * 64, self.model.context)
        attend = by_prompt(slots, lengths, at, span)
        last = upload(np.cumsum(lengths) - 1, device)
        logits = self.model.forward(tokens, owners, at, attend, keep=last)
        self.seeds[slots] = upload([job.seed for job in jobs], device)
        self.temperatures[slots] = upload([j.temperature for j in jobs], device, torch.float32)
        self._draw(logits, slots, upload([len(job.prompt) for job in jobs], device))

    def _share(self, moves: list[tuple[int, int, int]]) -> None:
        """Take the beginnings of prompts from slots that have read them."""
        if moves:
            sources, targets, lengths = zip(*moves, strict=True)
            to = self.model.device
            self.model.copy(upload(sources, to), upload(targets, to), max(lengths))
