"""HTTP to one address: what is sent, and how much of a response is read.

A server that is asked over plain HTTP and without a proxy gets a connection of our own (`http1`),
which costs a tenth of the time of a full client. Certificates and proxies are left to httpx2.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from waysout.errors import MissingExtra
from waysout.llm.base import Limits, note_sent
from waysout.llm.keys import is_loopback, is_openai

_T = TypeVar("_T")

# A token of four letters travels in some 250 bytes of JSON.
_WIRE_BYTES_PER_TEXT_BYTE = 64


class TransportError(Exception):
    """Something went wrong between a request and the end of its response."""


def no_connection(limits: Limits) -> TransportError:
    """Return the error for a connection that was not made in time."""
    return TransportError(f"no connection in {limits.connect:g} s")


def silence(limits: Limits) -> TransportError:
    """Return the error for a server that sent nothing for too long."""
    return TransportError(f"no sign of life for {limits.silence:g} s")


class HttpResponse:
    """A response whose head has arrived; its body is read piece by piece, up to ``max_bytes``."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        read: Callable[[], Awaitable[bytes]],
        max_bytes: int,
    ) -> None:
        self.status = status
        self.headers = headers
        """By lower-case name."""
        self.truncated = False
        """Whether the body is longer than ``max_bytes``, and its rest is not read."""
        self._read, self._left = read, max_bytes

    async def read(self) -> bytes:
        """Return the next piece of the body; nothing at its end, and beyond ``max_bytes``."""
        piece = b"" if self.truncated else await self._read()
        self.truncated = self.truncated or len(piece) > self._left
        piece = piece[: self._left]
        self._left -= len(piece)
        return piece


class Transport(ABC):
    """The connections to one address, within one event loop."""

    @abstractmethod
    def send(self, path: str, body: bytes | None) -> AbstractAsyncContextManager[HttpResponse]:
        """Send a request (a GET without a body); raises `TransportError`."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close all connections."""


class PerLoop(Generic[_T]):
    """One value for each event loop that uses a backend: connections belong to their loop."""

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make = make
        self._values: dict[asyncio.AbstractEventLoop, _T] = {}

    def get(self) -> _T:
        """Return the value of the running loop, making it on first use."""
        loop = asyncio.get_running_loop()
        for old in [*self._values]:  # a copy: another thread may have its own loop here
            if old.is_closed():
                self._values.pop(old, None)
        if loop not in self._values:
            self._values[loop] = self._make()
        return self._values[loop]

    def pop(self) -> _T | None:
        """Remove and return the value of the running loop, if there is one."""
        return self._values.pop(asyncio.get_running_loop(), None)


def open_transport(url: str, key: str, limits: Limits) -> Transport:
    """Return the transport for an address; nothing is contacted yet."""
    from waysout.llm.openai.http1 import Http1Transport

    headers, max_bytes = _headers(url, key), limits.bytes * _WIRE_BYTES_PER_TEXT_BYTE + 64 * 1024
    if url.startswith("http:") and not _has_proxy(url):
        return Http1Transport(url, headers, limits, max_bytes)
    return HttpxTransport(url, headers, limits, max_bytes)


def _headers(url: str, key: str) -> dict[str, str]:
    """Return the headers to send: nothing from the environment, except to OpenAI itself."""
    headers = {
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",  # a compressed answer could unfold to any size
        "Content-Type": "application/json",
        "User-Agent": "waysout",
    }
    if key:
        headers["Authorization"] = f"Bearer {key}"
    if is_openai(url):
        for name, variable in (("Organization", "ORG_ID"), ("Project", "PROJECT_ID")):
            value = os.environ.get(f"OPENAI_{variable}", "")
            if value.isascii() and value.isprintable() and value:
                headers[f"OpenAI-{name}"] = value
    return headers


def _has_proxy(url: str) -> bool:
    if is_loopback(url):  # requests to this machine must not go through a proxy
        return False
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    host = urlsplit(url).hostname or ""
    return ("http" in proxies or "all" in proxies) and not proxy_bypass(host)


async def _note(event: str, info: Mapping[str, Any]) -> None:
    """Count a request of the LLM as its head goes out; a CONNECT to a proxy is none."""
    if event.endswith(".send_request_headers.started") and info["request"].method == b"POST":
        note_sent()


class HttpxTransport(Transport):
    """httpx2 with our headers alone; it follows no redirect and retries nothing."""

    def __init__(
        self, url: str, headers: Mapping[str, str], limits: Limits, max_bytes: int
    ) -> None:
        try:
            import httpx2
        except ImportError as error:
            raise MissingExtra("httpx2", "openai") from error
        self._url, self._headers = url, headers
        self._limits, self._max_bytes = limits, max_bytes
        # Loading all authorities takes longer than a request; over http there are none to check.
        plain = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.startswith("http:") else True
        self._http = httpx2.AsyncClient(
            verify=plain,
            limits=httpx2.Limits(),
            timeout=httpx2.Timeout(limits.silence, connect=limits.connect, pool=limits.seconds),
            trust_env=not is_loopback(url),
            follow_redirects=False,
        )

    @asynccontextmanager
    async def send(self, path: str, body: bytes | None) -> AsyncIterator[HttpResponse]:
        """Send a request; see `Transport.send`."""
        import httpx2

        # Made by hand: the client would add headers of its own.
        method = "GET" if body is None else "POST"
        request = httpx2.Request(
            method,
            self._url + path,
            headers=self._headers,
            content=body,
            extensions={"trace": _note},
        )
        response = await self._translated(self._http.send(request, stream=True))
        pieces = response.aiter_raw()
        headers = {name.lower(): value for name, value in response.headers.items()}
        try:
            yield HttpResponse(
                response.status_code,
                headers,
                lambda: self._translated(anext(pieces, b"")),
                self._max_bytes,
            )
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def _translated(self, work: Awaitable[_T]) -> _T:
        """Wait for httpx2, and turn its errors into ours."""
        import httpx2

        try:
            return await work
        except httpx2.ConnectTimeout:
            problem = no_connection(self._limits)
        except httpx2.TimeoutException:
            problem = silence(self._limits)
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            problem = TransportError(str(error) or type(error).__name__)
        # Raised here and not above: the client's errors hold the request, and with it the key.
        raise problem
