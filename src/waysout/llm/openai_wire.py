"""The HTTP below an OpenAI-style backend: what is sent, and how much is read.

The SDK never learns the key, and nothing that it takes from the environment is sent.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from waysout.errors import MissingExtra
from waysout.llm.base import Limits
from waysout.llm.keys import is_loopback, is_openai

if TYPE_CHECKING:
    import httpx2
    import openai

CUT = "waysout.cut"
"""Marks an answer that was not read to its end."""

# A token of four letters travels in some 250 bytes of JSON.
_WIRE_BYTES = 64


def packages() -> tuple[Any, Any]:
    """Return the SDK and the HTTP client below it, loaded on use."""
    try:
        import httpx2
        import openai
    except ImportError as error:
        raise MissingExtra("openai", "openai") from error
    return openai, httpx2


def wire_errors() -> tuple[type[Exception], ...]:
    """Return what may be raised between a request and the end of its answer."""
    openai, httpx2 = packages()
    return (openai.OpenAIError, httpx2.HTTPError, httpx2.StreamError, OSError)


def new_client(url: str, key: str, limits: Limits) -> openai.AsyncOpenAI:
    """Return a client for one address, without retries of its own."""
    sdk, http = packages()
    client = sdk.AsyncOpenAI(
        # The SDK never learns the key, so it cannot log it or send it elsewhere.
        api_key="unused",
        base_url=url,
        max_retries=0,
        timeout=http.Timeout(limits.silence, connect=limits.connect, pool=limits.seconds),
        http_client=_http_client(url, key, limits.bytes * _WIRE_BYTES + 64 * 1024),
    )
    return cast("openai.AsyncOpenAI", client)


def _http_client(url: str, key: str, most: int) -> httpx2.AsyncClient:
    """Return a client that sends only our own headers, follows nothing and reads so many bytes."""
    import httpx2

    class Capped(httpx2.AsyncByteStream):
        def __init__(self, response: httpx2.Response) -> None:
            self.response = response
            self.stream = cast(httpx2.AsyncByteStream, response.stream)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = most
            async for chunk in self.stream:
                yield chunk[:left]
                left -= len(chunk)
                if left < 0:
                    self.response.extensions[CUT] = True
                    return

        async def aclose(self) -> None:
            await self.stream.aclose()

    class Client(httpx2.AsyncClient):
        async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
            sent = httpx2.Request(
                request.method,
                request.url,
                headers=_headers(url, key, request.headers),
                content=request.content,
                extensions=request.extensions,
            )
            response = await super().send(sent, stream=True)
            if response.headers.get("content-encoding", "identity") != "identity":
                await response.aclose()  # it could unfold to any size
                raise httpx2.DecodingError("it compresses its answers, though asked not to")
            response.request = request
            response.stream = Capped(response)
            return response

    # Loading all authorities takes longer than asking a server next door; there is none to check.
    plain = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.startswith("http:") else True
    # llama.cpp's server promises to keep a connection and then closes it, which a request sent in
    # the same moment does not survive. Without TLS a new one costs next to nothing.
    kept = httpx2.Limits(max_keepalive_connections=0 if url.startswith("http:") else None)
    return Client(
        verify=plain,
        limits=kept,
        # What goes to this machine must not take the way over somebody's proxy.
        trust_env=not is_loopback(url),
        follow_redirects=False,
    )


def _headers(url: str, key: str, sdk: Mapping[str, str]) -> dict[str, str]:
    """Return what is sent; of the SDK's headers, which the environment can set, nearly nothing."""
    headers = {
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "User-Agent": "waysout",
    }
    if key:
        headers["Authorization"] = f"Bearer {key}"
    own = ("openai-organization", "openai-project") if is_openai(url) else ()
    return headers | {name: sdk[name] for name in own if name in sdk}


@asynccontextmanager
async def sent(
    client: openai.AsyncOpenAI, body: Mapping[str, Any]
) -> AsyncIterator[httpx2.Response]:
    """Send a request; its answer is read by whoever asked, piece by piece."""
    create = cast(Any, client.chat.completions.with_streaming_response.create)
    async with create(**body) as response:
        yield response.http_response
