"""Addresses of LLM servers, and the keys for them.

A key comes from the environment or the system's keyring, never from a command line or an address,
where other users, shell histories and logs would see it.
"""

from __future__ import annotations

import ipaddress
import os
import re
from functools import lru_cache
from urllib.parse import urlsplit

from waysout.errors import InputError, LLMError, shown

OPENAI_URL = "https://api.openai.com/v1"
_CUT = 8  # letters of a key that a text may end with
# What may spell a letter in JSON, URLs and HTML, or stand between two without being seen.
_UNSEEN = "\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff"
_SPELT = re.compile(rf"[\\{_UNSEEN}]|%[0-9A-Fa-f]|&#")
SERVICE = "waysout"  # under which the keyring files our keys, with the host as the user


def parse_target(text: str) -> tuple[str, str]:
    """Split ``MODEL@URL``. The address is never guessed: rows of people go there.

    >>> parse_target("qwen2.5:7b@http://localhost:11434")
    ('qwen2.5:7b', 'http://localhost:11434/v1')
    >>> parse_target("@cf/meta/llama@https://llm.example/v1")
    ('@cf/meta/llama', 'https://llm.example/v1')
    """
    marks = list(re.finditer(r"@(?=https?://)", text, re.IGNORECASE))
    model, url = (text[: marks[-1].start()], text[marks[-1].end() :]) if marks else ("", "")
    if not model.strip() or "://" in model:
        # What was given is not repeated: a password may be in it.
        raise InputError(
            "an LLM server is named MODEL@URL, with an address that starts with http:// or "
            "https://, such as openai:qwen2.5:7b@http://localhost:8000/v1 or "
            f"openai:MODEL@{OPENAI_URL}"
        )
    return model, check_url(url)


def check_url(url: str) -> str:
    """Return the address of an OpenAI-style server in a standard spelling, or raise `InputError`.

    >>> check_url("HTTP://Localhost:8000/")
    'http://localhost:8000/v1'
    """
    try:
        parts = urlsplit(url)
        sound = parts.hostname is not None and parts.port != 0
    except ValueError:
        sound = False
    if not (sound and url.isascii() and url.isprintable() and " " not in url):
        raise InputError(
            "this is not the address of a server; write it like http://localhost:8000/v1"
        )
    if parts.scheme not in ("http", "https"):
        raise InputError(
            f"an LLM server is asked over http or https, not {shown(parts.scheme)}; write its "
            "address like http://localhost:8000/v1"
        )
    if parts.username is not None or parts.password is not None:
        raise InputError(
            "an address must not hold a user name or password; put the key into the environment "
            f"variable {key_variable(url)}"
        )
    if parts.query or parts.fragment:
        raise InputError("the address of an LLM server ends with its path; leave out ? and #")
    if parts.path.rstrip("/").endswith("/chat/completions"):
        raise InputError(f"leave /chat/completions out of the address {shown(url, 200)}")
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/') or '/v1'}"


def is_openai(url: str) -> bool:
    """Whether an address is OpenAI's own."""
    host = _host(url)
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def is_loopback(url: str) -> bool:
    """Whether an address is on this machine."""
    host = _host(url)
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host(url: str) -> str:
    return (urlsplit(url).hostname or "").rstrip(".")


def key_variable(url: str) -> str:
    """Return the environment variable that holds the key for an address."""
    return "OPENAI_API_KEY" if is_openai(url) else "WAYSOUT_API_KEY"


def find_key(url: str) -> str | None:
    """Return the key for an address, from the environment, else the keyring; ``None``: none."""
    variable = key_variable(url)
    key = os.environ.get(variable, "").strip()
    if key:
        return check_key(key, url, f"the key in {variable}")
    try:
        import keyring

        key = str(keyring.get_password(SERVICE, _host(url)) or "").strip()
    except Exception:  # no package, no keyring on this machine, or a locked one: no key
        return None
    return check_key(key, url, "the key in the keyring") if key else None


def check_key(key: str, url: str, what: str = "the key") -> str:
    """Return a key that may be sent to an address, or raise; the message never shows it."""
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise LLMError(f"{what} holds a character that no key has, such as a space or line break")
    if url.lower().startswith("http:") and not is_loopback(url):
        raise LLMError(
            f"{what} would travel unencrypted to {_host(url)}: use https://, a tunnel to "
            f"localhost, or no key (unset {key_variable(url)})"
        )
    return key


def hide_key(text: str, key: str) -> str:
    """Take a key out of what a server says: some repeat the request.

    Also where it is spelled as JSON, URLs or HTML may spell it, as what is read out of the text
    would have it in full; and what there is of it where the text was cut off.

    >>> hide_key(r"key abc123abc123, \u0061bc123%61bc123, abc123abc", "abc123abc123")
    'key ***, ***, ***'
    """
    if not key or not (key[:_CUT] in text or _SPELT.search(text)):
        return text
    return _spellings(key).sub("***", text)


@lru_cache(maxsize=16)
def _spellings(key: str) -> re.Pattern[str]:
    digit = "[0-9a-fA-F]"
    escaped = (
        rf"00(?:[01]{digit}|7[fF]|[89]{digit}|[aA][dD])"
        r"|20(?:0[b-fB-F]|2[89a-eA-E]|6[0-4])|[fF][eE][fF]{2}"
    )
    unseen = rf"(?:[{_UNSEEN}]|\\{{1,8}}(?:[abfnrtv]|u(?:{escaped})))*"
    half = rf"(?:\\{{1,8}}(?:[uUxX]{digit}{{0,3}})?|%{digit}?|&#?[xX]?{digit}{{0,6}})?"
    letters = [unseen * bool(at) + _spellings_of(letter) for at, letter in enumerate(key)]
    cut = (rf"(?:{letter}|{unseen}{half}\Z)" for letter in letters[_CUT:])
    return re.compile("".join([*letters[:_CUT], *cut]))


def _spellings_of(letter: str) -> str:
    code = f"{ord(letter):02x}"
    digits = "".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in code)
    named = rf"&\#(?:0{{0,5}}{ord(letter)}|[xX]0{{0,5}}{digits});?"
    return (
        rf"(?:\\{{0,8}}{re.escape(letter)}"
        rf"|\\{{1,8}}(?:u00|U000000|x){digits}|%(?:25)*{digits}|{named})"
    )
