"""How `transformers:` draws tokens: as `generate` does with a model's own settings."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from waysout.errors import InputError
from waysout.llm.base import Message, Request
from waysout.llm.connect import connect
from waysout.llm.local.process import Ask, Setup
from waysout.llm.local.sampling import FILE, UNSAID, Sampling
from waysout.llm.models import writes_reasons
from waysout.llm.transformers import Transformers

if TYPE_CHECKING:
    from torch import Tensor

    from waysout.llm.local.engine import Engine

QWEN = {"do_sample": False, "temperature": 0.7, "top_k": 20, "top_p": 0.8,
        "repetition_penalty": 1.1, "eos_token_id": [5]}  # fmt: skip
GEMMA = "google/gemma-3-12b-it"


def need_packages() -> None:
    pytest.importorskip("torch", reason="the engine needs torch")
    pytest.importorskip("transformers", minversion="5", reason="the engine needs transformers 5")


def write(folder: Path, settings: object) -> Path:
    (folder / FILE).write_text(json.dumps(settings))
    (folder / "qwen.gguf").write_bytes(b"GGUF" + bytes(6))
    return folder / "qwen.gguf"


# Names, options and files ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "suffix"),
    [
        ("", "?top_k=20&top_p=0.8&repetition_penalty=1.1"),
        ("?sampling=own&slots=3", "?top_k=20&top_p=0.8&repetition_penalty=1.1"),
        ("?min_p=0.050&top_k=0", "?top_p=0.8&min_p=0.05&repetition_penalty=1.1"),
        ("?sampling=plain", ""),
        ("?sampling=plain&repetition_penalty=2.0&top_k=5", "?top_k=5&repetition_penalty=2"),
        ("?top_k=0&top_p=1&repetition_penalty=1", ""),
    ],
)
def test_the_name_says_how_tokens_are_drawn(tmp_path: Path, options: str, suffix: str) -> None:
    file = write(tmp_path, QWEN)
    assert connect(f"transformers:{file}{options}").name == f"transformers:qwen.gguf@10{suffix}"


@pytest.mark.parametrize(
    ("options", "suffix"),
    [
        ("", ""),
        ("?top_p=0.9&top_k=0", "?top_k=0&top_p=0.9"),
        ("?sampling=plain", "?sampling=plain"),
        ("?sampling=plain&top_k=7&top_p=1", "?sampling=plain&top_k=7"),
    ],
)
def test_a_model_of_the_hub_is_called_by_what_was_asked_for(options: str, suffix: str) -> None:
    assert connect(f"transformers:{GEMMA}{options}").name == f"transformers:{GEMMA}{suffix}"


def test_what_a_file_leaves_out_is_what_generate_takes(tmp_path: Path) -> None:
    assert connect(f"transformers:{write(tmp_path, {})}").name.endswith("@10?top_k=50")
    file = write(tmp_path, {"top_k": None, "top_p": None, "min_p": 0})
    assert connect(f"transformers:{file}").name.endswith("@10?top_k=50")
    (tmp_path / FILE).unlink()
    assert connect(f"transformers:{file}").name.endswith("@10")
    need_packages()
    from transformers import GenerationConfig

    theirs = GenerationConfig._get_default_generation_params()
    for name in ("top_k", "top_p", "repetition_penalty"):
        assert theirs[name] == UNSAID.get(name, getattr(Sampling(), name))
    assert theirs.get("min_p") is None


def test_a_folder_has_a_file_of_its_own_and_a_name_has_none(tmp_path: Path) -> None:
    write(tmp_path, QWEN)
    assert "?top_k=20&" in connect(f"transformers:{tmp_path}").name
    assert connect("transformers:smollm2-135m").name == "transformers:smollm2-135m"


def test_a_model_that_writes_nonsense_is_known_however_it_is_drawn_from(tmp_path: Path) -> None:
    file = write(tmp_path, QWEN).rename(tmp_path / "SmolLM2-135M-Instruct.gguf")
    assert not writes_reasons(connect(f"transformers:{file}").name)
    assert not writes_reasons(connect("transformers:smollm2-135m?top_k=5").name)
    assert writes_reasons(connect(f"transformers:{GEMMA}?sampling=plain&top_k=5").name)


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("sampling=greedy", "sampling is own or plain, not 'greedy'"),
        ("top_k=-1", "top_k is a whole number of at least 0.*, not -1"),
        ("top_k=2.5", r"top_k is a whole number.*, not '2\.5'"),
        ("top_k=", "top_k is a whole number.*, not ''"),
        ("top_p=0", r"top_p is a number above 0, at most 1.*, not 0\.0"),
        ("top_p=1.01", r"top_p is .*, not 1\.01"),
        ("top_p=nan", "top_p is .*, not nan"),
        ("top_p=most", "top_p is .*, not 'most'"),
        ("min_p=1", r"min_p is a number from 0 \(off\) to below 1, not 1\.0"),
        ("min_p=-0.1", r"min_p is .*, not -0\.1"),
        ("repetition_penalty=0", "repetition_penalty is a finite number above 0"),
        ("repetition_penalty=inf", "repetition_penalty is a finite number.*, not inf"),
        ("topk=3", "did you mean 'top_k'"),
    ],
)
def test_a_wrong_option_says_what_to_write(option: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        connect(f"transformers:a/b?{option}")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "cannot read .*json"),
        ("[1]", "holds no settings"),
        ('{"top_k": "20"}', r"json: top_k is .*, not '20'"),
        ('{"top_k": 20.0}', "json: top_k is"),
        ('{"top_p": true}', "json: top_p is .*, not True"),
        ('{"min_p": [0.1]}', "json: min_p is"),
        ('{"repetition_penalty": NaN}', "json: repetition_penalty is"),
        (f'{{"repetition_penalty": 1{"0" * 400}}}', "json: repetition_penalty is"),
    ],
)
def test_a_broken_file_is_named_and_can_be_done_without(
    tmp_path: Path, content: str, reason: str
) -> None:
    file = write(tmp_path, {})
    (tmp_path / FILE).write_text(content)
    with pytest.raises(InputError, match=rf"(?s){reason}.*sampling=plain"):
        connect(f"transformers:{file}")
    assert connect(f"transformers:{file}?sampling=plain").name == "transformers:qwen.gguf@10"


# One draw ----------------------------------------------------------------------------------------

GRID = [
    Sampling(top_k, top_p, min_p)
    for top_k, top_p, min_p in itertools.product((0, 1, 7, 150, 999), (1, 0.9, 0.3), (0, 0.05, 0.6))
]


def theirs(scores: Tensor, temperature: float, sampling: Sampling) -> Tensor:
    """Return the probabilities by transformers' own classes, in the order of `generate`."""
    from transformers.generation import logits_process as hf

    steps: list[Any] = [hf.TemperatureLogitsWarper(temperature)]
    steps += [hf.TopKLogitsWarper(sampling.top_k)] if sampling.top_k else []
    steps += [hf.TopPLogitsWarper(sampling.top_p)] if sampling.top_p < 1 else []
    steps += [hf.MinPLogitsWarper(sampling.min_p)] if sampling.min_p else []
    for step in steps:
        scores = step(None, scores)
    return scores.softmax(-1)


