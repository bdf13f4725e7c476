from __future__ import annotations

import html
import json
import sys
import urllib.parse
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waysout.errors import InputError, LLMError
from waysout.llm.keys import OPENAI_URL, check_key, check_url, find_key, hide_key, parse_target

SECRET = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("WAYSOUT_API_KEY", raising=False)
    monkeypatch.setitem(sys.modules, "keyring", None)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("m@http://localhost:8000/v1", ("m", "http://localhost:8000/v1")),
        ("m@http://localhost:8000", ("m", "http://localhost:8000/v1")),
        ("m@http://localhost:8000/", ("m", "http://localhost:8000/v1")),
        (
            "org/m:7b@q4@HTTPS://Host.example/api/v2/",
            ("org/m:7b@q4", "https://host.example/api/v2"),
        ),
        ("@cf/meta/m@http://[::1]:80/v1", ("@cf/meta/m", "http://[::1]:80/v1")),
    ],
)
def test_a_target_is_a_model_and_an_address(text: str, target: tuple[str, str]) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("", "MODEL@URL"),
        ("gpt-x", "MODEL@URL"),
        ("@http://localhost:8000/v1", "MODEL@URL"),
        ("m@localhost:8000", "http://"),
        ("m@ftp://host/v1", "http://"),
        ("m@http://", "like http://localhost:8000/v1"),
        ("m@http://host:99999/v1", "like http://localhost:8000/v1"),
        ("m@http://ho st/v1", "like http://localhost:8000/v1"),
        ("m@http://host/v1\r\nX: y", "like http://localhost:8000/v1"),
        ("m@http://[::1/v1", "like http://localhost:8000/v1"),
        ("m@http://host/v1?api-key=x", "leave out"),
        ("m@http://host/v1#x", "leave out"),
        ("m@http://host/v1/chat/completions", "leave /chat/completions out"),
    ],
)
def test_a_target_that_cannot_be_names_the_remedy(text: str, remedy: str) -> None:
    with pytest.raises(InputError, match=remedy):
        parse_target(text)


@pytest.mark.parametrize(
    "text",
    [
        f"m@https://user:{SECRET}@host/v1",
        f"m@https://{SECRET}@host/v1",
        f"m@https://user:{SECRET}@https.example/v1",
        f"m@https://user:{SECRET}@http://host/v1",
        f"m@https://host/v1?key={SECRET}",
        f"m@https://user:{SECRET} @host/v1",
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_target(text)
    assert SECRET not in str(caught.value)


@given(st.text(max_size=30), st.sampled_from(["", "@http://", "@https://h", "@http://h:1/v1"]))
def test_any_target_is_read_or_refused(text: str, end: str) -> None:
    try:
        model, url = parse_target(text + end)
    except InputError:
        return
    assert model
    assert check_url(url) == url
    assert parse_target(f"{model}@{url}") == (model, url)


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        (OPENAI_URL, "OPENAI_API_KEY"),
        ("https://eu.api.openai.com/v1", "OPENAI_API_KEY"),
        ("https://api.openai.com.evil.example/v1", "WAYSOUT_API_KEY"),
        ("https://notapi.openai.com/v1", "WAYSOUT_API_KEY"),
        ("http://127.0.0.1:8000/v1", "WAYSOUT_API_KEY"),
    ],
)
def test_each_host_has_its_own_variable(
    url: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ({"OPENAI_API_KEY", "WAYSOUT_API_KEY"} - {variable}).pop()
    monkeypatch.setenv(other, SECRET)
    assert find_key(url) is None
    monkeypatch.setenv(variable, f" {SECRET[::-1]}\n")
    assert find_key(url) == SECRET[::-1]


def test_the_keyring_is_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {("waysout", "host.example"): SECRET}
    ring = SimpleNamespace(get_password=lambda service, user: entries.get((service, user)))
    monkeypatch.setitem(sys.modules, "keyring", ring)
    assert find_key("https://host.example:444/v1") == SECRET
    assert find_key("https://other.example/v1") is None
    monkeypatch.setenv("WAYSOUT_API_KEY", "sk-from-environment")
    assert find_key("https://host.example/v1") == "sk-from-environment"


def test_a_keyring_that_does_not_work_is_no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise RuntimeError("no backend")

    monkeypatch.setitem(sys.modules, "keyring", SimpleNamespace(get_password=fail))
    assert find_key("https://host.example/v1") is None


@pytest.mark.parametrize("url", ["http://10.0.0.7:8000/v1", "http://host.example/v1", "HTTP://h"])
def test_a_key_is_not_sent_unencrypted(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSOUT_API_KEY", SECRET)
    with pytest.raises(LLMError, match=r"unencrypted.*unset WAYSOUT_API_KEY") as caught:
        find_key(url)
    assert SECRET not in str(caught.value)
    monkeypatch.delenv("WAYSOUT_API_KEY")
    assert find_key(url) is None


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_on_this_machine_a_key_may_go_unencrypted(host: str) -> None:
    assert check_key(SECRET, f"http://{host}:8000/v1") == SECRET


@pytest.mark.parametrize(
    "key", [f"{SECRET}\nX-Evil: 1", f"{SECRET} x", f"{SECRET}é", f"{SECRET}\0"]
)
def test_a_key_that_is_no_header_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(LLMError, match="character") as caught:
        check_key(key, OPENAI_URL)
    assert SECRET not in str(caught.value)


_SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda c: c,
    "JSON": lambda c: f"\\u{ord(c):04x}",
    "JSON, large": lambda c: f"\\u{ord(c):04X}",
    "Python": lambda c: f"\\x{ord(c):02x}",
    "a URL": lambda c: f"%{ord(c):02X}",
    "HTML": lambda c: f"&#{ord(c)};",
    "HTML, hexadecimal": lambda c: f"&#x{ord(c):x};",
    "unseen": lambda c: f"{c}\u200b\a\n",
}


@given(
    st.text(st.characters(codec="ascii", exclude_categories=["Cc", "Zs"]), min_size=9, max_size=80),
    st.lists(st.sampled_from(sorted(_SPELLINGS)), min_size=1, max_size=5),
    st.integers(0, 2),
)
def test_a_key_is_hidden_however_it_is_spelled(key: str, ways: list[str], wraps: int) -> None:
    spelled = "".join(_SPELLINGS[ways[i % len(ways)]](letter) for i, letter in enumerate(key))
    text = spelled
    for _ in range(wraps):
        text = json.dumps(text)
    hidden = hide_key(f"{text} and {text}", key)
    assert "***" in hidden
    for _ in range(3):  # whatever reads it
        hidden = html.unescape(urllib.parse.unquote(hidden))
        assert key not in "".join(c for c in hidden if c.isprintable() and c != "\u200b")
        hidden = hidden.encode("ascii", "backslashreplace").decode("unicode_escape", "replace")


@pytest.mark.parametrize("spelling", sorted(_SPELLINGS))
def test_a_key_that_was_cut_off_is_hidden(spelling: str) -> None:
    text = "".join(map(_SPELLINGS[spelling], SECRET))
    said = "".join(map(_SPELLINGS[spelling], SECRET[:8]))
    for end in range(len(said), len(text)):
        assert hide_key(f"the key {text[:end]}", SECRET).rstrip("\u200b\a\n") == "the key ***"
    assert hide_key(f"the key {said} is long", SECRET) == f"the key {said} is long"
    assert hide_key("nothing of it: sk-very", SECRET) == "nothing of it: sk-very"
