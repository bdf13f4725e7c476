from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_encoder import WORDS, write_encoder, write_model, write_tokenizer

from waysout.embed import REMEMBERED, OnnxEncoder, encoder
from waysout.errors import InputError, MissingExtra

for _package in ("onnxruntime", "tokenizers", "onnx"):
    pytest.importorskip(_package, reason=f"the optional package {_package} is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_encoder(tmp_path)


def test_a_text_is_the_mean_of_its_tokens_at_length_one(folder: Path) -> None:
    half = 2**-0.5
    expected = [[1, 0, 0], [half, half, 0], [2 / 5**0.5, 0, 1 / 5**0.5]]
    rows = encoder(str(folder)).encode(["east", "east north", "east up east"])
    assert rows.dtype == np.float32
    assert rows == pytest.approx(np.array(expected), abs=1e-6)


def test_nothing_gives_no_rows(folder: Path) -> None:
    assert len(encoder(str(folder)).encode([])) == 0


def test_a_text_is_cut_at_256_tokens_and_not_where_the_file_says(folder: Path) -> None:
    found = encoder(str(folder))
    row, same, other = found.encode(
        [" ".join(["east"] * 256), "east " * 256 + "north", "east " * 200 + "north " * 20]
    )
    assert row.tolist() == same.tolist() == [1, 0, 0]
    assert other == pytest.approx(np.array([10, 1, 0]) / 101**0.5)


def test_a_text_alone_and_among_others_is_the_same(folder: Path) -> None:
    found = encoder(str(folder))
    alone = OnnxEncoder.load("fresh", folder / "model.onnx", folder / "tokenizer.json")
    together = found.encode(["up", "east north up", "north " * 100])
    assert together[1].tolist() == alone.encode(["east north up"])[0].tolist()


def test_texts_are_remembered_up_to_a_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Sequence[int]] = []
    whole = OnnxEncoder._run

    def counting(self: OnnxEncoder, ids: Sequence[int]) -> NDArray[Any]:
        runs.append(ids)
        return whole(self, ids)

    monkeypatch.setattr(OnnxEncoder, "_run", counting)
    found = OnnxEncoder.load("counting", folder / "model.onnx", folder / "tokenizer.json")
    runs.clear()
    found.encode(["east", "north", "east"])
    found.encode(["north", "up"])
    assert runs == [[WORDS["east"]], [WORDS["north"]], [WORDS["up"]]]
    assert found._encode.cache_info().maxsize == REMEMBERED


def test_an_encoder_is_loaded_once(folder: Path) -> None:
    assert encoder(str(folder)) is encoder(str(folder))
    assert encoder(str(folder)).name == str(folder)


@pytest.mark.parametrize("name", ["onnx/model.onnx", "quantised.onnx", "onnx/quantised.onnx"])
def test_the_model_is_found_under_other_names(tmp_path: Path, name: str) -> None:
    found = encoder(str(write_encoder(tmp_path, name)))
    assert found.encode(["north"]).tolist() == [[0, 1, 0]]


def test_a_folder_that_is_none_or_lacks_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no folder .*nothing.*tokenizer\.json"):
        encoder(str(tmp_path / "nothing"))
    with pytest.raises(InputError, match=r"has no tokenizer\.json"):
        encoder(str(tmp_path))
    write_tokenizer(tmp_path / "tokenizer.json")
    with pytest.raises(InputError, match=r"needs one model\.onnx; it has no \.onnx file at all"):
        encoder(str(tmp_path))
    write_model(tmp_path / "a.onnx")
    write_model(tmp_path / "b.onnx")
    with pytest.raises(InputError, match=r"needs one model\.onnx; it has a\.onnx, b\.onnx"):
        encoder(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x00" * 100])
def test_a_broken_model_is_named(folder: Path, content: bytes) -> None:
    (folder / "model.onnx").write_bytes(content)
    with pytest.raises(InputError, match=r"model\.onnx is no ONNX model"):
        encoder(str(folder))


def test_a_model_cut_short_is_named(folder: Path) -> None:
    whole = (folder / "model.onnx").read_bytes()
    (folder / "model.onnx").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"model\.onnx is no ONNX model"):
        encoder(str(folder))


@pytest.mark.parametrize("content", ["", "{}", '{"version": '])
def test_a_broken_tokenizer_is_named(folder: Path, content: str) -> None:
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(InputError, match=r"tokenizer\.json is no tokenizer"):
        encoder(str(folder))


def test_a_model_with_other_inputs_is_refused(folder: Path) -> None:
    write_model(folder / "model.onnx", takes="pixels")
    with pytest.raises(InputError, match=r"model\.onnx.*wants the input 'pixels'"):
        encoder(str(folder))


def test_a_model_that_gives_no_vector_for_each_token_is_refused(folder: Path) -> None:
    write_model(folder / "model.onnx", pooled=True)
    with pytest.raises(InputError, match=r"has the shape \(1, 3\) for \(1, 1\) tokens"):
        encoder(str(folder))


def test_a_tokenizer_of_another_model_is_noticed(folder: Path) -> None:
    write_model(folder / "model.onnx", rows=3)
    found = encoder(str(folder))
    with pytest.raises(InputError, match="cannot be run"):
        found.encode(["up"])


def test_a_text_without_a_direction_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="no direction for the text 'nowhere'"):
        encoder(str(folder)).encode(["nowhere"])


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers"])
def test_a_missing_package_names_its_extra(
    folder: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"'{package}'.*waysout\[embed\]"):
        encoder(str(folder))


def test_importing_loads_nothing_heavy() -> None:
    code = "import sys, waysout.embed; print({'onnxruntime', 'tokenizers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