@pytest.mark.parametrize("sampling", GRID, ids=str)
def test_tokens_are_drawn_as_by_generate(sampling: Sampling) -> None:
    need_packages()
    import torch

    from waysout.llm.local.scheduler import sample

    many = 20_000
    evenly = (torch.arange(many) + 0.5) / many
    for seed, (size, temperature) in enumerate(((300, 0.7), (128, 1.5), (40, 1.0))):
        torch.manual_seed(seed)
        scores = 2 * torch.randn(1, size)
        wanted = theirs(scores, temperature, sampling)[0]
        rows = scores.expand(many, -1)
        drawn = sample(rows, torch.full((many,), temperature), evenly, sampling)
        shares = torch.bincount(drawn, minlength=size) / many
        # Chances that are evenly spaced meet each token as often as it is likely, but for its ends.
        assert (shares - wanted).abs().max() < 2.5 / many
        assert not shares[wanted == 0].any()
        assert shares[wanted > 2 / many].all()
        assert (sample(rows[:9], torch.zeros(9), evenly[:9], sampling) == scores.argmax()).all()


@pytest.mark.parametrize(("width", "k"), [(40, 20), (2_500, 20), (5_120, 7), (5_120, 1)])
def test_the_likeliest_of_a_long_row_are_those_of_topk(width: int, k: int) -> None:
    need_packages()
    import torch

    from waysout.llm.local.scheduler import top

    scores = torch.randn(30, width, generator=torch.Generator().manual_seed(width + k))
    scores[:5, : width // 2] += 9  # neighbours, all in a few runs
    values, at = top(scores, k)
    wanted = scores.topk(k)
    assert torch.equal(values, wanted.values)
    assert torch.equal(at, wanted.indices)


@pytest.mark.parametrize("penalty", [1.3, 0.7])
def test_seen_tokens_are_penalised_as_by_generate(penalty: float) -> None:
    need_packages()
    import torch
    from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

    from waysout.llm.local.scheduler import penalised

    torch.manual_seed(1)
    scores, history = torch.randn(4, 50), torch.randint(50, (4, 20))
    history[0, 1:4] = history[0, 0]
    lengths = torch.tensor([4, 1, 20, 9])
    ours = penalised(scores, history, lengths, penalty)
    for row, length in enumerate(lengths.tolist()):
        wanted = RepetitionPenaltyLogitsProcessor(penalty)(
            history[row : row + 1, :length], scores[row : row + 1].clone()
        )
        assert torch.equal(ours[row : row + 1], wanted)


# Whole replies -----------------------------------------------------------------------------------

TEXTS = ["abcabc", "tell me more of it", "x" * 40, "x" * 40 + "y", "x" * 40 + "z"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_packages()
    import tiny_models

    return tiny_models.save(tmp_path_factory.mktemp("model") / "tiny", "llama")


def engine_of(folder: Path, kind: str = "folder", **settings: Any) -> Engine:
    from waysout.llm.local.engine import Engine

    return Engine(Setup("tiny", str(folder), kind, "cpu", slots=3, context=128, **settings))


def written(engine: Engine, temperature: float) -> list[list[int]]:
    asked = [
        engine.generation(i, Ask((("user", text),), 24, temperature, 1000 + i))
        for i, text in enumerate(TEXTS)
    ]
    for each in asked:
        engine.scheduler.submit(each)
    while engine.scheduler.busy:
        engine.scheduler.advance()
    return [each.written for each in asked]


def test_greedy_replies_with_a_penalty_are_those_of_generate(folder: Path) -> None:
    import tiny_models
    import torch

    engine = engine_of(folder, sampling={"repetition_penalty": 1.3})
    plain = engine_of(folder)
    assert engine.loaded.about.endswith("tokens, drawing with repetition_penalty=1.3)")
    assert "drawing" not in plain.loaded.about
    network = tiny_models.network("llama")
    ends = sorted(engine.scheduler.ends)
    # Twice: what was seen by those who had the slots before is forgotten.
    for _ in range(2):
        replies = written(engine, 0.0)
        for text, reply in zip(TEXTS, replies, strict=True):
            prompt = engine.chat.encode([("user", text)])
            with torch.inference_mode():
                out = network.generate(
                    torch.tensor([prompt]), max_new_tokens=24, do_sample=False, pad_token_id=0,
                    repetition_penalty=1.3, eos_token_id=ends,
                )  # fmt: skip
            assert reply == out[0, len(prompt) :].tolist()
    assert replies != written(plain, 0.0)


def test_a_model_of_the_hub_is_drawn_from_as_its_file_says(folder: Path) -> None:
    """The folder stands for one that was downloaded."""
    (folder / FILE).write_text(json.dumps({"top_p": 0.9, "top_k": 20, "eos_token_id": 5}))
    engine = engine_of(folder, "hub", sampling={"top_k": 1}, sampling_of_model=True)
    assert engine.scheduler.sampling == Sampling(top_k=1, top_p=0.9)
    assert engine.loaded.about.endswith("drawing with top_k=1, top_p=0.9)")
    (folder / FILE).write_text(json.dumps({"eos_token_id": 5}))
    assert engine_of(folder, "hub", sampling_of_model=True).scheduler.sampling == Sampling(50)
    assert engine_of(folder, "hub").scheduler.sampling == Sampling()


@pytest.mark.slow
def test_a_model_is_drawn_from_as_it_says_or_by_the_temperature_alone(folder: Path) -> None:
    (folder / FILE).write_text(json.dumps({"top_k": 1, "eos_token_id": 5}))
    asked = Request((Message("user", "Tell a story."),), max_tokens=16, temperature=1.0)

    async def replies(options: str) -> tuple[str, list[str]]:
        made = connect(f"transformers:{folder}?context=128&device=cpu&threads=1{options}")
        assert isinstance(made, Transformers)
        async with made:
            drawn = [replace(asked, draw=i) for i in range(3)]
            told = [await made.complete(each) for each in (replace(asked, temperature=0), *drawn)]
            return made.loaded, [reply.text for reply in told]

    about, own = asyncio.run(replies(""))
    assert "drawing with top_k=1)" in about
    assert len(set(own)) == 1
    about, plain = asyncio.run(replies("&sampling=plain"))
    assert "drawing" not in about
    assert len(set(plain)) == 4
