"""The way to Gemma-3-12B that docs/experiments.md describes, walked against a compatible server."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_world import in_bench, trained_cache  # noqa: F401
from scripted_server import Exchange, ScriptedServer, ok, serving_apart

from conftest import CommandLine
from waysout.bench.results import Results

PLAN = """
like = "llm-budget"
title = "The arms of llm-budget on the synthetic data"
datasets = ["synthetic"]
rules = "realistic"
queries = 2
calls = 4
"""
SPANS = {
    "income": (41_000, 90_000), "savings": (8_000, 65_000), "credit_score": (650, 850),
    "other_debts": (0, 2_000), "card_use": (0, 1),
}  # fmt: skip
NO_ENCODER = ("Comp-MCTS", "Comp-MCTS, no pruning", "LATS *", "recombine*", "random")


async def propose(exchange: Exchange) -> None:
    """Name as many edits as are asked for, the same for the same prompt."""
    asked = re.findall(r"(?:Suggest|Name) (\d+) ", exchange.prompt)
    blocks = []
    for place in range(int(asked[-1]) if asked else 1):
        draw = hashlib.sha256(f"{exchange.prompt} {place}".encode()).digest()
        name = list(SPANS)[draw[0] % len(SPANS)]
        low, high = SPANS[name]
        value = draw[1] / 512 if name == "card_use" else low + (high - low) * draw[1] // 255
        blocks.append(f"CANDIDATE={place + 1}\nFEATURE={name}\nVALUE={value}\nREASONING=scripted")
    await ok("\n\n".join(blocks))(exchange)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with serving_apart(propose) as running:
        yield running


@pytest.mark.slow
def test_the_arms_of_llm_budget_run_on_an_openai_compatible_server(
    waysout: CommandLine,
    server: ScriptedServer,
    in_bench: Path,  # noqa: F811
) -> None:
    (in_bench / "gemma.toml").write_text(PLAN, encoding="utf-8")
    name = f"openai:google/gemma-3-12b-it@{server.url}"
    only = [part for arm in NO_ENCODER for part in ("--only", arm)]
    run = (
        "bench",
        "run",
        "gemma.toml",
        "--llm",
        f"{name}?parallel=8",
        *only,
        "--jobs",
        "1",
        "--results",
        "kept",
    )
    code, out, err = waysout(*run)
    assert code == 0, err
    assert "26 searches done" in out
    asked = server.requests
    assert {exchange.body["model"] for exchange in server.seen} == {"google/gemma-3-12b-it"}
    assert {exchange.body["temperature"] for exchange in server.seen} == {0.7, 1.2}

    code, _, err = waysout(*run)  # all of it is on file
    assert (code, server.requests) == (0, asked), err

    # What the probe took tells what the rest will: here there is none.
    estimate = ("bench", "estimate", "gemma.toml", *only, "--results", "kept", "--json")
    code, out, err = waysout(*estimate, "--llm", f"{name}?parallel=8")
    (left,) = json.loads(out)["plans"]
    assert (code, left["searches"], left["on_file"], left["unknown"]) == (0, 0, 24, 0), err
    # With another LLM it is all still to do, and its tokens are those of this one.
    code, out, err = waysout(*estimate, "--llm", "openai:other@http://127.0.0.1:1/v1")
    (left,) = json.loads(out)["plans"]
    assert (code, left["searches"], left["alike"]) == (0, 24, 0), err
    assert left["tokens_in"] == pytest.approx(11 * left["calls"])  # as the server counts them

    table = ("bench", "table", "llm-budget", "--plan", "gemma.toml", "--results", "kept")
    code, out, err = waysout(*table, "--llm", name, "--format", "csv")
    assert code == 0, err
    lines = [line for line in csv.DictReader(out.splitlines()) if line["table"] == "llm-budget"]
    left_out = {line["arm"] for line in lines if line["n"] == "not run"}
    assert left_out == {"Comp-MCTS, embedding pruning"}
    yields = {line["arm"]: float(line["unique_valid"] or 0) for line in lines}
    assert yields["recombine"] > 0
    assert yields["LATS standard, K=5"] > 0


@pytest.fixture
def llama_server() -> Iterator[str]:
    """The address of llama.cpp's own server, which is compatible too, with a small model."""
    xllamacpp = pytest.importorskip("xllamacpp", reason="needs waysout[llamacpp]")
    gguf = os.environ.get("WAYSOUT_GGUF")
    if not gguf:
        pytest.skip("WAYSOUT_GGUF is not set: there is no model to ask")
    params = xllamacpp.CommonParams()
    params.model.path, params.n_parallel, params.n_ctx = gguf, 2, 2 * 4096
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.verbosity, params.warmup = -1, False
    params.hostnames, params.port = ["127.0.0.1"], 0
    running = xllamacpp.Server(params)
    yield f"{running.listening_address}/v1"
    del running


@pytest.mark.llm
def test_a_real_compatible_server(
    waysout: CommandLine,
    llama_server: str,
    in_bench: Path,  # noqa: F811
) -> None:
    few = PLAN.replace("calls = 4", "calls = 2")
    (in_bench / "gemma.toml").write_text(few, encoding="utf-8")
    llm = f"openai:google/gemma-3-12b-it@{llama_server}?parallel=2"
    only = ("--only", "Comp-MCTS", "--only", "LATS standard, K=1", "--queries", "1")
    code, out, err = waysout("bench", "run", "gemma.toml", "--llm", llm, *only, "--results", "kept")
    assert code == 0, err
    assert "2 searches done" in out
    with Results.read(Path("kept")) as kept:
        assert all(cell.value("tokens_out") for cell in kept.cells())
