"""Taking one data file out of a published Python wheel, without installing or importing it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from waysout.cache import sha256
from waysout.errors import DataUnavailable, IntegrityError

_SECONDS = 600
_LARGEST = 64 << 20


@dataclass(frozen=True, slots=True)
class Wheel:
    """A file inside a published wheel; ``sha256`` is the file's as it lies there."""

    package: str
    version: str
    member: str
    sha256: str

    @property
    def requirement(self) -> str:
        """The wheel as pip names it."""
        return f"{self.package}=={self.version}"


def fetch(wheel: Wheel) -> bytes:
    """Download the wheel into a temporary folder and return the one file, verified."""
    with tempfile.TemporaryDirectory(prefix="waysout-") as folder:
        _download(wheel, Path(folder))
        data = _member(wheel, Path(folder))
    found = sha256(data)
    if found != wheel.sha256:
        raise IntegrityError(
            f"{wheel.member} in {wheel.requirement} is not the published file: "
            f"sha256 {found}, expected {wheel.sha256}"
        )
    return data


def _download(wheel: Wheel, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), wheel.requirement]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip() or "no reason given").splitlines()[-1]
        raise DataUnavailable(f"pip could not download {wheel.requirement}: {reason}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataUnavailable(f"pip could not download {wheel.requirement}: {error}") from None


def _member(wheel: Wheel, folder: Path) -> bytes:
    file = next(folder.glob("*.whl"), None)
    if file is None:
        raise DataUnavailable(f"pip left no wheel of {wheel.requirement}")
    try:
        with zipfile.ZipFile(file) as archive, archive.open(wheel.member) as member:
            return member.read(_LARGEST)
    except (KeyError, zipfile.BadZipFile) as error:
        raise IntegrityError(f"{file.name} is not the published wheel: {error}") from None
