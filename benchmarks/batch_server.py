"""A scripted LLM server in a process of its own: every chat completion after a fixed time.

    python benchmarks/batch_server.py REPLIES.json --ms 50 [--log REQUESTS]

It takes next to no time itself, so that whoever is measured with it is the one who is measured.
Which of the replies is given depends on the request alone. ``GET /stats`` tells what it has seen,
and a log holds each request as it came, a line each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
import urllib.request
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

USAGE = {"prompt_tokens": 600, "completion_tokens": 120, "total_tokens": 720}
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"


@dataclass
class Stats:
    """What a server, or several, have seen; the times are of the clock that never goes back."""

    requests: int = 0
    replies: int = 0
    most_at_once: int = 0
    first: float = 0.0
    last: float = 0.0

    @classmethod
    def of_all(cls, several: Sequence[Stats]) -> Stats:
        """Add up what several servers have seen."""
        asked = [stats for stats in several if stats.requests] or [cls()]
        return cls(
            requests=sum(stats.requests for stats in several),
            replies=sum(stats.replies for stats in several),
            most_at_once=sum(stats.most_at_once for stats in several),
            first=min(stats.first for stats in asked),
            last=max(stats.last for stats in asked),
        )

    @property
    def seconds(self) -> float:
        """From the first request to the last reply."""
        return self.last - self.first


# The server -------------------------------------------------------------------------------------


@dataclass
class Script:
    """The replies as they go over the wire, one by one or as a stream; and what was seen."""

    texts: Sequence[str]
    seconds: float
    stats: Stats = field(default_factory=Stats)
    log: BinaryIO | None = None

    def __post_init__(self) -> None:
        self.whole = [_answer(b"application/json", _whole(text)) for text in self.texts]
        self.streamed = [_answer(b"text/event-stream", _streamed(text)) for text in self.texts]

    def reply(self, body: bytes) -> bytes:
        """Return the answer to a request."""
        streams = b'"stream": true' in body or b'"stream":true' in body
        answers = self.streamed if streams else self.whole
        return answers[zlib.crc32(body) % len(answers)]


def _answer(kind: bytes, body: bytes) -> bytes:
    return _HEAD % (kind, len(body)) + body


def _whole(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps({"choices": [choice], "usage": USAGE, "model": "scripted"}).encode()


def _streamed(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": "stop"}
    events = [{"choices": [choice]}, {"choices": [], "usage": USAGE, "model": "scripted"}]
    lines = [*(json.dumps(event).encode() for event in events), b"[DONE]"]
    return b"".join(b"data: %s\n\n" % line for line in lines)


class Connection(asyncio.Protocol):
    """One connection that is kept, with one request on it at a time."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.come = b""
        self.loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take in a request, and answer it when the time has come."""
        self.come = self.come + data if self.come else data
        at = self.come.find(b"\r\n\r\n")
        if at < 0:
            return
        body = at + 4
        if self.come.startswith(b"GET"):
            self._tell()
        elif len(self.come) - body >= _length(self.come[:at]):
            self._take(self.come[body:])
        else:
            return
        self.come = b""

    def _take(self, body: bytes) -> None:
        stats, now = self.script.stats, time.monotonic()
        if self.script.log is not None:
            self.script.log.write(body + b"\n")
        stats.first = stats.first or now
        stats.requests += 1
        stats.most_at_once = max(stats.most_at_once, stats.requests - stats.replies)
        self.loop.call_later(self.script.seconds, self._reply, self.script.reply(body))

    def _reply(self, answer: bytes) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(answer)
        self.script.stats.replies += 1
        self.script.stats.last = time.monotonic()

    def _tell(self) -> None:
        body = json.dumps(vars(self.script.stats)).encode()
        self.transport.write(_answer(b"application/json", body))


def _length(head: bytes) -> int:
    _, _, rest = head.lower().partition(b"content-length:")
    return int(rest.partition(b"\r\n")[0] or 0)


async def serve(script: Script, port: int) -> None:
    """Serve until the end of the process; the port is said on the first line of the output."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(Connection, script), "127.0.0.1", port, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# Its users --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Servers:
    """Servers that run."""

    ports: Sequence[int]

    @property
    def llm(self) -> str:
        """The connection string of all of them."""
        return "openai:scripted@" + ",".join(f"http://127.0.0.1:{port}/v1" for port in self.ports)

    def stats(self) -> Stats:
        """Ask them what they have seen."""
        return Stats.of_all([_stats(port) for port in self.ports])


def _stats(port: int) -> Stats:
    # No proxy of the environment may stand between us and this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/stats", timeout=10) as answer:
        return Stats(**json.load(answer))


@contextmanager
def serving(
    replies: Path, ms: float, servers: int = 1, log: Path | None = None
) -> Iterator[Servers]:
    """Run servers, each in a process of its own."""
    command = [sys.executable, __file__, str(replies), "--ms", str(ms)]
    command += ["--log", str(log)] if log else []
    with ExitStack() as stack:
        ports = []
        for _ in range(servers):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stdout is not None
            ports.append(int(stack.enter_context(process.stdout).readline()))
        yield Servers(ports)


def main() -> None:
    """Be a server."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("replies", type=Path, help="a JSON list of texts")
    parser.add_argument("--ms", type=float, default=50.0)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, help="a file for the requests")
    args = parser.parse_args()
    # Unbuffered, and appended to: whoever reads it sees a request before it is answered.
    log = args.log.open("ab", buffering=0) if args.log else None
    script = Script(json.loads(args.replies.read_text("utf-8")), args.ms / 1000, log=log)
    asyncio.run(serve(script, args.port))


if __name__ == "__main__":
    main()
