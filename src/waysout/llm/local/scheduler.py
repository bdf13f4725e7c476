"""Continuous batching: requests join and leave slots while the others go on.

Every slot has its own place in the KV cache. A decode step writes one token in each of them; on a
GPU it is recorded once as a CUDA graph and replayed, since an eager step spends its time on
launching kernels. Tokens are read back a few steps late there, so that the GPU never waits: tokens
beyond the end of a reply are ignored. The random numbers of a request depend only on its seed, so
that no reply depends on the others in the batch.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from waysout.llm.base import Finish
from waysout.llm.local.attention import BY_NAME, by_prompt, upload
from waysout.llm.local.model import Model
from waysout.llm.local.sampling import Sampling

# Decode steps are recorded for lengths that are multiples of this.
_SPAN = 256
# On a GPU steps are recorded for all slots, a quarter, a sixteenth and so on.
_PARTS = (64, 16, 4, 1)
# Maximum number of prompts read at once, and of their tokens on a GPU and on a CPU.
_GROUP, _GROUP_TOKENS, _FEW_TOKENS = 64, 16384, 2048
# A pass that reads prompts has a high fixed cost: it waits until there is a request for every 8
# slots, for at most 8 rounds.
_SLOTS_PER_WAITING, _PATIENCE = 8, 8
# A shorter common prefix is not worth copying.
_PREFIX = 32
# The attention is chosen at this length: slots are rarely fuller.
_USUAL_LENGTH = 2048
_LARGEST_BELOW_1 = 1 - 1e-6
# Tokens are drawn in two steps, the first of which chooses a run of this many.
_RUN = 128
PLAIN = Sampling()


@dataclass(slots=True, eq=False)
class Generation:
    """One request in progress; ``cached`` tokens of its prompt were reused, not computed."""

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


_Chunk = tuple[list[Generation], Tensor, Any]
"""The tokens of a few steps on their way from the device: owners, tokens, arrival event."""


class Scheduler:
    """Runs generations to the end, as many in parallel as there are slots.

    ``ends`` are the tokens that end a reply; a reply that takes longer than ``seconds`` is cut off.
    """

    def __init__(
        self,
        model: Model,
        ends: Collection[int],
        seconds: float = 900.0,
        sampling: Sampling = PLAIN,
    ) -> None:
        self.model = model
        self.ends = frozenset(ends)
        self.seconds = seconds
        self.sampling = sampling
        self.waiting: deque[Generation] = deque()
        self.live: dict[int, Generation] = {}
        count, device = model.slots, model.device
        self._free = list(range(count))
        self._known = np.full((count, model.context), -1, np.int32)
        self._pending: _Chunk | None = None
        self._held = 0
        self._on_gpu = self.graphs = device.type == "cuda"
        self.tokens = torch.zeros(count, dtype=torch.long, device=device)
        self.lengths = torch.zeros(count, dtype=torch.long, device=device)
        self.seeds = torch.zeros(count, dtype=torch.long, device=device)
        self.temperatures = torch.zeros(count, device=device)
        # The tokens of each slot's prompt and reply, where they are penalised. As in the KV cache
        # only the first ``lengths`` count, so that nothing is left of steps that are not kept.
        self._penalises = sampling.repetition_penalty != 1
        size = model.context if self._penalises else 0
        self.history = torch.zeros(count, size, dtype=torch.long, device=device)
        self.no_graphs_because = ""
        self._steps: dict[tuple[int, int], Callable[[], object]] = {}
        self._pool: Any = None
        # One stream for all recordings: only graphs of the same stream can share memory.
        self._aside = torch.cuda.Stream() if self._on_gpu else None
        self.attention = "matmul"
        if self._on_gpu:
            self.attention = self._fastest_attention()

    def submit(self, job: Generation) -> None:
        """Queue a generation; raise if its prompt leaves no room for a reply."""
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
        """Drop a generation; its slot is free at once."""
        self.waiting = deque(job for job in self.waiting if job.id != number)
        for slot in [slot for slot, job in self.live.items() if job.id == number]:
            self.live[slot].finish = "stop"
            self._release(slot)

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.waiting or self.live)

    def advance(self) -> list[Generation]:
        """Run a few steps, admit waiting generations, and return those that ended."""
        with torch.inference_mode():
            launched = self._launch() if self.live else None
            due, self._pending = (self._pending, launched) if self._on_gpu else (launched, None)
            ended = self._collect(due) if due else []
            self._admit()
        return ended

    # Decoding

    def _launch(self) -> _Chunk:
        """Start a few steps; nothing here waits for the GPU."""
        steps = 4 if self._on_gpu else 1
        for job in self.live.values():
            job.reach = min(job.reach + steps, self.model.context)
        rows = max(self.live) + 1
        if self._on_gpu:  # few sizes, since each must be recorded
            sizes = (-(-self.model.slots // part) for part in _PARTS)
            rows = next(size for size in sizes if size >= rows)
        step = self._step(rows, max(job.reach for job in self.live.values()))
        tokens = torch.empty(steps, len(self.tokens), dtype=torch.long, device=self.tokens.device)
        for row in tokens:
            row.copy_(self.tokens)
            step()
        owners = list(self.live.values())
        if not self._on_gpu:
            return owners, tokens, None
        here = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
        here.copy_(tokens, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        return owners, here, arrived

    def _collect(self, chunk: _Chunk) -> list[Generation]:
        """Add tokens to their replies; free the slots of those that ended, and return them."""
        owners, tokens, arrived = chunk
        if arrived is not None:
            arrived.synchronize()
        columns = tokens.numpy().T
        now = time.monotonic()
        owners = [job for job in owners if not job.finish]
        for job in owners:
            for token in columns[job.slot].tolist():
                job.written.append(token)
                if token in self.ends:
                    job.finish = "stop"
                elif len(job.written) >= job.max_tokens:
                    job.finish = "length"
                if job.finish:
                    break
            else:
                job.finish = "time" if now - job.began > self.seconds else None
        ended = [job for job in owners if job.finish]
        for job in ended:
            self._release(job.slot)
        return ended

    def _release(self, slot: int) -> None:
        del self.live[slot]
        heapq.heappush(self._free, slot)

    def _step(self, rows: int, reach: int) -> Callable[[], object]:
        """Return a decode step for the first slots that sees ``reach`` tokens of each."""
        span = min(-(-reach // _SPAN) * _SPAN, self.model.context)
        if (rows, span) not in self._steps:
            plain = lambda: self.decode(rows, span)  # noqa: E731
            self._steps[rows, span] = self._record(plain) if self.graphs else plain
        return self._steps[rows, span]

    def decode(self, rows: int, span: int) -> None:
        """Write one more token in each of the first slots; all tensors stay where they are."""
        # The slot of an ended reply keeps decoding until it is reused, but stays within its cache.
        at = self.lengths[:rows].clamp(max=self.model.context - 1)
        slots = torch.arange(rows, device=at.device)
        attend = BY_NAME[self.attention](at, span)
        logits = self.model.forward(self.tokens[:rows], slots, at, attend)
        self._draw(logits, slice(rows), at + 1)

    def _draw(self, logits: Tensor, slots: slice | Tensor, lengths: Tensor) -> None:
        chance = chances(self.seeds[slots], lengths)
        if self._penalises:
            penalty = self.sampling.repetition_penalty
            logits = penalised(logits, self.history[slots], lengths, penalty)
        drawn = sample(logits, self.temperatures[slots], chance, self.sampling)
        self.tokens[slots] = drawn
        self.lengths[slots] = lengths
        if self._penalises:
            rows = torch.arange(self.model.slots, device=drawn.device)[slots]
            self.history[rows, lengths.clamp(max=self.model.context - 1)] = drawn

    def _record(self, step: Callable[[], None]) -> Callable[[], object]:
        """Record a step as a CUDA graph; tokens and lengths are restored afterwards."""
        before = self.tokens.clone(), self.lengths.clone()
        aside: Any = self._aside
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            step()  # libraries initialise on first use, which cannot be recorded
        torch.cuda.current_stream().wait_stream(aside)
        try:
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            # No recorded tensor outlives its step, so all graphs can share their memory.
            with torch.cuda.graph(
                graph, pool=self._pool, stream=aside, capture_error_mode="thread_local"
            ):
                step()
            replay: Callable[[], object] = graph.replay
            return replay
        except RuntimeError as error:
            torch.cuda.synchronize()
            self.graphs, self.no_graphs_because = False, str(error).splitlines()[0]
            return step
        finally:
            self.tokens.copy_(before[0])
            self.lengths.copy_(before[1])

    def _fastest_attention(self) -> str:
        """Return the attention with the shorter step, on this device, with every slot in use."""
        seconds: dict[str, float] = {}
        for name in BY_NAME:
            self.use(name)
            try:
                seconds[name] = self.time_step(self.model.slots, _USUAL_LENGTH)
            except RuntimeError as error:  # not every device and model supports every kernel
                failure = error
        self.use("")
        if not seconds:
            raise failure
        return min(seconds, key=seconds.__getitem__)

    def use(self, attention: str) -> None:
        """Switch to another attention."""
        self.attention = attention
        self._steps.clear()
        self._pool = None  # a pool without graphs cannot be reused

    def time_step(self, rows: int, reach: int, times: int = 10) -> float:
        """Measure the seconds of a step; only while all slots are idle."""
        wait = torch.cuda.synchronize if self._on_gpu else lambda: None
        with torch.inference_mode():
            step = self._step(rows, reach)
            step()
            wait()
            began = time.perf_counter()
            for _ in range(times):
                step()
            wait()
            return (time.perf_counter() - began) / times

    # Reading prompts

    def _admit(self) -> None:
        """Admit waiting generations to free slots; a few wait for more, to be read together."""
        ready = min(len(self.waiting), len(self._free))
        fewest = self.model.slots // _SLOTS_PER_WAITING
        if ready < fewest and self.live and self._held < _PATIENCE:
            self._held += ready > 0
            return
        self._held = 0
        while self.waiting and self._free:
            self._read(self._next_group())

    def _next_group(self) -> list[tuple[Generation, int]]:
        """Take generations from the queue, each with the slot that shares most of its prompt."""
        group: list[tuple[Generation, int]] = []
        tokens = 0
        most = _GROUP_TOKENS if self._on_gpu else _FEW_TOKENS
        while self.waiting and self._free and len(group) < _GROUP:
            job = self.waiting[0]
            source, job.cached = self._longest_prefix(job.prompt)
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

    def _longest_prefix(self, prompt: list[int]) -> tuple[int, int]:
        """Return the slot with the longest common prefix, and its length.

        A prompt stays in the cache of its slot, also after the reply has ended.
        """
        # The last token is always computed, since its logits give the first token of the reply.
        ours = np.asarray(prompt[:-1], np.int32)
        differs = self._known[:, : len(ours)] != ours
        alike = np.where(differs.any(1), differs.argmax(1), len(ours))
        slot = int(alike.argmax())
        return (slot, int(alike[slot])) if alike[slot] >= _PREFIX else (0, 0)

    def _read(self, group: list[tuple[Generation, int]]) -> None:
        """Read the prompts of a group, and draw the first token of each reply."""
        device = self.model.device
        jobs = [job for job, _ in group]
        moves = [(source, job.slot, job.cached) for job, source in group if job.cached]
        if moves:
            sources, targets, cached = zip(*moves, strict=True)
            self.model.copy(upload(sources, device), upload(targets, device), max(cached))
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
        if self._penalises:
            # Whole prompts: what was reused of them counts as well.
            known = self._known[[job.slot for job in jobs], :span]
            self.history[slots, :span] = upload(known, device)
        self._draw(logits, slots, upload([len(job.prompt) for job in jobs], device))


# Drawing tokens --------------------------------------------------------------------------------


def chances(seeds: Tensor, positions: Tensor) -> Tensor:
    """Return a random number below 1 that depends only on seed and position."""
    x = (seeds ^ (positions * 0x9E3779B1)) & 0xFFFFFFFF
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = ((x ^ (x >> shift)) * factor) & 0xFFFFFFFF
    return ((x ^ (x >> 16)) >> 8).float() / 2**24


def penalised(logits: Tensor, history: Tensor, lengths: Tensor, penalty: float) -> Tensor:
    """Make the first ``lengths`` tokens of each row's history less likely, as `generate` does."""
    counts = torch.arange(history.shape[-1], device=history.device) < lengths[:, None]
    # A token that comes twice is penalised once, so the first can stand for those beyond the end.
    tokens = torch.where(counts, history, history[:, :1])
    scores = logits.gather(-1, tokens)
    return logits.scatter(-1, tokens, torch.where(scores < 0, scores * penalty, scores / penalty))


