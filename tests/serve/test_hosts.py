from __future__ import annotations

import pytest

from waysout.errors import InputError
from waysout.serve.hosts import Hosts, is_loopback, url_of

OURS = Hosts.of("127.0.0.1", 8765)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8765", "localhost:8765", "LocalHost:8765"],
)
def test_this_machine_has_several_names(host: str) -> None:
    assert OURS.is_host(host)
    assert OURS.is_origin(f"http://{host}")
    assert OURS.is_origin(f"https://{host}")


@pytest.mark.parametrize(
    "host",
    [
        "", "evil.example:8765", "localhost", "localhost:80", "localhost:8766", "localhost:",
        "localhost:08765", "localhost:8765:8765", "localhost:+8765", "localhost:８765",
        "localhost.:8765", "localhost.evil.example:8765", "evil-localhost:8765", "127.0.0.2:8765",
        "127.1:8765", "2130706433:8765", "0.0.0.0:8765", "me@localhost:8765", "localhost:8765@evil",
        " localhost:8765", "localhost :8765", "localhost:8765\n", "localhost:8765, evil.example",
        "localhost:8765/", "localhost:8765#", "::1:8765", "[::1%lo]:8765", "[::2]:8765",
        "[localhost]:8765", "[::1]", "[::1]:8765", "\u212aocalhost:8765", "ⓛocalhost:8765",
    ],
)  # fmt: skip
def test_any_other_host_is_foreign(host: str) -> None:
    assert not OURS.is_host(host)
    assert not OURS.is_origin(f"http://{host}")


@pytest.mark.parametrize(
    "origin",
    [
        "null", "", "localhost:8765", "//localhost:8765", "http:localhost:8765",
        "http://localhost:8765/", "http://localhost:8765/path", "http://localhost:8765?q",
        "http://localhost", "https://localhost", "ftp://localhost:8765", "file://",
        "javascript://localhost:8765", "http://me@localhost:8765", "http://evil/localhost:8765",
        "http://localhost:8765 http://evil", " http://localhost:8765", "http://http://localhost:8765",
    ],
)  # fmt: skip
def test_an_origin_is_a_scheme_and_one_of_our_places(origin: str) -> None:
    assert not OURS.is_origin(origin)


def test_a_scheme_in_capitals_is_the_same_scheme() -> None:
    assert OURS.is_origin("HTTP://LOCALHOST:8765")


def test_a_usual_port_may_be_left_out_where_it_is_ours() -> None:
    plain = Hosts.of("127.0.0.1", 80)
    assert plain.is_host("localhost")
    assert plain.is_host("localhost:80")
    assert plain.is_origin("http://localhost")
    assert plain.is_origin("https://localhost:80")
    assert not plain.is_origin("https://localhost")
    secure = Hosts.of("127.0.0.1", 443)
    assert secure.is_host("localhost")
    assert secure.is_origin("https://localhost")
    assert not secure.is_origin("http://localhost")


def test_an_allowed_name_is_meant_at_our_port_and_behind_a_proxy() -> None:
    ours = Hosts.of("0.0.0.0", 8765, ["Loans.example"])
    assert ours.is_host("loans.example")
    assert ours.is_host("loans.example:8765")
    assert ours.is_origin("https://loans.example")
    assert not ours.is_host("loans.example:8766")
    assert not ours.is_host("sub.loans.example")
    assert ours.is_host("localhost:8765")


def test_an_allowed_name_with_a_port_is_meant_at_that_port() -> None:
    ours = Hosts.of("0.0.0.0", 8765, ["loans.example:443", "[2001:DB8::0:1]:9000"])
    assert ours.is_origin("https://loans.example")
    assert not ours.is_origin("http://loans.example")
    assert not ours.is_host("loans.example:8765")
    assert ours.is_host("[2001:db8::1]:9000")


def test_a_server_of_the_network_has_no_name_of_this_machine() -> None:
    ours = Hosts.of("192.168.1.5", 8765)
    assert ours.is_host("192.168.1.5:8765")
    assert not ours.is_host("localhost:8765")
    assert not ours.is_host("127.0.0.1:8765")


@pytest.mark.parametrize("host", ["::1", "::"])
def test_an_address_of_the_newer_kind_may_be_written_in_many_ways(host: str) -> None:
    ours = Hosts.of(host, 8765)
    for name in ("[::1]:8765", "[0:0:0:0:0:0:0:1]:8765", "localhost:8765"):
        assert ours.is_host(name)
        assert ours.is_origin(f"http://{name}")
    for name in ("[::1]", "::1:8765", "127.0.0.1:8765"):
        assert not ours.is_host(name)


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("127.0.0.1", {"127.0.0.1", "localhost"}),
        ("localhost", {"127.0.0.1", "localhost"}),
        ("::1", {"[::1]", "localhost"}),
        ("127.0.0.9", {"127.0.0.9"}),
    ],
)
def test_somebody_else_may_have_our_port_at_another_address(host: str, names: set[str]) -> None:
    assert set(Hosts.of(host, 8765).names) == {f"{name}:8765" for name in names}


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_the_address_of_all_networks_is_nobody_s_name(host: str) -> None:
    ours = Hosts.of(host, 8765)
    assert not ours.is_host("0.0.0.0:8765")
    assert not ours.is_host("[::]:8765")
    assert ours.is_host("localhost:8765")
    assert ours.is_origin(url_of(host, 8765).rstrip("/"))


@pytest.mark.parametrize(
    "name",
    ["", "*", "*.example", "http://loans.example", "a b", "loans.example/", "x:0", "münchen"],
)
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="a host is NAME or NAME:PORT"):
        Hosts.of("127.0.0.1", 8765, [name])


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True), ("127.255.0.3", True), ("::1", True), ("localhost", True),
        ("0.0.0.0", False), ("::", False), ("192.168.1.5", False), ("mybox", False), ("", False),
        ("localhost.evil.example", False), ("127.0.0.1.evil.example", False),
    ],
)  # fmt: skip
def test_what_only_this_machine_can_reach(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_an_address_to_open() -> None:
    assert url_of("localhost", 1) == "http://localhost:1/"
    assert url_of("::1", 8765) == "http://[::1]:8765/"
