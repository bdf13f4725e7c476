from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from waysout.errors import InputError, UnavailableError
from waysout.serve.tokens import (
    FORGIVEN_AFTER,
    FREE_GUESSES,
    FREE_OVERALL,
    HOLD_SECONDS,
    MOST_HELD,
    MOST_NETWORKS,
    MOST_SESSIONS,
    VARIABLE,
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
    assert gate.admits(TOKEN, [])
    for other in ("", TOKEN[:-1], TOKEN.upper(), TOKEN + "x", "\ud800", "ü"):
        assert not gate.admits(other, [other])
    assert not gate.admits(None, [])
    assert TOKEN not in repr(gate) + str(vars(gate))


def test_a_cookie_is_good_until_the_logout() -> None:
    gate = Gate(TOKEN)
    one, other = gate.login(), gate.login()
    assert one != other
    assert TOKEN not in one
    assert gate.admits(None, [one])
    assert gate.admits("wrong", ["stale", other])
    gate.logout([one, "unknown"])
    assert not gate.admits(None, [one])
    assert gate.admits(None, [other])
    assert not Gate(TOKEN).admits(None, [other])


def test_a_cookie_is_no_token() -> None:
    gate = Gate(TOKEN)
    assert not gate.admits(gate.login(), [])
    assert not gate.admits(None, [TOKEN])


def test_neighbours_have_other_cookies() -> None:
    assert Gate(TOKEN, 8765).cookie != Gate(TOKEN, 8766).cookie


def test_logins_do_not_fill_the_memory() -> None:
    gate = Gate(TOKEN)
    first, second = gate.login(), gate.login()
    for _ in range(MOST_SESSIONS - 1):
        gate.login()
    assert not gate.admits(None, [first])
    assert gate.admits(None, [second])


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
        asyncio.run(self.gate.check(token, network))


def test_one_who_guesses_is_slowed() -> None:
    shown = Shown()
    assert [shown.wrong() for _ in range(FREE_GUESSES)] == [0] * FREE_GUESSES
    assert shown.held == []
    assert shown.wrong() == FORGIVEN_AFTER  # the eleventh
    assert shown.wrong() == 2 * FORGIVEN_AFTER
    assert shown.held == [HOLD_SECONDS]
    assert shown.wrong("192.0.2.2") == 0
    assert len(shown.held) == 1


def test_the_right_token_waits_as_a_wrong_one_would_and_is_never_refused() -> None:
    shown = Shown()
    for _ in range(500):
        shown.wrong()
    before = len(shown.held)
    shown.right()
    assert shown.held[before:] == [HOLD_SECONDS]
    shown.gate.admits(None, [shown.gate.login()])
    assert len(shown.held) == before + 1


@pytest.mark.parametrize("holder", [True, False])
def test_a_crowd_that_guesses_by_the_address_of_a_holder_does_not_keep_the_holder_out(
    holder: bool,
) -> None:
    shown, release = Shown(), asyncio.Event()
    if holder:
        shown.right()
    for _ in range(FREE_GUESSES + 1):
        shown.wrong()

    async def hold(_: float) -> None:
        await release.wait()

    async def rush() -> bool:
        gate = shown.gate
        gate._pause = hold
        crowd = [
            asyncio.create_task(gate.check("guess", "192.0.2.1")) for _ in range(2 * MOST_HELD)
        ]
        await asyncio.sleep(0)
        served = asyncio.create_task(gate.check(TOKEN, "192.0.2.1"))
        await asyncio.sleep(0)
        at_once = served.done()
        release.set()
        await asyncio.gather(served, *crowd, return_exceptions=True)
        assert not gate._held
        return at_once

    assert asyncio.run(rush()) is holder


def test_guesses_are_forgiven_soon_however_many_there_were() -> None:
    shown = Shown()
    for _ in range(500):
        last = shown.wrong()
    assert last <= 2 * FREE_GUESSES * FORGIVEN_AFTER
    shown.now += last
    held = len(shown.held)
    shown.right()
    assert len(shown.held) == held


def test_guesses_from_everywhere_are_slowed_and_do_not_fill_the_memory() -> None:
    shown = Shown()
    waits = [shown.wrong(f"192.0.{i // 250}.{i % 250}") for i in range(2 * MOST_NETWORKS)]
    assert not any(waits[:FREE_OVERALL])
    assert all(waits[FREE_OVERALL:])
    assert len(shown.guesses._forgiven) == MOST_NETWORKS
    shown.right("198.51.100.1")
    assert shown.held[-1] == HOLD_SECONDS
