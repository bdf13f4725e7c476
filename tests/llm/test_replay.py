from __future__ import annotations

import asyncio
import gzip
import json
import lzma
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from waysout.errors import InputError, LLMError, UnavailableError
from waysout.llm.base import Backend, Constraint, Message, Reply, Request, Usage
from waysout.llm.replay import Recorder, Replay

REQUEST = Request((Message("user", "hello €"),), constraint=Constraint("root ::= [a-z]"))


class Counting(Backend):
    """Never says the same twice."""

    name = "counting"
    form = "grammar"
    parallel = 3

    def __init__(self) -> None:
        self.asked = 0

    async def complete(self, request: Request) -> Reply:
        self.asked += 1
        await asyncio.sleep(0)
        return Reply(f"reply {self.asked} \ud800", Usage(7, 3, 2), 0.5, "length", self.name)


def ask(backend: Backend, request: Request = REQUEST) -> Reply:
    return asyncio.run(backend.complete(request))


def test_what_was_recorded_is_answered_the_same(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "calls.jsonl"
    recorder = Recorder(Counting(), path)
    first = ask(recorder)
    replay = Replay.load(path)
    assert ask(replay).usage == first.usage == Usage(7, 3, 2)
    assert ask(replay).text.startswith("reply 1")
    assert ask(replay).finish == "length"
    assert (replay.name, replay.form) == ("counting", "grammar")


def test_several_recordings_of_a_model_are_one(tmp_path: Path) -> None:
    other = replace(REQUEST, draw=1)
    ask(Recorder(Counting(), tmp_path / "a.jsonl"))
    ask(Recorder(Counting(), tmp_path / "b.jsonl"), other)
    replay = Replay.load(tmp_path / "*.jsonl")
    assert ask(replay) == ask(Replay.load(tmp_path / "a.jsonl"))
    assert ask(replay, other) == ask(Replay.load(tmp_path / "b.jsonl"), other)
    with pytest.raises(InputError, match=r"\*.gz holds no recorded call"):
        Replay.load(tmp_path / "*.gz")


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_recording_may_be_packed(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "calls.jsonl"
    ask(Recorder(Counting(), path))
    packed = tmp_path / f"calls.jsonl{suffix}"
    packed.write_bytes(pack(path.read_bytes()))
    assert ask(Replay.load(packed)) == ask(Replay.load(path))
    for broken in (packed.read_bytes()[:40], b"no such thing"):
        packed.write_bytes(broken)
        with pytest.raises(InputError, match=f"cannot read the recording .*calls.jsonl{suffix}"):
            Replay.load(packed)


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, draw=1),
        replace(REQUEST, seed=1),
        replace(REQUEST, temperature=0.8),
        replace(REQUEST, k=4),
        replace(REQUEST, max_tokens=9),
        replace(REQUEST, constraint=None),
        replace(REQUEST, messages=(Message("system", "hello €"),)),
        replace(REQUEST, messages=(Message("user", "hello"),)),
    ],
    ids=["draw", "seed", "temperature", "k", "max_tokens", "constraint", "role", "prompt"],
)
def test_whatever_differs_is_another_call(tmp_path: Path, other: Request) -> None:
    path = tmp_path / "calls.jsonl"
    ask(Recorder(Counting(), path))
    with pytest.raises(LLMError, match="holds no reply of counting"):
        ask(Replay.load(path), other)


def test_nothing_on_file_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    backend = Counting()
    first = ask(Recorder(backend, path))
    again = Recorder(backend, path)
    assert ask(again).text.split()[1] == first.text.split()[1]
    ask(again, replace(REQUEST, draw=1))
    assert backend.asked == 2
    assert len(path.read_text().splitlines()) == 2


def test_a_torn_line_is_skipped_and_the_next_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    backend = Counting()
    ask(Recorder(backend, path))
    ask(Recorder(backend, path), replace(REQUEST, draw=1))
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        recorder = Recorder(Counting(), path)
        ask(recorder, replace(REQUEST, draw=2))
        kept = whole[:size].count(b"\n")
        readable = [line for line in path.read_bytes().splitlines() if _is_json(line)]
        # A cut that leaves only the line break out loses nothing.
        assert len(readable) in (kept + 1, kept + 2)
        assert ask(Replay.load(path), replace(REQUEST, draw=2)).text.startswith("reply 1")


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def test_several_writers_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"

    def write(start: int) -> None:
        recorder = Recorder(Counting(), path)
        for draw in range(start, start + 50):
            ask(recorder, replace(REQUEST, draw=draw))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(0, 200, 50)))
    replay = Replay.load(path)
    for draw in range(200):
        assert ask(replay, replace(REQUEST, draw=draw)).text.startswith("reply")


def test_a_file_that_is_no_recording_is_named(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with pytest.raises(InputError, match="cannot read the recording"):
        Replay.load(path)
    path.write_text("hello\n[]\n{}\n")
    with pytest.raises(InputError, match="no recorded call"):
        Replay.load(path)


def test_calls_to_two_models_do_not_make_one_recording(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    other = Counting()
    other.name = "other"
    ask(Recorder(Counting(), path))
    ask(Recorder(other, path))
    with pytest.raises(InputError, match="several models: counting, other"):
        Replay.load(path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match="cannot record to"):
        ask(Recorder(Counting(), tmp_path / "file" / "calls.jsonl"))


def test_the_place_is_tried_before_anybody_is_asked(tmp_path: Path) -> None:
    backend = Counting()
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot read the recording"):
        ask(Recorder(backend, tmp_path / "folder"))
    foreign = tmp_path / "letter.txt"
    foreign.write_text("Dear Sir,")
    with pytest.raises(InputError, match="is not a recording"):
        ask(Recorder(backend, foreign))
    assert foreign.read_text() == "Dear Sir,"
    assert backend.asked == 0


def test_a_reply_that_cannot_be_written_counts_and_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Counting()
    recorder = Recorder(backend, tmp_path / "calls.jsonl")
    ask(recorder)
    monkeypatch.setattr("waysout.llm.replay.os.write", lambda handle, data: len(data) // 2)
    paid = ask(recorder, replace(REQUEST, draw=1))
    assert paid.text.startswith("reply 2")
    assert ask(recorder, replace(REQUEST, draw=1)) == paid
    with pytest.raises(UnavailableError, match="disk is full"):
        ask(recorder, replace(REQUEST, draw=2))
    assert backend.asked == 2


def test_the_same_request_at_the_same_time_is_asked_once(tmp_path: Path) -> None:
    backend = Counting()
    recorder = Recorder(backend, tmp_path / "calls.jsonl")

    async def thrice() -> list[Reply]:
        return list(await asyncio.gather(*(recorder.complete(REQUEST) for _ in range(3))))

    assert len({reply.text for reply in asyncio.run(thrice())}) == 1
    assert backend.asked == 1
    assert asyncio.run(thrice())[0].text.startswith("reply 1")


@pytest.mark.parametrize(
    "line",
    ['{"waysout_call": 1}', '{"waysout_call": 1, "reply": 3, "key": "k", "model": "m"}',
     '{"waysout_call": 1, "reply": {"text": "x", "usage": {"more": 1}}, "key": "", "model": ""}'],
    ids=["empty", "number", "unknown-field"],
)  # fmt: skip
def test_a_line_that_is_half_a_call_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "calls.jsonl"
    ask(Recorder(Counting(), path))
    with path.open("a") as file:
        file.write("[" * 100_000 + "\n" + line + "\n")
    with pytest.raises(InputError, match="line 3: not a whole call"):
        Replay.load(path)
