"""Access: by the token, or by the cookie of a browser that has shown it; and who guesses it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from pathlib import Path
from time import monotonic
from typing import Any

from waysout.errors import InputError, UnavailableError
from waysout.serve.hosts import network_of

VARIABLE = "WAYSOUT_TOKEN"
SHORTEST, LONGEST = 16, 512
# Browsers that are logged in at once; the oldest makes room.
MOST_SESSIONS = 1000
# Wrong tokens that cost nothing, and the seconds after which one of them is forgiven: of one
# network, and of all together, as guesses may come from many.
FREE_GUESSES, FORGIVEN_AFTER = 10, 6.0
FREE_OVERALL, FORGIVEN_OVERALL = 100, 1.0
MOST_NETWORKS = 1000
# Beyond those the answer to a wrong one comes only after this long.
HOLD_SECONDS = 0.5
# In the scope of a request that showed a wrong one: the server drops its connection before others.
WRONG = "waysout.wrong"
_ALL = ""
# The characters of one word in a header.
_TOKEN = re.compile(rf"[\x21-\x7e]{{{SHORTEST},{LONGEST}}}")


def read_token(environ: Mapping[str, str], file: Path | None = None) -> str | None:
    """Return the token of a file or of the environment, or None.

    It is never an argument of a command: every user of a machine can see those. Errors never show
    it.
    """
    text, where = environ.get(VARIABLE), VARIABLE
    if file is not None:
        if text:
            raise InputError(
                f"a token file and {VARIABLE} both give a token: leave one of them out"
            )
        where = f"the file {file}"
        try:
            with file.open("rb") as opened:
                text = opened.read(2 * LONGEST).decode("utf-8", "replace")
        except OSError as error:
            raise UnavailableError(f"cannot read the token file {file}: {error.strerror}") from None
    elif not text:
        return None
    token = (text or "").strip()
    if not _TOKEN.fullmatch(token):
        raise InputError(
            f"{where} holds a token of {len(token)} characters; it needs {SHORTEST} to {LONGEST} "
            "ASCII letters, digits and signs, as from: "
            "python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    return token


class WrongToken(Exception):
    """What was shown is not the token; after too many, the ``seconds`` to wait before the next."""

    def __init__(self, seconds: int) -> None:
        super().__init__(
            f"this is not the token, and too many wrong ones came: try again in {seconds} s"
            if seconds
            else "this is not the token"
        )
        self.seconds = seconds


class Guesses:
    """Counts wrong tokens, of each network and overall, and forgives them one by one.

    For each it keeps one number: when all of its guesses will be forgiven. That is never far away,
    so whoever comes by the same address tomorrow does not pay for them.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self._forgiven: dict[str, float] = {}

    def seconds(self, network: str) -> float:
        """Return how long it takes until there is a free guess again; 0 if there is one now."""
        return max(
            self._debt(network) - FREE_GUESSES * FORGIVEN_AFTER,
            self._debt(_ALL) - FREE_OVERALL * FORGIVEN_OVERALL,
            0.0,
        )

    def add(self, network: str) -> None:
        """Count a wrong token."""
        self._add(network, FREE_GUESSES, FORGIVEN_AFTER)
        self._add(_ALL, FREE_OVERALL, FORGIVEN_OVERALL)
        while len(self._forgiven) > MOST_NETWORKS:  # the one that guessed longest ago
            del self._forgiven[next(iter(self._forgiven))]

    def _add(self, network: str, free: int, each: float) -> None:
        debt = min(self._debt(network), 2 * free * each)
        self._forgiven.pop(network, None)
        self._forgiven[network] = self.clock() + debt + each

    def _debt(self, network: str) -> float:
        return max(0.0, self._forgiven.get(network, 0.0) - self.clock())


class Gate:
    """Knows the token, and the cookies of browsers that have shown it.

    Each login gets its own random cookie, so that no browser keeps the token itself, and a logout
    ends it. Servers on other ports share a browser's cookies, so its name holds the port.

    >>> from waysout.serve import Gate
    >>> gate = Gate("a long secret", port=8765)
    >>> gate.is_token("a long secret"), gate.is_token("forged")
    (True, False)
    >>> gate.has_session([gate.login()]), gate.has_session(["forged"])
    (True, False)
    """

    def __init__(
        self,
        token: str,
        port: int = 0,
        guesses: Guesses | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.cookie = f"waysout-{port}"
        self._token = _digest(token)
        self._sessions: dict[bytes, None] = {}
        self._guesses = guesses or Guesses()
        self._pause = pause

    def __repr__(self) -> str:
        return "Gate(token=…)"

    async def check(self, given: str, scope: MutableMapping[str, Any]) -> None:
        """Raise ``WrongToken`` unless this is the token; where many were wrong, after a while.

        The right one never waits: among hundreds of wrong ones that wait its connection would be
        dropped with theirs. None is refused unseen, since behind a proxy all come by one address,
        and one who guesses would lock all others out. So who takes a slow answer for a no guesses
        as fast as connections are taken in, and what keeps them out is the token's length; all
        others are slowed.
        """
        if self.is_token(given):
            return
        network = network_of((scope.get("client") or ("",))[0])
        self._guesses.add(network)
        scope[WRONG] = True
        seconds = math.ceil(self._guesses.seconds(network))
        if seconds:
            await self._pause(HOLD_SECONDS)
        raise WrongToken(seconds)

    def is_token(self, given: str) -> bool:
        """Whether this is the token; takes the same time for every text."""
        return hmac.compare_digest(_digest(given), self._token)

    def login(self) -> str:
        """Return the cookie of a browser that has shown the token."""
        cookie = secrets.token_urlsafe(32)
        while len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[_digest(cookie)] = None
        return cookie

    def logout(self, cookies: Iterable[str]) -> None:
        """End the sessions of these cookies."""
        for cookie in cookies:
            self._sessions.pop(_digest(cookie), None)

    def has_session(self, cookies: Iterable[str]) -> bool:
        """Whether one of these cookies is that of a login."""
        # Looked up by digest: the time it takes reveals nothing about a cookie.
        return any(_digest(cookie) in self._sessions for cookie in cookies)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
