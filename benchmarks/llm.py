"""What real LLMs make of our prompts, and what the prompts' order and shared slots are worth.

    .venv/bin/python benchmarks/llm.py parse --llm llamacpp:smollm2-135m
    .venv/bin/python benchmarks/llm.py prefix --llm llamacpp:smollm2-135m
    .venv/bin/python benchmarks/llm.py throughput --llm llamacpp:smollm2-135m

`--llm` takes any connection string, also the path of a GGUF file (llamacpp:FILE.gguf). Loan and
Adult are real data: `waysout data list` says how to get them. Ratios are within one run.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from waysout.datasets.load import Dataset, load_dataset
from waysout.datasets.queries import queries
from waysout.domain.budget import Budget, Ledger
from waysout.domain.schema import Row
from waysout.llm.base import Backend, Reply
from waysout.llm.call import Caller
from waysout.llm.connect import DEFAULT, connect
from waysout.llm.replay import Recorder
from waysout.prompts.accept import Cause, Proposal
from waysout.prompts.propose import Proposer, Style
from waysout.prompts.render import Record, Tag, Topic

K = 5
MEMORY = 10
MALFORMED = {Cause.UNPARSABLE, Cause.TRUNCATED, Cause.UNKNOWN_FEATURE, Cause.BAD_TYPE}


@dataclass
class Walk:
    """A stand-in for a search: breadth first, every edit becomes a node, and no oracle is asked.

    What was tried is remembered either along the path, as the paper has it, or in one log that only
    grows.
    """

    query: Row
    grow: bool = False
    nodes: deque[tuple[Row, tuple[Record, ...]]] = field(default_factory=deque)
    log: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nodes.append((self.query, ()))

    def next(self) -> tuple[Row, tuple[Record, ...]]:
        """Return the node to ask about, and what the prompt remembers there."""
        row, path = self.nodes[0]
        if len(self.nodes) > 1:
            self.nodes.popleft()
        return row, tuple(self.log) if self.grow else path[-MEMORY:]

    def take(self, proposal: Proposal, row: Row, path: tuple[Record, ...], topic: Topic) -> None:
        """Make a node of every edit; each remembers its siblings too."""
        records = [Record(((e.feature, e.value),), Tag.REJECTED) for e in proposal.edits]
        self.log += records
        for edit in proposal.edits:
            after = topic.rules.apply(row, {edit.feature: edit.value})
            self.nodes.append((after, (*path, *records)))


@dataclass
class Tally:
    """What came of a number of calls."""

    replies: list[Reply] = field(default_factory=list)
    proposals: list[Proposal] = field(default_factory=list)

    @property
    def asked(self) -> int:
        """How many edits were asked for."""
        return K * len(self.replies)

    def share(self, count: int) -> str:
        """Write a count as a share of what was asked for."""
        return f"{count / self.asked:.1%}"

    @property
    def accepted(self) -> int:
        """How many edits keep type, domain and rules, and change something."""
        return sum(len(p.edits) for p in self.proposals)

    @property
    def well_formed(self) -> int:
        """Edits of a known feature to a value of its type, whatever the rules say of it."""
        wrong = sum(r.cause in MALFORMED | {Cause.BEYOND_K} for p in self.proposals
                    for r in p.rejections)  # fmt: skip
        return sum(len(p.edits) + len(p.rejections) for p in self.proposals) - wrong

    @property
    def causes(self) -> str:
        """Write why the others were rejected."""
        counts = sum((Counter(p.counts()) for p in self.proposals), Counter[str]())
        missing = self.asked - self.accepted - sum(
            n for cause, n in counts.items() if cause != Cause.BEYOND_K)  # fmt: skip
        named = [f"{cause} {n}" for cause, n in counts.most_common()]
        return ", ".join(named + [f"missing {missing}"] * (missing > 0)) or "none"

    @property
    def computed(self) -> float:
        """Prompt tokens actually processed per call."""
        usages = [r.usage for r in self.replies]
        return sum(u.tokens_in - u.cached_tokens for u in usages) / len(usages)


async def walk(
    caller: Caller, data: Dataset, row: int, calls: int, style: Style, *, grow: bool = False,
    rules: str | None = None, seed: int = 0,
) -> Tally:  # fmt: skip
    """Run one walk of a number of calls."""
    topic = Topic.of_card(data.card, rules)
    proposer = Proposer(topic, caller.backend.form, style)
    query = data.rows[row]
    steps, tally, ledger = Walk(query, grow), Tally(), Ledger(Budget(llm_calls=calls))
    for draw in range(calls):
        at, history = steps.next()
        avoid = tuple(dict.fromkeys(name for r in history[-3:] for name, _ in r.changes))
        request = proposer.request(
            query, at, k=K, history=history, avoid=avoid, seed=seed, draw=draw
        )
        assert request is not None
        reply = await caller.call(request, ledger)
        proposal = proposer.read(reply, query, at, k=K)
        steps.take(proposal, at, history, topic)
        tally.replies.append(reply)
        tally.proposals.append(proposal)
    return tally


async def parse(llm: str, names: Sequence[str], calls: int, record: str | None) -> None:
    """Show how many of the edits asked for came back, with and without constraints."""
    print(
        "| LLM | data | format held | calls | accepted | well-formed | rejected for | tokens out |"
    )
    print("|---|---|---|---|---|---|---|---|")
    async with connect(llm) as answering:
        backend = Recorder(answering, record) if record else answering
        for name in names:
            data = load_dataset(name)
            for held in (True, False):
                style = Style(constrain=held)
                tally = await _two_each(backend, data, queries(name), calls, style)
                each = sum(r.usage.tokens_out for r in tally.replies) / calls
                print(f"| {backend.name} | {name} | {'yes' if held else 'no'} | {calls} | "
                      f"{tally.share(tally.accepted)} | {tally.share(tally.well_formed)} | "
                      f"{tally.causes} | {each:.0f} |", flush=True)  # fmt: skip


async def _two_each(
    backend: Backend, data: Dataset, rows: Sequence[int], calls: int, style: Style
) -> Tally:
    """Ask twice for each person, first as they are, then after the first edit."""
    caller, free = Caller(backend), asyncio.Semaphore(backend.parallel)

    async def one(row: int) -> Tally:
        async with free:
            return await walk(caller, data, row, 2, style)

    tallies = await asyncio.gather(*(one(row) for row in rows[: calls // 2]))
    replies = [r for t in tallies for r in t.replies]
    return Tally(replies, [p for t in tallies for p in t.proposals])


async def prefix(llm: str, name: str, calls: int) -> None:
    """Compare the prompt tokens processed per call between the paper's order and ours."""
    data = load_dataset(name)
    row = queries(name)[0]
    print(f"{llm}, {name}, one search of {calls} calls:")
    first = 0.0
    for title, style, grow in (
        ("the paper's prompt, last 10 on the path", Style("paper"), False),
        ("ours, last 10 on the path", Style("waysout"), False),
        ("ours, one log that grows", Style("waysout"), True),
    ):
        async with connect(llm) as backend:
            tally = await walk(Caller(backend), data, row, calls, style, grow=grow)
        first = first or tally.computed
        whole = sum(r.usage.tokens_in for r in tally.replies) / calls
        print(f"  {title}: {tally.computed:.0f} of {whole:.0f} prompt tokens processed per call, "
              f"{tally.computed / first:.2f} of the paper's", flush=True)  # fmt: skip


