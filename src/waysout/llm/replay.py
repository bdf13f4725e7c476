"""Recordings: every call on file, and a backend that answers from the file.

A recording is JSON lines, one call each: it can be read, compared and kept under version control. A
line is written in one piece when its reply arrives, so a process that dies loses no reply; the torn
line it may leave behind is skipped.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from waysout.errors import InputError, LLMError, UnavailableError
from waysout.json_text import read_json
from waysout.llm.base import Backend, Form, Reply, Request, Usage, note_sent

VERSION = 1
_HEAD = b'{"waysout_call"'
# A recording may be kept packed.
_UNPACK: Mapping[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".xz": lzma.decompress,
}


def _calls(path: Path) -> Iterator[dict[str, Any]]:
    try:
        data = path.read_bytes()
        if path.suffix in _UNPACK:
            data = _UNPACK[path.suffix](data)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read the recording {path}: {reason}") from None
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            call = read_json(line)
        except (ValueError, RecursionError):
            continue  # torn by a kill
        if not (isinstance(call, dict) and call.get("waysout_call") == VERSION):
            continue
        try:
            table = call["reply"]
            reply = Reply(**(table | {"usage": Usage(**table["usage"])}))
            yield call | {"reply": reply, "key": str(call["key"]), "model": str(call["model"]),
                          "form": call["form"]}  # fmt: skip
        except (KeyError, TypeError):
            raise InputError(f"{path}, line {number}: not a whole call; take it out") from None


def _first_replies(calls: Iterable[dict[str, Any]]) -> dict[str, Reply]:
    found: dict[str, Reply] = {}
    for call in calls:
        found.setdefault(call["key"], call["reply"])
    return found


class Replay(Backend):
    """Answers from a recording what was asked there, and nothing else."""

    parallel = 16

    def __init__(self, path: Path, name: str, form: Form, replies: Mapping[str, Reply]) -> None:
        self.path = path
        # The name is that of the model that answered, so that a replay shows whose words it has.
        self.name = name
        self.form = form
        self._replies = replies

    @classmethod
    def load(cls, path: str | Path) -> Replay:
        """Read a recording of one model, or several whose names fit a pattern (``replies-*.gz``).

        What a plan asks may be spread over the recordings of the plans that it shares arms with.
        """
        file = Path(path)
        several = "*" in file.name and not file.exists()
        files = sorted(file.parent.glob(file.name)) if several else [file]
        calls = [call for each in files for call in _calls(each)]
        if not calls:
            raise InputError(f"{path} holds no recorded call")
        models = {call["model"] for call in calls}
        if len(models) > 1:
            raise InputError(f"{path} holds calls to several models: {', '.join(sorted(models))}")
        return cls(Path(path), models.pop(), calls[0]["form"], _first_replies(calls))

    async def complete(self, request: Request) -> Reply:
        """Return the recorded reply, with the usage and latency it had then."""
        found = self._replies.get(request.key(self.name))
        if found is None:
            raise LLMError(
                f"{self.path} holds no reply of {self.name} to this request (draw {request.draw}): "
                "the prompt or a parameter differs from what was recorded"
            )
        return found


class Recorder(Backend):
    """Passes requests on and records every reply; what is on file is not asked again."""

    def __init__(self, backend: Backend, path: str | Path) -> None:
        self.backend = backend
        self.name, self.form, self.parallel = backend.name, backend.form, backend.parallel
        self.notes_sent = backend.notes_sent
        self.path = Path(path)
        self._asking: dict[str, asyncio.Lock] = {}
        self._full: UnavailableError | None = None

    @cached_property
    def _replies(self) -> dict[str, Reply]:
        """The replies on file. The file is opened now, before any reply is paid for."""
        if not self.path.exists():
            self._append(b"")
            return {}
        calls = list(_calls(self.path))
        data = self.path.read_bytes()
        if data[: len(_HEAD)] != _HEAD[: len(data)]:
            raise InputError(f"{self.path} is not a recording: give another file")
        # A torn line is ended, so that the next one does not become part of it.
        self._append(b"" if data.endswith(b"\n") or not data else b"\n")
        return _first_replies(calls)

    def _append(self, data: bytes) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # One write to a file opened for appending: lines of several writers never mix.
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                written = os.write(handle, data)
            finally:
                os.close(handle)
        except OSError as error:
            raise UnavailableError(f"cannot record to {self.path}: {error.strerror}") from None
        if written < len(data):
            raise UnavailableError(f"cannot record to {self.path}: the disk is full")

    async def complete(self, request: Request) -> Reply:
        """Return the reply on file, else ask and file it."""
        key = request.key(self.name)
        try:
            async with self._asking.setdefault(key, asyncio.Lock()):
                if key in self._replies:
                    note_sent()  # it is charged like any other, and so is it counted
                else:
                    if self._full is not None:
                        raise self._full
                    reply = self._replies[key] = await self.backend.complete(request)
                    asked = asdict(request)
                    del asked["menu"]
                    call = {"waysout_call": VERSION, "key": key, "model": self.name}
                    call |= {"form": self.form, "request": asked, "reply": asdict(reply)}
                    line = json.dumps(call, ensure_ascii=False) + "\n"
                    try:
                        self._append(line.encode(errors="backslashreplace"))
                    except UnavailableError as error:
                        self._full = error  # this reply was paid for and counts; it is the last
                return self._replies[key]
        finally:
            self._asking.pop(key, None)

    async def aclose(self) -> None:
        """Close the backend."""
        await self.backend.aclose()
