"""How fast `transformers:` is: decoding steps against plain `generate`, and searches per minute.

    python benchmarks/local_llm.py steps --model qwen2.5-coder-1.5b
    python benchmarks/local_llm.py searches --model google/gemma-3-12b-it --slots 120 --calls 10

`--model` is what follows `transformers:`, a name, a folder or a GGUF file. A step writes one token
of every reply in the batch; here all of them have read the same prompt of a search. `searches` runs
Comp-MCTS (30 calls, K = 5) for as many people as are in flight, on the synthetic table and an easy
formula, so that no data is needed; `--data loan` takes a real table and its trained oracle. It is
made for a GPU: on a processor choose `--rows 1 --rows 4`, few calls and a small model.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from search import synthetic
from waysout.datasets.load import load_dataset
from waysout.datasets.manifest import load_oracle
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.llm.base import Backend
from waysout.llm.local.process import Ask
from waysout.llm.transformers import Transformers
from waysout.prompts.propose import Proposer
from waysout.prompts.render import Topic
from waysout.run.find import afind_many

ROWS = (1, 30, 120, 480)
K = 5
_MOST_READ = 5000


def steps(backend: Transformers, rows: tuple[int, ...]) -> None:
    """Show how many steps a second plain `generate` makes, and this engine."""
    from waysout.llm.local.engine import Engine

    engine = Engine(backend.setup())
    print(f"{backend.name} {engine.loaded.about}\n")
    problem = synthetic()
    request = Proposer(Topic.of_problem(problem.problem)).request(problem.query, problem.query, k=K)
    assert request is not None
    asked = Ask(tuple((m.role, m.content) for m in request.messages), 1, 0.7, 0)
    prompt = engine.generation(0, asked).prompt
    reach = min(len(prompt) + 256, engine.scheduler.model.context)
    ours = {
        n: 1 / engine.scheduler.time_step(min(n, engine.scheduler.model.slots), reach) for n in rows
    }
    print("| replies at once | generate, steps/s | ours, steps/s | ratio | ours, tokens/s |")
    print("|---|---|---|---|---|")
    network = engine.scheduler.model.network
    network.set_attn_implementation("sdpa")
    for n in rows:
        plain = _generate(network, prompt, n)
        many = min(n, engine.scheduler.model.slots)
        print(f"| {n} | {plain:.1f} | {ours[n]:.1f} | {ours[n] / plain:.1f} | "
              f"{many * ours[n]:,.0f} |", flush=True)  # fmt: skip


def _generate(network: Any, prompt: list[int], rows: int, few: int = 4, many: int = 24) -> float:
    """Return the steps a second of plain `generate`, without the time it reads the prompt in."""
    import torch

    ids = torch.tensor([prompt] * rows, device=network.device)
    seconds = []
    for count in (few, few, many):  # the first is for warming up
        began = time.perf_counter()
        out = network.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count,
                               min_new_tokens=count, do_sample=True, pad_token_id=0)  # fmt: skip
        out.cpu()
        seconds.append(time.perf_counter() - began)
    return (many - few) / (seconds[2] - seconds[1])


def people(name: str, most: int) -> tuple[Problem, list[Row]]:
    """Return a problem, and rejected people of its table."""
    data = load_dataset(name)
    problem = (
        synthetic().problem
        if name == "synthetic"
        else Problem.from_card(data.card, load_oracle(data.card))
    )
    rows = data.rows[:_MOST_READ]
    chances = problem.oracle.ask(rows).probability
    rejected = [row for row, chance in zip(rows, chances, strict=True) if chance < 0.5]
    return problem, rejected[:most]


async def searches(backend: Backend, name: str, in_flight: tuple[int, ...], calls: int) -> None:
    """Show how many searches a minute end, with more and more of them at once."""
    problem, rejected = people(name, max(in_flight))
    async with backend:
        began = time.perf_counter()
        await _searched(problem, rejected[:1], backend, 1, 1)  # loads the model
        print(f"{backend.name} {getattr(backend, 'loaded', '')}; "
              f"first reply after {time.perf_counter() - began:.0f} s\n")  # fmt: skip
        print(f"Comp-MCTS on {name}, {calls} calls, K = {K}:\n")
        print("| in flight | searches | seconds | searches/min | calls/s | tokens/s written |")
        print("|---|---|---|---|---|---|")
        for count in in_flight:
            began = time.perf_counter()
            made, written = await _searched(problem, rejected[:count], backend, calls, count)
            seconds = time.perf_counter() - began
            done = min(count, len(rejected))
            print(f"| {count} | {done} | {seconds:.1f} | {60 * done / seconds:.1f} | "
                  f"{made / seconds:.1f} | {written / seconds:,.0f} |", flush=True)  # fmt: skip


async def _searched(
    problem: Problem, rows: list[Row], backend: Backend, calls: int, in_flight: int
) -> tuple[int, int]:
    """Return how many calls were made, and tokens written."""
    made = written = 0
    async for result in afind_many(
        problem, rows, method="comp-mcts", llm=backend, calls=calls, k=K, in_flight=in_flight
    ):
        made += result.ledger.llm_calls
        written += result.ledger.tokens_out
    return made, written


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=["steps", "searches"])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rows", type=int, action="append", help="at once (1, 30, 120, 480)")
    parser.add_argument("--slots", type=int, default=0)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", default="synthetic")
    parser.add_argument("--calls", type=int, default=30)
    args = parser.parse_args()
    rows = tuple(args.rows or ROWS)
    slots = args.slots or (max(rows) if args.what == "steps" else 0)
    backend = Transformers(args.model, slots=slots, context=args.context, device=args.device)
    if args.what == "steps":
        steps(backend, rows)
    else:
        asyncio.run(searches(backend, args.data, rows, args.calls))


if __name__ == "__main__":
    main()
