"""Who may come in: those who know the token, and browsers that have shown it."""

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
# Browsers that are logged in at once; the one that came first makes room.
MOST_SESSIONS = 1000
# What a header can hold as one word.
_TOKEN = re.compile(r"[\x21-\x7e]+")


def read_token(environ: Mapping[str, str], file: Path | None = None) -> str | None:
    """Return the token of a file or of the environment, or nothing where neither has one.

    It is no argument of a command: every user of a machine can see those.
    """
    named = environ.get(VARIABLE)
    if file is not None and named:
        raise InputError(f"both --token-file and {VARIABLE} give a token: leave one of them out")
    if file is not None:
        return _checked(_file_text(file), f"the file {file}")
    return _checked(named, VARIABLE) if named else None


def _file_text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(2 * LONGEST).decode("utf-8", "replace")
    except OSError as error:
        raise UnavailableError(f"cannot read the token file {file}: {error.strerror}") from None


def _checked(text: str, where: str) -> str:
    """Return a token without the line's end. What is wrong is told, the token never."""
    token = text.strip()
    if not SHORTEST <= len(token) <= LONGEST:
        raise InputError(
            f"{where} holds a token of {len(token)} characters; it needs {SHORTEST} to {LONGEST}, "
            "as from: python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    if not _TOKEN.fullmatch(token):
        raise InputError(f"the token in {where} may hold ASCII letters, digits and signs only")
    return token


class Gate:
    """Knows the token, and the cookies of browsers that have shown it.

    A cookie is drawn for each login, so that the token itself is kept by no browser, and a logout
    ends it. Ports share their cookies, so its name tells ours from that of a neighbour.
    """

    def __init__(self, token: str, port: int = 0) -> None:
        self.cookie = f"waysout-{port}"
        self._token = _digest(token)
        self._sessions: dict[bytes, None] = {}

    def __repr__(self) -> str:
        return "Gate(token=…)"

    def is_token(self, given: str) -> bool:
        """Whether this is the token; takes as long whatever is given."""
        return hmac.compare_digest(_digest(given), self._token)

    def login(self) -> str:
        """Return the cookie of a browser that has shown the token."""
        cookie = secrets.token_urlsafe(32)
        while len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[_digest(cookie)] = None
        return cookie

    def logout(self, cookies: Iterable[str]) -> None:
        """End what these cookies were good for."""
        for cookie in cookies:
            self._sessions.pop(_digest(cookie), None)

    def admits(self, bearer: str | None, cookies: Iterable[str]) -> bool:
        """Whether a request may come in."""
        if bearer is not None and self.is_token(bearer):
            return True
        # Looked up by digest: how long that takes tells nothing about a cookie.
        return any(_digest(cookie) in self._sessions for cookie in cookies)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