async def throughput(llm: str, name: str, calls: int) -> None:
    """Compare the speed of several searches that share one backend with that of one."""
    data, rows = load_dataset(name), queries(name)
    alone = 0.0
    async with connect(llm) as backend:
        caller = Caller(backend)
        # Load the model, and let every slot read what all prompts begin with.
        await asyncio.gather(*(walk(caller, data, row, 1, Style()) for row in rows[-8:]))
        for count in (1, 4, 8):
            started = time.perf_counter()
            searches = (walk(caller, data, row, calls, Style()) for row in rows[:count])
            tallies = await asyncio.gather(*searches)
            seconds = time.perf_counter() - started
            tokens = sum(r.usage.tokens_out for t in tallies for r in t.replies)
            rate = count * calls / seconds
            alone = alone or rate
            print(f"{backend.name}, {count} searches: {rate:.2f} calls/s ({tokens / seconds:.0f} "
                  f"tokens/s written), {rate / alone:.2f} × one search", flush=True)  # fmt: skip


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=["parse", "prefix", "throughput"])
    parser.add_argument("--llm", default=DEFAULT)
    parser.add_argument("--data", action="append", help="data sets (default: loan, adult)")
    parser.add_argument("--calls", type=int, help="calls per figure (parse 20, prefix 30, else 6)")
    parser.add_argument("--record", help="keep the replies; what is on file is not asked again")
    args = parser.parse_args()
    names = args.data or ["loan", "adult"]
    if args.what == "parse":
        asyncio.run(parse(args.llm, names, args.calls or 20, args.record))
    elif args.what == "prefix":
        asyncio.run(prefix(args.llm, names[0], args.calls or 30))
    else:
        asyncio.run(throughput(args.llm, names[0], args.calls or 6))


if __name__ == "__main__":
    main()
