"""The HTTP below an OpenAI-style backend: what is sent, and how much is read.

A server that is asked over plain HTTP and without a proxy has a connection of our own, which costs
a tenth of the time of a client for everything. Certificates and proxies are left to httpx2.
"""

from __future__ import annotations

import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from waysout.errors import MissingExtra
from waysout.llm.base import Limits
from waysout.llm.keys import is_loopback, is_openai

_T = TypeVar("_T")

# A token of four letters travels in some 250 bytes of JSON.
_WIRE_BYTES = 64


class WireError(Exception):
    """What went wrong between a request and the end of its answer."""


class NoConnection(WireError):
    """Nobody took the call in time."""


class Silence(WireError):
    """Nothing came for too long."""


class HttpAnswer(ABC):
    """An answer that has begun, read by whoever asked, piece by piece."""

    status: int
    headers: Mapping[str, str]
    """By their names in small letters."""
    cut = False
    """Whether it is not read to its end, because it is too long."""

    def __init__(self, most: int) -> None:
        self._left = most

    async def more(self) -> bytes:
        """Return the next piece; nothing at the end, and beyond the most that is read."""
        piece = b"" if self.cut else await self._more()
        self.cut = self.cut or len(piece) > self._left
        piece = piece[: self._left]
        self._left -= len(piece)
        return piece

    @abstractmethod
    async def _more(self) -> bytes: ...


class Wire(ABC):
    """The way to one address, within one event loop."""

    @abstractmethod
    def ask(self, path: str, body: bytes | None) -> AbstractAsyncContextManager[HttpAnswer]:
        """Send a request (without a body: a GET) and return its answer; raises `WireError`."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close all connections."""


def new_wire(url: str, key: str, limits: Limits) -> Wire:
    """Return the way to an address; nothing is contacted yet."""
    from waysout.llm.openai.http1 import Direct

    headers, most = _headers(url, key), limits.bytes * _WIRE_BYTES + 64 * 1024
    if url.startswith("http:") and not _has_proxy(url):
        return Direct(url, headers, limits, most)
    return _Client(url, headers, limits, most)


def _headers(url: str, key: str) -> dict[str, str]:
    """Return what is sent; of the environment nearly nothing, and to OpenAI alone."""
    headers = {
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",
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
    # What goes to this machine must not take the way over somebody's proxy.
    if is_loopback(url):
        return False
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    host = urlsplit(url).hostname or ""
    return ("http" in proxies or "all" in proxies) and not proxy_bypass(host)


class _Client(Wire):
    """A client that sends only our own headers, follows nothing and tries nothing again."""

    def __init__(self, url: str, headers: Mapping[str, str], limits: Limits, most: int) -> None:
        try:
            import httpx2
        except ImportError as error:
            raise MissingExtra("httpx2", "openai") from error
        self._url, self._headers, self._most = url, headers, most
        # Loading all authorities takes longer than asking a server; there may be none to check.
        plain = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.startswith("http:") else True
        self._http = httpx2.AsyncClient(
            verify=plain,
            limits=httpx2.Limits(),
            timeout=httpx2.Timeout(limits.silence, connect=limits.connect, pool=limits.seconds),
            trust_env=not is_loopback(url),
            follow_redirects=False,
        )

    @asynccontextmanager
    async def ask(self, path: str, body: bytes | None) -> AsyncIterator[HttpAnswer]:
        """Send a request; see `Wire.ask`."""
        import httpx2

        # Made by hand: the client would add headers of its own.
        method = "GET" if body is None else "POST"
        request = httpx2.Request(method, self._url + path, headers=self._headers, content=body)
        response = await _said(self._http.send(request, stream=True))
        try:
            yield _ClientAnswer(response, self._most)
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()


class _ClientAnswer(HttpAnswer):
    def __init__(self, response: Any, most: int) -> None:
        super().__init__(most)
        self.status = response.status_code
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        self._pieces = response.aiter_raw()

    async def _more(self) -> bytes:
        return await _said(anext(self._pieces, b""))


async def _said(work: Awaitable[_T]) -> _T:
    """Wait for the client, and say in our own words what goes wrong."""
    import httpx2

    try:
        return await work
    except httpx2.ConnectTimeout:
        problem: WireError = NoConnection()
    except httpx2.TimeoutException:
        problem = Silence()
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
        problem = WireError(str(error) or type(error).__name__)
    # Raised here and not above: the client's errors hold the request, and with it the key.
    raise problem
