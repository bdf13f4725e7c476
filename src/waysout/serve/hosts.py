"""Which Host and Origin headers name this server: names and ports on a list, and nothing else."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from waysout.errors import InputError, shown

_DEFAULT_PORTS = {"http": 80, "https": 443}
_PLACE = re.compile(
    r"(?P<name>[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?|\[[0-9a-f:.]+\])(?::(?P<port>[1-9][0-9]{0,4}))?"
)
_ORIGIN = re.compile(r"(?P<scheme>https?)://(?P<place>[^/]+)")
# A server bound to all addresses is reached from this machine by these.
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}
# Only names that are surely ours: beside 127.0.0.1, another process may hold the port at [::1].
_ALSO = {"localhost": "127.0.0.1", "127.0.0.1": "localhost", "::1": "localhost"}


@dataclass(frozen=True)
class Hosts:
    """The names and ports of this server. Pages of any other may not talk to it.

    >>> from waysout.serve import Hosts
    >>> ours = Hosts.of("127.0.0.1", 8765)
    >>> ours.is_host("localhost:8765"), ours.is_host("localhost"), ours.is_host("evil.org:8765")
    (True, False, False)
    >>> ours.is_origin("http://127.0.0.1:8765"), ours.is_origin("null")
    (True, False)
    """

    places: frozenset[tuple[str, int]]

    @classmethod
    def of(cls, host: str, port: int, also: Iterable[str] = ()) -> Hosts:
        """Return the names of a server bound to a host and port, and those in ``also``.

        A name without a port stands for our own port, and for those a browser leaves out: a proxy
        in front of us has one of them.
        """
        host = _ANY.get(host, host)
        places = {(name, port) for name in (_written(host), _ALSO.get(host, _written(host)))}
        for text in also:
            found = _read(text.strip())
            if found is None:
                raise InputError(
                    f"a host is NAME or NAME:PORT (an IPv6 address in brackets), not {shown(text)}"
                )
            name, given = found
            ports = (port, *_DEFAULT_PORTS.values()) if given is None else (given,)
            places |= {(name, each) for each in ports}
        return cls(frozenset(places))

    @property
    def names(self) -> list[str]:
        """The names and ports as they are written in a URL."""
        return sorted(f"{name}:{port}" for name, port in self.places)

    def is_host(self, raw: str) -> bool:
        """Whether a Host header names us. Without a port it means one of the default two."""
        name, port = _read(raw) or ("", None)
        ports = _DEFAULT_PORTS.values() if port is None else (port,)
        return any((name, each) in self.places for each in ports)

    def is_origin(self, raw: str) -> bool:
        """Whether an Origin header names a page of ours."""
        found = _ORIGIN.fullmatch(raw.lower()) if raw.isascii() else None
        place = _read(found["place"]) if found else None
        if found is None or place is None:
            return False
        return (place[0], place[1] or _DEFAULT_PORTS[found["scheme"]]) in self.places


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what is bound to a host.

    >>> [is_loopback(host) for host in ("127.0.0.9", "::1", "localhost", "0.0.0.0", "mybox")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def network_of(address: str) -> str:
    """Return whom an address counts for: itself, or of IPv6 the /64, which one customer has whole.

    >>> network_of("192.0.2.7"), network_of("2001:db8::7:1"), network_of("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8::/64', '192.0.2.7')
    """
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, 64), strict=False))


def url_of(host: str, port: int) -> str:
    """Return the address to open; of a server bound to everything, that of this machine."""
    return f"http://{_written(_ANY.get(host, host))}:{port}/"


def _written(host: str) -> str:
    """Return a host as it is written in a URL."""
    return _plain(f"[{host}]" if ":" in host else host.lower())


def _read(text: str) -> tuple[str, int | None] | None:
    """Return the name and the port of a plain ``name[:port]``, or None."""
    found = _PLACE.fullmatch(text.lower()) if text.isascii() else None
    if found is None:
        return None
    return _plain(found["name"]), int(found["port"]) if found["port"] else None


def _plain(name: str) -> str:
    """Return the canonical form of an IPv6 address; other names stay as they are."""
    try:
        return f"[{ipaddress.IPv6Address(name.strip('[]')).compressed}]"
    except ValueError:
        return name
