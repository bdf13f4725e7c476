"""The engine of `transformers:`, on a processor, against transformers itself."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch", reason="the engine needs torch")
pytest.importorskip("transformers", minversion="5", reason="the engine needs transformers 5")

import tiny_models  # noqa: E402

from waysout.errors import (  # noqa: E402
    InputError,
    IntegrityError,
    LLMError,
    MissingExtra,
    UnavailableError,
)
from waysout.llm.local import load as loading  # noqa: E402
from waysout.llm.local import scheduler as scheduling  # noqa: E402
from waysout.llm.local.attention import BY_NAME  # noqa: E402
from waysout.llm.local.chat import Chat  # noqa: E402
from waysout.llm.local.engine import Engine  # noqa: E402
from waysout.llm.local.process import Ask, EngineFailure, Setup  # noqa: E402
from waysout.llm.local.scheduler import Generation, Scheduler, chances, sample  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ["llama", "qwen2", "qwen2-sliding", "gemma2", "gemma3", "gemma3-with-eyes"]
# Of many lengths, all longer than the window of the models that have one, some begin alike.
ASKED = [
    "".join(chr(ord("A") + (i * 37 + j * (1 + i % 3)) % 57) for j in range(12 + 9 * i))
    for i in range(5)
]
ASKED += [f"{ASKED[4]} {i}" for i in range(3)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {kind: tiny_models.save(root / kind, kind) for kind in KINDS}


def engine_of(folder: Path, **settings: Any) -> Engine:
    setup = Setup("tiny", str(folder), "folder", "cpu", **{"slots": 3, "context": 128, **settings})
    return Engine(setup)


@pytest.fixture(scope="module")
def engines(folders: dict[str, Path]) -> dict[str, Engine]:
    return {kind: engine_of(folder) for kind, folder in folders.items()}


@pytest.fixture
def engine(engines: dict[str, Engine]) -> Iterator[Engine]:
    made = engines["llama"]
    yield made
    assert not made.scheduler.busy
    assert len(made.scheduler._free) == made.scheduler.model.slots


def job(
    engine: Engine, number: int, text: str, temperature: float = 0.0, most: int = 16
) -> Generation:
    return engine.generation(number, Ask((("user", text),), most, temperature, 1000 + number))


def run(engine: Engine, jobs: list[Generation]) -> list[list[int]]:
    for each in jobs:
        engine.scheduler.submit(each)
    while engine.scheduler.busy:
        engine.scheduler.advance()
    return [each.written for each in jobs]


def reference(engine: Engine, kind: str) -> Any:
    """Return the same model, as transformers runs it."""
    theirs = tiny_models.network(kind)
    theirs.generation_config.eos_token_id = sorted(engine.scheduler.ends)
    theirs.generation_config.pad_token_id = 0
    return theirs


def generated(theirs: Any, prompt: list[int], most: int = 16) -> list[int]:
    with torch.inference_mode():
        out = theirs.generate(torch.tensor([prompt]), max_new_tokens=most, do_sample=False)
    written: list[int] = out[0, len(prompt) :].tolist()
    return written


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_replies_are_those_of_generate(engines: dict[str, Engine], kind: str) -> None:
    engine = engines[kind]
    theirs = reference(engine, kind)
    jobs = [job(engine, i, text) for i, text in enumerate(ASKED)]
    wanted = [generated(theirs, each.prompt) for each in jobs]
    # Eight through three slots: they join and leave while others go on.
    assert run(engine, jobs) == wanted
    assert len({tuple(each) for each in wanted}) > 3
    [alone] = run(engine, [job(engine, 0, ASKED[3])])
    assert alone == wanted[3]


@pytest.mark.parametrize(
    ("kind", "attention"),
    # The kernel cannot cap scores.
    [(kind, way) for kind in KINDS for way in BY_NAME if (kind, way) != ("gemma2", "kernel")],
)
def test_scores_are_theirs(
    engines: dict[str, Engine], kind: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, seen = engines[kind], list[Any]()
    model, plain = engine.scheduler.model, engine.scheduler.model.forward

    def watched(*args: Any, **more: Any) -> Tensor:
        seen.append(plain(*args, **more))
        return seen[-1]

    monkeypatch.setattr(model, "forward", watched)
    engine.scheduler.use(attention)
    engine.scheduler._known[:] = -1
    engine.scheduler.ends = frozenset()  # all write to the end, so that rows stay theirs
    jobs = [job(engine, i, ASKED[i], most=6) for i in range(3)]
    run(engine, jobs)
    engine.scheduler.ends = frozenset(engine.chat.ends(model.network))
    engine.scheduler.use("matmul")
    theirs = tiny_models.network(kind)
    for each in jobs:
        text = each.prompt + each.written
        with torch.inference_mode():
            wanted = theirs(torch.tensor([text])).logits[0]
        for step, ours in enumerate(seen[:6]):
            after = wanted[len(each.prompt) + step - 1]
            assert (ours[each.slot] - after).abs().max() < 1e-4, (each.id, step)


def test_what_is_drawn_depends_on_the_request_alone(engine: Engine) -> None:
    together = run(engine, [job(engine, i, text, 0.9) for i, text in enumerate(ASKED)])
    backwards = run(engine, [job(engine, i, ASKED[i], 0.9) for i in reversed(range(8))])
    assert backwards[::-1] == together
    for i in (0, 5, 7):
        assert run(engine, [job(engine, i, ASKED[i], 0.9)]) == [together[i]]
    assert len({tuple(each) for each in together}) > 5
    another = job(engine, 0, ASKED[0], 0.9)
    another.seed += 1
    assert run(engine, [another]) != [together[0]]


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_a_common_beginning_is_read_once_and_changes_nothing(
    engines: dict[str, Engine], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines[kind]
    engine.scheduler._known[:] = -1
    first, *others = [job(engine, i, ASKED[i]) for i in (4, 5, 6, 7)]
    [_] = run(engine, [first])
    shared = run(engine, others)
    assert all(each.cached > 0.8 * len(each.prompt) for each in others)
    assert first.cached == 0
    monkeypatch.setattr(scheduling, "_PREFIX", 10**6)
    unshared = [job(engine, i, ASKED[i]) for i in (5, 6, 7)]
    assert run(engine, unshared) == shared
    assert not any(each.cached for each in unshared)


def test_a_cancelled_job_frees_its_slot(engine: Engine) -> None:
    [alone] = run(engine, [job(engine, 9, ASKED[2])])
    jobs = [job(engine, i, ASKED[i]) for i in range(5)]
    for each in jobs:
        engine.scheduler.submit(each)
    engine.scheduler.advance()
    engine.scheduler.advance()
    assert sorted(engine.scheduler.live) == [0, 1, 2]
    for gone in (0, 1, 4):
        engine.scheduler.cancel(gone)
    assert list(engine.scheduler.live.values()) == [jobs[2]]
    ended = []
    while engine.scheduler.busy:
        ended += engine.scheduler.advance()
    assert sorted(each.id for each in ended) == [2, 3]
    assert jobs[2].written == alone


def test_a_prompt_that_does_not_fit_is_refused(engine: Engine) -> None:
    with pytest.raises(ValueError, match=r"tokens, and .* may have 128.*context=256"):
        engine.scheduler.submit(job(engine, 0, "w" * 140))
    nearly = job(engine, 0, "w" * 115, most=100)
    [written] = run(engine, [nearly])
    assert len(nearly.prompt) + len(written) <= 128


def test_a_reply_is_cut_where_its_time_is_up(engine: Engine) -> None:
    slow = Scheduler(engine.scheduler.model, (), seconds=-1.0)
    usual, engine.scheduler = engine.scheduler, slow
    endless = job(engine, 0, ASKED[0], most=50)
    run(engine, [endless])
    engine.scheduler = usual
    assert (endless.finish, len(endless.written)) == ("time", 1)


def test_a_reply_is_cut_where_it_is_too_long(engine: Engine) -> None:
    told = job(engine, 0, ASKED[0])
    told.written, told.finish = engine.chat._tokens("one two ü"), "length"
    assert engine.answer(told).finish == "length"
    assert engine.answer(told).text == "one two ü"
    engine.most_bytes, kept = 9, engine.most_bytes
    answer = engine.answer(told)
    engine.most_bytes = kept
    assert (answer.text, answer.finish) == ("one two ", "bytes")


def test_draws_follow_the_scores() -> None:
    many = 200_000
    scores = torch.tensor([2.0, 0.0, -1.0, 1.0, -20.0, 0.5, 0.5, 3.0]).expand(many, -1)
    chance = chances(torch.full((many,), 12345), torch.arange(many))
    assert chance.min() >= 0.0
    assert chance.max() < 1.0
    drawn = sample(scores, torch.full((many,), 1.2), chance)
    shares = torch.bincount(drawn, minlength=8) / many
    assert (shares - (scores[0] / 1.2).softmax(-1)).abs().max() < 0.005
    assert (sample(scores, torch.zeros(many), chance) == 7).all()


def test_rare_tokens_at_the_ends_of_a_vocabulary_can_be_drawn() -> None:
    wide = torch.full((3, 32001), -30.0)
    wide[:, [5, 32000]] = 0.0
    ends = sample(wide, torch.ones(3), torch.tensor([0.01, 0.49, 0.51]))
    assert ends.tolist() == [5, 5, 32000]


def test_a_reply_ends_where_the_template_closes_a_turn(engine: Engine) -> None:
    known = engine.chat.tokenizer.convert_tokens_to_ids
    assert {known("<|end|>"), known("<eos>")} <= engine.scheduler.ends


def test_a_template_without_a_system_role_gets_one_user_turn() -> None:
    refusing = Chat(tiny_models.tokenizer(tiny_models.NO_SYSTEM), "tiny")
    taking = Chat(tiny_models.tokenizer(), "tiny")
    asked = [("system", "ab"), ("user", "c")]
    assert refusing.encode(asked) == refusing.encode([("user", "ab\n\nc")])
    assert taking.encode(asked) != taking.encode([("user", "ab\n\nc")])


def test_a_model_without_a_template_is_refused(tmp_path: Path) -> None:
    folder = tiny_models.save(tmp_path, template=None)
    with pytest.raises(InputError, match=r"no chat template.*-it"):
        engine_of(folder)


# transformers 5.0 does not name the layers of mamba; the engine then sees what they lack.
@pytest.mark.parametrize(
    ("kind", "why"), [("mamba", "(linear_attention|keys and values)"), ("gpt-oss", "sinks")]
)
def test_a_model_of_another_make_is_refused(tmp_path: Path, kind: str, why: str) -> None:
    folder = tiny_models.save(tmp_path, kind)
    with pytest.raises(InputError, match=f"cannot run: .*{why}.*openai:"):
        engine_of(folder)


def test_a_model_that_computes_something_else_here_is_refused(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(at: Tensor, span: int) -> Any:
        return BY_NAME["kernel"](at // 2, span)

    monkeypatch.setitem(BY_NAME, "matmul", forgetful)
    with pytest.raises(InputError, match="different scores here after a step"):
        engine_of(folders["llama"])


def test_what_the_hub_does_not_give_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UnavailableError, match=r"(?s)cannot get no/such-model.*HF_TOKEN.*folder"):
        Engine(Setup("hub", "no/such-model", "hub", "cpu"))


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    tiny_models.tokenizer().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "telepathy"}')
    with pytest.raises(InputError, match=r"cannot load tiny.*telepathy"):
        engine_of(tmp_path)


@pytest.fixture
def copied(folders: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(folders["llama"], tmp_path / "copied"))


def change(file: Path, **settings: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))


def test_an_attention_on_the_hub_is_not_fetched(copied: Path) -> None:
    change(copied / "config.json", attn_implementation="kernels-community/vllm-flash-attn3")
    made = engine_of(copied)
    assert run(made, [job(made, 0, ASKED[0], most=2)])


def test_code_of_a_model_is_not_run(copied: Path) -> None:
    (copied / "own.py").write_text("raise SystemExit('this was run')")
    told = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    change(copied / "config.json", model_type="telepathy", auto_map=told)
    with pytest.raises(InputError, match="code that comes with a model is never run") as caught:
        engine_of(copied)
    assert "trust_remote_code" not in str(caught.value)


class Runs:
    """What runs a command where it is read."""

    def __reduce__(self) -> Any:
        return os.system, ("exit 1",)


def test_pickled_code_is_not_run(copied: Path) -> None:
    (copied / "model.safetensors").unlink()
    torch.save({"lm_head.weight": Runs()}, copied / "pytorch_model.bin")
    with pytest.raises(InputError, match="never run: use safetensors") as caught:
        engine_of(copied)
    assert "weights_only" not in str(caught.value)


def test_any_error_of_ours_can_be_told() -> None:
    assert EngineFailure.of(MissingExtra("gguf", "x")).kind is UnavailableError
    assert EngineFailure.of(IntegrityError("not the file")) == EngineFailure(
        LLMError, "not the file"
    )


def test_reading_a_gguf_file_shows_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gguf", reason="GGUF files need the package gguf")
    from transformers import modeling_gguf_pytorch_utils as reading

    usual = reading.tqdm
    with loading._quicker_gguf():
        assert list(reading.tqdm([1, 2], desc="Converting")) == [1, 2]
    assert capsys.readouterr().err == ""
    assert reading.tqdm is usual


def test_slots_and_context_are_as_asked_or_as_they_fit(folders: dict[str, Path]) -> None:
    usual = engine_of(folders["llama"], slots=0, context=0)
    assert usual.scheduler.model.slots == loading.SLOTS_ON_CPU
    assert usual.scheduler.model.context == 512  # the model reads no more
    assert usual.loaded.parallel == loading.SLOTS_ON_CPU
    with pytest.raises(InputError, match="reads at most 512"):
        engine_of(folders["llama"], context=600)
    with pytest.raises(InputError, match="sees no GPU"):
        loading._device("cuda" if not torch.cuda.is_available() else "cuda:99")
