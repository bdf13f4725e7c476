"""Access: by the token, or by the cookie of a browser that has shown it."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from waysout.errors import InputError, UnavailableError

VARIABLE = "WAYSOUT_TOKEN"
SHORTEST, LONGEST = 16, 512
# Browsers that are logged in at once; the oldest makes room.
MOST_SESSIONS = 1000
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


class Gate:
    """Knows the token, and the cookies of browsers that have shown it.

    Each login gets its own random cookie, so that no browser keeps the token itself, and a logout
    ends it. Servers on other ports share a browser's cookies, so its name holds the port.

    >>> from waysout.serve import Gate
    >>> gate = Gate("a long secret", port=8765)
    >>> gate.admits("a long secret", cookies=[]), gate.admits(None, cookies=["forged"])
    (True, False)
    """

    def __init__(self, token: str, port: int = 0) -> None:
        self.cookie = f"waysout-{port}"
        self._token = _digest(token)
        self._sessions: dict[bytes, None] = {}

    def __repr__(self) -> str:
        return "Gate(token=…)"

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

    def admits(self, bearer: str | None, cookies: Iterable[str]) -> bool:
        """Whether a request is admitted."""
        if bearer is not None and self.is_token(bearer):
            return True
        # Looked up by digest: the time it takes reveals nothing about a cookie.
        return any(_digest(cookie) in self._sessions for cookie in cookies)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
