from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from waysout.errors import InputError, UnavailableError
from waysout.serve.tokens import (
    FORGIVEN_AFTER,
    FREE_GUESSES,
    FREE_OVERALL,
    HOLD_SECONDS,
    MOST_NETWORKS,
    MOST_SESSIONS,
    VARIABLE,
    WRONG,
    Gate,
    Guesses,
    WrongToken,
    read_token,
)

TOKEN = "correct-horse-battery-staple"


def test_no_token_is_no_token() -> None:
    assert read_token({}) is None
    assert read_token({VARIABLE: ""}) is None


def test_a_token_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert read_token({VARIABLE: TOKEN}) == TOKEN
    assert read_token({}, file) == TOKEN


def test_two_tokens_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave one of them out"):
        read_token({VARIABLE: TOKEN}, tmp_path / "token")


@pytest.mark.parametrize(
    "text", ["short-secret", "x" * 513, "sixteen letters and spaces", "ä" * 20]
)
def test_a_token_that_will_not_do_is_refused_and_never_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_token({}, file)
    assert text not in str(caught.value)
    with pytest.raises(InputError) as caught:
        read_token({VARIABLE: text})
    assert text not in str(caught.value)


def test_an_empty_token_file_is_not_no_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("\n")
    with pytest.raises(InputError, match="0 characters; it needs 16"):
        read_token({}, file)


def test_a_token_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="cannot read the token file"):
        read_token({}, tmp_path / "none")
    with pytest.raises(UnavailableError, match="cannot read the token file"):
        read_token({}, tmp_path)


def test_the_gate_knows_its_token_and_nothing_like_it() -> None:
    gate = Gate(TOKEN)
    assert gate.is_token(TOKEN)
    for other in ("", TOKEN[:-1], TOKEN.upper(), TOKEN + "x", "\ud800", "ü"):
        assert not gate.is_token(other)
        assert not gate.has_session([other])
    assert not gate.has_session([])
    assert TOKEN not in repr(gate) + str(vars(gate))


def test_a_cookie_is_good_until_the_logout() -> None:
    gate = Gate(TOKEN)
    one, other = gate.login(), gate.login()
    assert one != other
    assert TOKEN not in one
    assert gate.has_session([one])
    assert gate.has_session(["stale", other])
    gate.logout([one, "unknown"])
    assert not gate.has_session([one])
    assert gate.has_session([other])
    assert not Gate(TOKEN).has_session([other])


def test_a_cookie_is_no_token() -> None:
    gate = Gate(TOKEN)
    assert not gate.is_token(gate.login())
    assert not gate.has_session([TOKEN])


def test_neighbours_have_other_cookies() -> None:
    assert Gate(TOKEN, 8765).cookie != Gate(TOKEN, 8766).cookie


def test_logins_do_not_fill_the_memory() -> None:
    gate = Gate(TOKEN)
    first, second = gate.login(), gate.login()
    for _ in range(MOST_SESSIONS - 1):
        gate.login()
    assert not gate.has_session([first])
    assert gate.has_session([second])


@dataclass
class Shown:
    """A gate whose time passes only when it is told to, and how long tokens were held."""

    now: float = 0.0
    held: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.guesses = Guesses(lambda: self.now)
        self.gate = Gate(TOKEN, guesses=self.guesses, pause=self._hold)

    async def _hold(self, seconds: float) -> None:
        self.held.append(seconds)

    def wrong(self, network: str = "192.0.2.1") -> int:
        """Show a wrong token, and return how long to wait with the next."""
        with pytest.raises(WrongToken) as caught:
            self.right(network, "wrong-horse-battery-staple")
        return caught.value.seconds

    def right(self, network: str = "192.0.2.1", token: str = TOKEN) -> None:
        asyncio.run(self.gate.check(token, {"client": (network, 1)}))


def test_one_who_guesses_is_slowed() -> None:
    shown = Shown()
    assert [shown.wrong() for _ in range(FREE_GUESSES)] == [0] * FREE_GUESSES
    assert shown.held == []
    assert shown.wrong() == FORGIVEN_AFTER  # the eleventh
    assert shown.wrong() == 2 * FORGIVEN_AFTER
    assert shown.held == [HOLD_SECONDS] * 2
    assert shown.wrong("192.0.2.2") == 0
    assert len(shown.held) == 2


def test_the_right_token_neither_waits_nor_is_refused_however_many_were_wrong() -> None:
    shown = Shown()
    for i in range(500):
        shown.wrong(f"192.0.2.{i % 250}")
    before = len(shown.held)
    shown.right()
    shown.right("198.51.100.1")
    assert len(shown.held) == before > 0


def test_a_wrong_token_is_marked_before_it_waits() -> None:
    gate, seen = Gate(TOKEN), list[bool]()

    async def pause(_: float) -> None:
        seen.append(WRONG in scope)

    gate._pause = pause
    for given in ["wrong"] * (FREE_GUESSES + 1) + [TOKEN]:
        scope: dict[str, object] = {"client": ("192.0.2.1", 1)}
        with suppress(WrongToken):
            asyncio.run(gate.check(given, scope))
        assert (WRONG in scope) is (given != TOKEN)
    assert seen == [True]


def test_guesses_are_forgiven_soon_however_many_there_were() -> None:
    shown = Shown()
    for _ in range(500):
        last = shown.wrong()
    assert last <= 2 * FREE_GUESSES * FORGIVEN_AFTER
    shown.now += last + FORGIVEN_AFTER
    held = len(shown.held)
    assert shown.wrong() == 0
    assert len(shown.held) == held


def test_guesses_from_everywhere_are_slowed_and_do_not_fill_the_memory() -> None:
    shown = Shown()
    waits = [shown.wrong(f"192.0.{i // 250}.{i % 250}") for i in range(2 * MOST_NETWORKS)]
    assert not any(waits[:FREE_OVERALL])
    assert all(waits[FREE_OVERALL:])
    assert len(shown.guesses._forgiven) == MOST_NETWORKS
    assert len(shown.held) == len(waits) - FREE_OVERALL
