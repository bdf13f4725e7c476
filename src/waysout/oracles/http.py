"""A model behind an address: rows go out as JSON in batches, answers come back.

The standard library's client will do: the requests are plain and synchronous, and there is nothing
to install. What is asked and understood is described in docs/search.md ("Any model").
"""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import json
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from waysout.domain.schema import Schema
from waysout.errors import OracleError
from waysout.fetch import trusted_certificates
from waysout.json_text import read_json
from waysout.llm.keys import is_loopback
from waysout.oracles.adapt import ModelOracle
from waysout.oracles.adapter import Adapter, Output
from waysout.oracles.inputs import InputLayout, Inputs, places

KEY = "WAYSOUT_ORACLE_KEY"
"""The environment variable that holds the bearer key."""
ANSWERS = ("predictions", "probabilities", "scores", "outputs", "answers")
"""Under which names the answers may stand in a reply."""

_BUSY = (429, 502, 503, 504)
_FIRST_WAIT = 0.5
_QUOTED = 200


class _Failure(Exception):
    """No answer came this time, and another attempt may help."""

    def __init__(self, reason: str, wait: float | None = None, *, at_once: bool = False) -> None:
        super().__init__(reason)
        self.wait, self.at_once = wait, at_once


class HttpModel:
    """Asks a server for the answers to rows. It may be used from several threads.

    A request has at most ``batch`` rows and ``seconds`` of time; with what is tried again, at most
    ``attempts`` times, it takes ``deadline`` seconds at most. ``requests`` counts the batches sent,
    ``attempts`` what was sent for them, and ``rows`` the rows that were answered.
    """

    def __init__(
        self,
        url: str,
        *,
        batch: int = 256,
        seconds: float = 30.0,
        deadline: float = 120.0,
        most_attempts: int = 4,
        most_bytes: int = 16 * 2**20,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        try:
            parts = urlsplit(url)
            port, known = parts.port, parts.scheme in ("http", "https") and parts.hostname
        except ValueError:
            known = None
        if not known:
            raise OracleError(f"{url!r:.200} is no address of the form http://HOST[:PORT]/PATH")
        if parts.username is not None:
            raise OracleError(
                f"the address of {parts.hostname} holds a name or a password: leave it out, and "
                f"set {KEY} in the environment"
            )
        self.name = f"{parts.scheme}://{parts.netloc}{parts.path}"  # a query may hold secrets
        self.batch, self.seconds, self.deadline = batch, seconds, deadline
        self.most_attempts, self.most_bytes = most_attempts, most_bytes
        self.requests = self.attempts = self.rows = 0
        self._host, self._port, self._tls = known, port, parts.scheme == "https"
        path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
        query = quote(parts.query, safe="=&%+/:?@!$,;~-._")
        self._path = f"{path}?{query}" if query else path
        self._under = "rows"
        if parts.path.endswith(":predict"):  # KServe, TensorFlow Serving
            self._under = "instances"
        elif parts.path.endswith("/invocations"):  # MLflow
            self._under = "dataframe_records"
        key = os.environ.get(KEY, "")
        self._key = key if self._tls or is_loopback(url) else ""
        self.notes = (f"{KEY} was not sent: the address is plain http",) if key != self._key else ()
        if not key.isascii() or any(c.isspace() or not c.isprintable() for c in key):
            raise OracleError(f"{KEY} holds characters that cannot be in a key: set it again")
        self._sleep = sleep
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._gone = self._gave_scores = False

    def __repr__(self) -> str:
        return f"HttpModel({self.name!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without connections: another process makes its own."""
        return {k: v for k, v in vars(self).items() if k not in ("_idle", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _idle=[], _lock=threading.Lock())

    def predict(self, records: Sequence[Mapping[str, Any]]) -> Output:
        """Return the server's answers to some rows."""
        values: list[Any] = []
        classes: tuple[Any, ...] | None = None
        for start in range(0, len(records), self.batch):
            part = records[start : start + self.batch]
            found, said, under = self._understood(self._exchange(part), len(part))
            if values and said != classes:
                raise OracleError(f"{self.name} named the classes {classes} first, and now {said}")
            values, classes = values + found, said
            self._gave_scores = self._gave_scores or under in ("probabilities", "scores")
        self._gave_scores = self._gave_scores or any(isinstance(v, float) for v in values)
        if self._gave_scores and all(type(v) is int for v in values):
            values = [float(v) for v in values]  # some write the probability 1.0 as 1
        return Output(values, classes)

    # What comes back ---------------------------------------------------------------------------

    def _understood(self, body: bytes, count: int) -> tuple[list[Any], tuple[Any, ...] | None, str]:
        """Return the answers in a reply, the classes if it names them, and the answers' name."""
        try:
            reply = read_json(body, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            told = str(error) if isinstance(error, _NoNumber) else "not JSON"
            raise self._wrong(f"the reply is {told}", body) from None
        classes, under = None, ""
        if isinstance(reply, dict):
            under = next((name for name in ANSWERS if name in reply), "")
            if not under:
                raise self._wrong(f"the reply has none of {', '.join(ANSWERS)}", body)
            named = reply.get("classes")
            if isinstance(named, list) and named:
                classes = tuple(named)
            reply = reply[under]
        if not isinstance(reply, list):
            raise self._wrong("the answers are no list", body)
        if len(reply) != count:
            raise self._wrong(f"{count} rows were asked, and {len(reply)} answered", body)
        plain = (str, int, float, bool)
        for answer in reply:
            cells = answer if isinstance(answer, list) and answer else [answer]
            if not all(isinstance(cell, plain) for cell in cells):
                raise self._wrong(
                    "an answer is a probability, a label or a list of class probabilities, not "
                    f"{json.dumps(answer):.60}",
                    body,
                )
        return reply, classes, under

    def _wrong(self, what: str, body: bytes) -> OracleError:
        return OracleError(f"{self.name}: {what}; what came back: {self._quoted(body)}")

    def _quoted(self, body: bytes) -> str:
        text = body[: 4 * _QUOTED].decode("utf-8", "replace")
        text = text.replace(self._key, "…") if self._key else text
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return repr(text[:_QUOTED]) if text else "nothing"

    # How it is sent ----------------------------------------------------------------------------

    def _exchange(self, records: Sequence[Mapping[str, Any]]) -> bytes:
        """Send one batch, again where that may help, and return the reply."""
        body = json.dumps({self._under: records}, allow_nan=False).encode()
        ends = time.monotonic() + self.deadline
        # A server that is gone is not waited for again and again by each search.
        most = 1 if self._gone else self.most_attempts
        with self._lock:
            self.requests += 1
        for attempt in range(most):
            with self._lock:
                self.attempts += 1
            try:
                reply = self._send(body, min(self.seconds, ends - time.monotonic()))
            except _Failure as failure:
                left = ends - time.monotonic()
                usual = 0.0 if failure.at_once else _FIRST_WAIT * 2**attempt * random.uniform(1, 2)
                wait = usual if failure.wait is None else failure.wait
                if attempt + 1 < most and wait < left:
                    self._sleep(wait)
                    continue
                self._gone = True
                tried = "1 attempt" if attempt == 0 else f"{attempt + 1} attempts"
                asked = f" (it asks to wait {wait:g} s)" if failure.wait is not None else ""
                raise OracleError(
                    f"{self.name} gives no answer after {tried}: {failure}{asked}"
                ) from None
            with self._lock:
                self._gone, self.rows = False, self.rows + len(records)
            return reply
        raise AssertionError  # the last attempt returns or raises

    def _send(self, body: bytes, seconds: float) -> bytes:
        """Send one request and return the body of a good reply."""
        with self._connected(seconds) as (connection, expired, reused):
            headers = {"Content-Type": "application/json", "Accept": "application/json",
                       "User-Agent": "waysout"}  # fmt: skip
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            try:
                connection.request("POST", self._path, body, headers)
                response = connection.getresponse()
                reply = response.read(self.most_bytes + 1)
                if expired.is_set() or (response.length and len(reply) <= self.most_bytes):
                    raise ConnectionError("the reply was cut short")
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if expired.is_set() or isinstance(error, TimeoutError):
                    raise _Failure(f"no answer in {seconds:.3g} s") from None
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise OracleError(f"{self.name}: {error.verify_message}") from None
                # A server may hang up on a connection that was idle: that says nothing about it.
                told = f"{type(error).__name__}: {error}".rstrip(": ")
                raise _Failure(told, at_once=reused) from None
            if len(reply) > self.most_bytes:
                connection.close()
                raise OracleError(
                    f"{self.name} answered with more than {self.most_bytes:,} bytes, for "
                    f"{len(body):,} bytes of rows: that can be no answer"
                )
            self._check(response, reply)
            return reply

    def _check(self, response: http.client.HTTPResponse, reply: bytes) -> None:
        status = response.status
        if status in _BUSY:
            told = f"it answered {status} {response.reason}"
            raise _Failure(told, _retry_after(response.headers.get("Retry-After")))
        if 300 <= status < 400:
            to = self._quoted(response.headers.get("Location", "").encode())
            raise OracleError(
                f"{self.name} answered {status}, a redirect to {to}: redirects are not followed, "
                "name the address itself"
            )
        if not 200 <= status < 300:
            raise OracleError(
                f"{self.name} answered {status} {response.reason}: {self._quoted(reply)}"
            )

    @contextlib.contextmanager
    def _connected(
        self, seconds: float
    ) -> Iterator[tuple[http.client.HTTPConnection, threading.Event, bool]]:
        """Lend an open connection, which is cut when the time is up, and keep it if it is good.

        The timeout of a socket starts anew with each byte, so that it alone limits nothing.
        """
        if seconds <= 0:
            raise _Failure(f"no answer in {self.deadline:g} s")
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        connection = idle or self._new()
        connection.timeout, reused = seconds, connection.sock is not None
        expired = threading.Event()
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(seconds)
        except ssl.SSLCertVerificationError as error:
            connection.close()
            raise OracleError(f"{self.name}: {error.verify_message}") from None
        except OSError as error:
            connection.close()
            raise _Failure(f"no connection: {error}") from None
        timer = threading.Timer(seconds, _cut, (connection.sock, expired))
        timer.daemon = True
        timer.start()
        try:
            yield connection, expired, reused
        except BaseException:
            connection.close()
            raise
        finally:
            timer.cancel()
        with self._lock:
            self._idle.append(connection)

    def _new(self) -> http.client.HTTPConnection:
        if self._tls:
            return http.client.HTTPSConnection(
                self._host, self._port, context=trusted_certificates()
            )
        return http.client.HTTPConnection(self._host, self._port)


class _NoNumber(ValueError):
    """A constant of JavaScript's that is no JSON."""


def _no_number(constant: str) -> Any:
    raise _NoNumber(f"no JSON, and holds {constant}")


def _cut(sock: socket.socket, expired: threading.Event) -> None:
    expired.set()
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _retry_after(header: str | None) -> float | None:
    """Read how many seconds a server asks to wait: a number, or a date."""
    if not header:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        with contextlib.suppress(ValueError, TypeError):
            return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    return None


class HttpOracle(ModelOracle):
    """An oracle behind an address."""

    model: HttpModel
    remote = True

    @property
    def requests(self) -> int:
        """How many batches of rows were sent, each counted once."""
        return self.model.requests

    @property
    def attempts(self) -> int:
        """How many requests were made for them, with those that were tried again."""
        return self.model.attempts

    @property
    def rows(self) -> int:
        """How many rows the server has answered."""
        return self.model.rows


def adapter(model: HttpModel, schema: Schema, inputs: Inputs) -> Adapter:
    """Adapt a server: it gets the table's own values by their columns' names."""
    if inputs not in ("auto", "raw", "dicts"):
        raise OracleError(
            f"a server gets the table's own values, and inputs={inputs!r} asks for others: have it "
            "encode them"
        )
    layout = InputLayout.plain("dicts", places(schema))
    return Adapter(model.predict, (layout,), gives="either", notes=model.notes)