def sample(
    logits: Tensor, temperatures: Tensor, chance: Tensor, sampling: Sampling = PLAIN
) -> Tensor:
    """Sample a token from each row of logits; at temperature 0 take the most likely one.

    Limits apply in the order of `generate`: top-k, top-p, min-p. The draw is by cumulative
    sums, first of runs of tokens, then inside one: a sum over a whole vocabulary would lose rare
    tokens to rounding.
    """
    best = logits.argmax(-1)
    tokens = None
    # The most likely come first, so that top-p can cut them by their sum; the temperature does not
    # change their order. Of tokens as likely as the k-th, `generate` would keep all.
    if sampling.top_k:
        logits, tokens = top(logits, min(sampling.top_k, logits.shape[-1]))
    elif sampling.top_p < 1:
        logits, tokens = logits.sort(descending=True)
    shares = (logits / temperatures.clamp(min=1e-3)[:, None]).softmax(-1)
    if sampling.top_p < 1:
        before = shares.cumsum(-1) - shares
        shares = shares.masked_fill(before >= sampling.top_p, 0)
    if sampling.min_p:
        least = sampling.min_p * shares.amax(-1, keepdim=True)
        shares = shares.masked_fill(shares < least, 0)
    if shares.shape[-1] % _RUN:
        shares = F.pad(shares, (0, -shares.shape[-1] % _RUN))
    runs = shares.view(len(shares), -1, _RUN)
    totals = runs.sum(-1)
    run, inner = _reached(totals, chance * totals.sum(-1))
    chosen = runs[torch.arange(len(runs), device=runs.device), run]
    token, _ = _reached(chosen, inner)
    drawn = run * _RUN + token
    if tokens is not None:
        drawn = tokens.gather(-1, drawn[:, None])[:, 0]
    return torch.where(temperatures > 0, drawn, best)


def top(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest of each row, and where they are.

    `topk` is slow in rows as long as a vocabulary; they lie in the k runs with the largest maxima.
    """
    if logits.shape[-1] % _RUN:
        logits = F.pad(logits, (0, -logits.shape[-1] % _RUN), value=-torch.inf)
    runs = logits.view(len(logits), -1, _RUN)
    if runs.shape[1] <= k:
        values, at = logits.topk(k)
        return values, at
    kept = runs.amax(-1).topk(k).indices
    few = runs.gather(1, kept[..., None].expand(-1, -1, _RUN)).flatten(1)
    values, at = few.topk(k)
    return values, kept.gather(1, at // _RUN) * _RUN + at % _RUN


def _reached(weights: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the index of the weight in which the cumulative target lies, and the offset in it."""
    sums = weights.cumsum(-1)
    target = torch.minimum(target, sums[:, -1] * _LARGEST_BELOW_1)[:, None]
    index = (sums <= target).sum(-1, keepdim=True)
    before = sums.gather(-1, index) - weights.gather(-1, index)
    return index[:, 0], (target - before).clamp(min=0)[:, 0]
