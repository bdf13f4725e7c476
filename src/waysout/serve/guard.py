"""The guard: checks each request's head before anything else does, and its size.

It is a plain ASGI wrapper, so that streams pass through it. What is admitted is on a list (hosts,
origins, types of bodies); there is no list of what is kept out, as none is ever complete.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from waysout.serve.errors import USAGE
from waysout.serve.hosts import Hosts
from waysout.serve.tokens import Gate, WrongToken

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# In the scope of a request that was admitted: the server keeps its connection before others.
KNOWN = "waysout.known"
_OPEN = ("/", "/favicon.ico", "/api/login", "/api/health")
_STATIC = "/static/"
_PAGES = ("/", "/docs")
_FOR_PEOPLE = re.compile(r"/api/searches/[^/]+/(report|letter)\.html")
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
_PAPER_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox allow-modals"
)
_DATA_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_ALWAYS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class TurnedAway(Exception):
    """A request that is not admitted, with its answer."""

    def __init__(self, status: int, kind: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(frozen=True)
class Guard:
    """Admits only our own Host and Origin, clients with the token, and small bodies.

    It reads the head before anything else does, against lists of what is admitted, then the whole
    body within a limit and a deadline, so that nothing behind it waits for a slow sender.
    """

    app: App
    hosts: Hosts
    gate: Gate | None = None
    most_body: int = 262_144
    body_seconds: float = 20.0
    linger_seconds: float = 1.0
    # Strangers' requests are answered one in a turn of the loop: a thousand that come at once would
    # take the time of those who have the token.
    turn: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the head, then the body, then pass the request on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})  # policy violation
        else:
            head, send = Head(scope), _with_headers(scope["path"], send)
            try:
                self._check_origin(head)
                if await self._is_known(head, scope):
                    scope[KNOWN] = True
                self._check_size(head)
                if head.has_body:
                    receive = await self._read_body(receive)
                if KNOWN not in scope:
                    async with self.turn:
                        await asyncio.sleep(0)
            except TurnedAway as reason:
                await self._turn_away(reason, head, receive, send)
                return
            await self.app(scope, receive, send)

    def _check_origin(self, head: Head) -> None:
        """Check which server the request is for, and whose page it comes from."""
        found = head.all("host")
        if len(found) != 1 or not self.hosts.is_host(found[0]):
            raise TurnedAway(400, "ForeignHost", "the Host header must name this server, once")
        origins = head.all("origin")
        if len(origins) > 1 or not all(map(self.hosts.is_origin, origins)):
            raise TurnedAway(
                403, "ForeignOrigin", "this request came from a page of another origin"
            )
        sites = head.all("sec-fetch-site")
        if not set(sites) <= {"same-origin", "none"} and not head.is_visit:
            raise TurnedAway(403, "ForeignOrigin", "this request came from a page of another site")

    async def _is_known(self, head: Head, scope: Scope) -> bool:
        """Whether a request shows that it may do what it asks for; where it must, it has to.

        A token is not looked at where none is needed: that would be a way to guess it unnoticed.
        """
        gate = self.gate
        if gate is None or gate.has_session(head.cookies(gate.cookie)):
            return True
        if head.path in _OPEN or head.path.startswith(_STATIC):
            return False
        needed = TurnedAway(
            401, "TokenNeeded",
            "this needs the token: Authorization: Bearer …, or a login on the page",
            www_authenticate="Bearer",
        )  # fmt: skip
        if head.bearer is None:
            raise needed
        try:
            await gate.check(head.bearer, scope)
        except WrongToken as wrong:
            if not wrong.seconds:
                raise needed from None
            wait = str(wrong.seconds)
            raise TurnedAway(429, "TooManyGuesses", str(wrong), retry_after=wait) from None
        return True

    def _check_size(self, head: Head) -> None:
        """Check the size and the type of a body, as far as the head tells."""
        if head.length is not None and head.length > self.most_body:
            raise self._too_large()
        if head.has_body and head.media_types != ["application/json"]:
            raise TurnedAway(415, "NotJson", "a body must be JSON: Content-Type: application/json")

    async def _read_body(self, receive: Receive) -> Receive:
        """Read the body, whatever its head says about its length, and return it to read again."""
        body = bytearray()
        try:
            async with asyncio.timeout(self.body_seconds):
                async for part in _parts(receive):
                    body += part
                    if len(body) > self.most_body:
                        raise self._too_large()
        except TimeoutError:
            raise TurnedAway(
                408, "TooSlow", f"the body did not come within {self.body_seconds:g} s"
            ) from None
        waiting: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def read() -> Message:
            return waiting.pop() if waiting else await receive()

        return read

    async def _turn_away(
        self, reason: TurnedAway, head: Head, receive: Receive, send: Send
    ) -> None:
        """Answer without reading on, and end the connection, as an unread body follows.

        A client that is still sending gets a moment to read the answer; otherwise it would see a
        broken connection instead.
        """
        error = {"type": reason.kind, "message": str(reason), "code": USAGE}
        body = json.dumps({"error": error}).encode()
        headers = {
            "content-type": "application/json", "content-length": str(len(body)),
            "connection": "close", **reason.headers,
        }  # fmt: skip
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": reason.status, "headers": pairs})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        if head.all("content-length") or head.all("transfer-encoding"):
            with suppress(TimeoutError, TurnedAway):
                async with asyncio.timeout(self.linger_seconds):
                    async for _ in _parts(receive):
                        pass
        await send({"type": "http.response.body", "body": b""})

    def _too_large(self) -> TurnedAway:
        return TurnedAway(413, "TooLarge", f"a body may have {self.most_body} bytes at most")


class Head:
    """The head of a request: names in lower case, each value as it came."""

    def __init__(self, scope: Scope) -> None:
        self.path: str = scope["path"]
        self.method: str = scope["method"]
        self._headers: Iterable[tuple[bytes, bytes]] = scope["headers"]

    def all(self, name: str) -> list[str]:
        """Return every value of a header."""
        return [
            value.decode("latin-1")
            for key, value in self._headers
            if key.decode("latin-1").lower() == name
        ]

    @property
    def is_visit(self) -> bool:
        """Whether a browser follows a link to the page itself, which holds no data."""
        visit = ("GET", "/", ["navigate"], ["document"])
        modes, kinds = self.all("sec-fetch-mode"), self.all("sec-fetch-dest")
        return (self.method, self.path, modes, kinds) == visit

    @property
    def bearer(self) -> str | None:
        """The token of the request, if there is exactly one."""
        found = self.all("authorization")
        scheme, _, token = found[0].partition(" ") if len(found) == 1 else ("", "", "")
        return token.strip() if scheme.lower() == "bearer" else None

    def cookies(self, name: str) -> list[str]:
        """Return every value of a cookie."""
        pairs = (pair.partition("=") for line in self.all("cookie") for pair in line.split(";"))
        return [value.strip() for key, _, value in pairs if key.strip() == name]

    @property
    def length(self) -> int | None:
        """The length of the body, according to the head."""
        found = self.all("content-length")
        if not found:
            return None
        if len(found) > 1 or not re.fullmatch(r"[0-9]{1,18}", found[0]):
            raise TurnedAway(400, "BadLength", "Content-Length must be one number")
        if self.all("transfer-encoding"):  # a proxy may go by the one, and this server by the other
            raise TurnedAway(400, "BadLength", "Transfer-Encoding goes without Content-Length")
        return int(found[0])

    @property
    def has_body(self) -> bool:
        """Whether a body follows."""
        return bool(self.length) or bool(self.all("transfer-encoding"))

    @property
    def media_types(self) -> list[str]:
        """The type of the body, according to the head, without parameters."""
        return [text.partition(";")[0].strip().lower() for text in self.all("content-type")]


async def _parts(receive: Receive) -> AsyncGenerator[bytes]:
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise TurnedAway(400, "CutOff", "the connection ended within the body")
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


def _with_headers(path: str, send: Send) -> Send:
    """Return a ``send`` that sets the security headers of an answer, over any there are."""
    static = path.startswith(_STATIC)
    policy = _PAGE_POLICY if static or path in _PAGES else _DATA_POLICY
    if _FOR_PEOPLE.fullmatch(path):
        policy = _PAPER_POLICY
    stored = "no-cache" if static else "no-store"
    headers = {**_ALWAYS, "content-security-policy": policy, "cache-control": stored}
    ours = {name.encode(): value.encode() for name, value in headers.items()}

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [pair for pair in message.get("headers", ()) if pair[0].lower() not in ours]
            message = {**message, "headers": [*kept, *ours.items()]}
        await send(message)

    return sending
