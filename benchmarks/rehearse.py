"""A run of plans with a large LLM, rehearsed: over HTTP, at its size, without the LLM.

    python benchmarks/rehearse.py paper --queries 1 --ms 400

A stand-in server answers under the name of the model, after a fixed time, with replies that
another LLM wrote in answer to the same prompts (``benchmarks/results``); no figure of a search made
with it is one of the model that it stands in for. The command is killed (``kill -9``) after some
calls, and run again; a third time, there must be nothing left to ask. All the while the server
turns some requests away and drops others. Results go to a folder that is thrown away.

It tells how many calls were paid twice, and how many replies a second this side of the line takes:
with ``--ms 0 --faults 0`` there is nothing else to wait for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import lzma
import random
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batch_server import Connection, Script, _answer

REPLIES = Path(__file__).parent / "results" / "replies-llm-budget-qwen2.5-coder-1.5b.jsonl.xz"
MODEL = "google/gemma-3-12b-it"
STAND_IN = "stand-in, no language model"
FEATURE = re.compile(r"FEATURE\W+([\w-]+)")
EDIT = re.compile(
    r"FEATURE\W+([\w-]+).*?\nVALUE\W*=\W*\"?([^\n\"]*).*?(?:\nREASONING\W*([^\n]*)|$)", re.S
)
ASKED = re.compile(r"(?:Suggest|exactly) (\d+) ")
PIECES = 8  # in which a stream arrives
TABLES = ("loan", "adult", "credit", "heloc")


@dataclass(frozen=True)
class Kept:
    """A reply on file, and how many tokens its LLM counted."""

    text: str
    tokens: int


def kept_replies(file: Path) -> dict[tuple[str, bool], list[Kept]]:
    """Return the replies by data set, and by whether they have several candidates."""
    from waysout.datasets.registry import card

    names = {table: {feature.name for feature in card(table).schema.features} for table in TABLES}
    found: dict[tuple[str, bool], list[Kept]] = defaultdict(list)
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            reply = json.loads(line)["reply"]
            named = FEATURE.findall(reply["text"])
            tables = [t for t in TABLES if named and names[t].issuperset(named)]
            if len(tables) == 1:
                kept = Kept(reply["text"], reply["usage"]["tokens_out"])
                found[tables[0], len(named) > 1].append(kept)
    return dict(found)


# The server -------------------------------------------------------------------------------------


@dataclass
class StandIn(Script):
    """Answers with replies on file to prompts of the same table and as many candidates."""

    faults: float = 0.0
    kept: dict[tuple[str, bool], list[Kept]] = field(default_factory=dict)
    answered: Counter[int] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    prompts: list[int] = field(default_factory=list)
    tokens_out: int = 0

    def __post_init__(self) -> None:
        from waysout.datasets.registry import card

        self.chance = random.Random(0)
        self.names = {table: {f.name for f in card(table).schema.features} for table in TABLES}

    def table_of(self, prompt: str) -> str:
        """Return the table that most of a prompt's words are features of."""
        words = set(re.findall(r"[\w-]+", prompt))
        return max(TABLES, key=lambda t: len(words & self.names[t]) / len(self.names[t]))

    def write(self, body: bytes) -> list[bytes]:
        """Return the answer to a request, in the pieces in which it is sent."""
        asked = json.loads(body)
        prompt = asked["messages"][-1]["content"]
        several = int(ASKED.findall(prompt)[-1]) > 1
        choices = self.kept[self.table_of(prompt), several]
        reply = choices[zlib.crc32(body) % len(choices)]
        text = _json(reply.text) if "response_format" in asked else reply.text
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": reply.tokens}
        self.prompts.append(usage["prompt_tokens"])
        self.tokens_out += reply.tokens
        if not asked.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": text},
                      "finish_reason": "stop"}  # fmt: skip
            whole = {"choices": [choice], "usage": usage, "model": STAND_IN}
            return [_answer(b"application/json", json.dumps(whole).encode())]
        # One event for each token, as servers send them.
        size = max(1, len(text) // max(1, reply.tokens))
        parts = [text[at : at + size] for at in range(0, len(text), size)]
        events = [{"choices": [{"index": 0, "delta": {"content": part}}]} for part in parts]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        events.append({"choices": [], "usage": usage, "model": STAND_IN})
        lines = [b"data: %s\n\n" % json.dumps(event).encode() for event in events]
        answer = _answer(b"text/event-stream", b"".join([*lines, b"data: [DONE]\n\n"]))
        step = -(-len(answer) // PIECES)
        return [answer[at : at + step] for at in range(0, len(answer), step)]


def _json(text: str) -> str:
    """Write the edits of a reply as a server held to our schema does."""
    edits = [{"feature": name, "value": _number(value), "reasoning": (why or "")[:60]}
             for name, value, why in EDIT.findall(text)]  # fmt: skip
    return json.dumps({"candidates": edits})


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _error(status: int, headers: str = "") -> bytes:
    body = json.dumps({"error": {"message": "the stand-in is overloaded"}}).encode()
    return (f"HTTP/1.1 {status} Rehearsed\r\nContent-Type: application/json\r\n{headers}"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body  # fmt: skip


class Line(Connection):
    """A connection on which requests may also be turned away, dropped or cut off."""

    script: StandIn

    def _take(self, body: bytes) -> None:
        script, stats = self.script, self.script.stats
        now = time.monotonic()
        stats.first = stats.first or now
        stats.requests += 1
        stats.most_at_once = max(stats.most_at_once, stats.requests - stats.replies)
        fault = script.chance.choice(("429", "503", "dropped", "cut off"))
        if script.chance.random() >= script.faults:
            self._later(script.write(body), zlib.crc32(body))
            return
        script.failed[fault] += 1
        stats.replies += 1
        if fault == "429":
            self.transport.write(_error(429, "Retry-After: 1\r\n"))
        elif fault == "503":
            self.transport.write(_error(503))
        elif fault == "dropped":
            self.transport.abort()
        else:
            self.transport.write(script.write(body)[0])
            self.transport.abort()

    def _later(self, pieces: Sequence[bytes], key: int) -> None:
        for place, piece in enumerate(pieces, 1):
            last = place == len(pieces)
            delay = self.script.seconds * place / len(pieces)
            self.loop.call_later(delay, self._send, piece, key if last else None)

    def _send(self, piece: bytes, key: int | None) -> None:
        if key is not None:
            self.script.stats.replies += 1
        if self.transport.is_closing():
            return
        self.transport.write(piece)
        if key is not None:
            self.script.answered[key] += 1
            self.script.stats.last = time.monotonic()

    def _tell(self) -> None:
        script = self.script
        told = {**vars(script.stats), "different": len(script.answered),
                "answered": script.answered.total(), "failed": script.failed,
                "tokens_in": sum(script.prompts), "longest": max(script.prompts, default=0),
                "tokens_out": script.tokens_out}  # fmt: skip
        self.transport.write(_answer(b"application/json", json.dumps(told).encode()))


async def serve(script: StandIn, port: int) -> None:
    """Serve until the end of the process; the port is said on the first line of the output."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Line(script), "127.0.0.1", port, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# The rehearsal ----------------------------------------------------------------------------------


@contextmanager
def stand_in(ms: float, faults: float) -> Iterator[int]:
    """Run the server in a process of its own, and yield its port."""
    command = [sys.executable, __file__, "--serve", "--ms", str(ms), "--faults", str(faults)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def seen(port: int) -> dict[str, Any]:
    """Ask the server what it has seen."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/stats", timeout=30) as answer:
        return dict(json.load(answer))


def bench(words: Sequence[str], port: int, kill_after: int = 0) -> tuple[int, float, float]:
    """Run a command, and return its exit code, its seconds and those of the processor."""
    print("$ waysout", shlex.join(words), flush=True)
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen([sys.executable, "-m", "waysout", *words]) as child:
        while kill_after and child.poll() is None and seen(port)["answered"] < kill_after:
            time.sleep(0.2)
        if kill_after:
            child.kill()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = sum(getattr(after, n) - getattr(before, n) for n in ("ru_utime", "ru_stime"))
    return child.returncode, time.monotonic() - began, used


def rehearse(args: argparse.Namespace, folder: Path) -> None:
    """Run the plans, killed once, and print what it took."""
    from waysout.bench.results import Results
    from waysout.bench.status import llm_name

    only = [word for one in args.only for word in ("--only", one)]
    with stand_in(args.ms, args.faults) as port:
        llm = f"openai:{MODEL}@http://127.0.0.1:{port}/v1?{args.options}"
        words = ["bench", "run", *args.plan, "--llm", llm,
                 "--queries", str(args.queries), *only, "--results", str(folder)]  # fmt: skip
        if args.kill_after:
            bench(words, port, args.kill_after)
            time.sleep(args.ms / 1000 + 1)  # what was in flight is answered, to nobody
            with Results.read(folder) as results:
                on_file, done = results.replies()[llm_name(llm)], len(results.done())
            told = seen(port)
            print(f"killed: {told['answered']:,} requests answered, {on_file:,} replies and "
                  f"{done:,} searches on file")  # fmt: skip
        first = seen(port)
        code, seconds, used = bench(words, port)
        told = seen(port)
        replies = told["answered"] - first["answered"]
        print(f"exit code {code}; {replies:,} replies in {seconds:.0f} s "
              f"({replies / seconds:.1f} a second), {1000 * used / max(1, replies):.1f} ms of "
              f"processor time each; at most {told['most_at_once']} at once")  # fmt: skip
        print(f"turned away or dropped: {told['failed']}; answered twice: "
              f"{told['answered'] - told['different']:,} of {told['answered']:,} (those in flight "
              "at the kill, and what `cost` asks apart)")  # fmt: skip
        print(f"prompts of {told['tokens_in'] / told['requests']:.0f} tokens, the longest "
              f"{told['longest']} (a quarter of their characters)")  # fmt: skip
        bench(words, port)
        print(f"once more: {seen(port)['requests'] - told['requests']} requests")
        kept = ["--llm", llm, "--results", str(folder)]
        bench(["bench", "status", *args.plan, *kept], port)
        bench(["bench", "estimate", *args.plan, *kept], port)


def main() -> None:
    """Rehearse, or be the server."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("plan", nargs="*", help="plans, as for `waysout bench run`")
    parser.add_argument("--queries", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], help="as for `waysout bench run`")
    parser.add_argument(
        "--options", default="parallel=256&patience=900", help="of the connection string"
    )
    parser.add_argument("--ms", type=float, default=400.0, help="until a reply is complete")
    parser.add_argument("--faults", type=float, default=0.02, help="the share of failed requests")
    parser.add_argument("--kill-after", type=int, default=1000, help="replies; 0: never")
    parser.add_argument("--serve", action="store_true", help="be the server alone")
    parser.add_argument("--port", type=int, default=0, help="of the server alone")
    args = parser.parse_args()
    if args.serve:
        script = StandIn([], args.ms / 1000, faults=args.faults, kept=kept_replies(REPLIES))
        asyncio.run(serve(script, args.port))
        return
    with tempfile.TemporaryDirectory() as folder:
        rehearse(args, Path(folder))


if __name__ == "__main__":
    main()
