"""``waysout doctor``: what is installed, cached and missing, and how to get it."""

from __future__ import annotations

import json as json_module
from contextlib import suppress
from typing import Any

from waysout.cli.models import here, size
from waysout.cli.output import JsonFlag, echo, print_json, print_table

# What each optional package is for, and the extra that brings it.
_PACKAGES = (
    ("lightgbm", "train", "train oracles, read LightGBM models"),
    ("optuna", "train", "tune oracles"),
    ("scikit-learn", "train", "split data, read scikit-learn models"),
    ("xgboost", "xgboost", "read XGBoost models"),
    ("catboost", "catboost", "read CatBoost models"),
    ("onnxruntime", "onnx", "read ONNX models"),
    ("skops", "skops", "read skops files"),
    ("pyarrow", "parquet", "read Parquet tables; batches and audits"),
    ("ray", "ray", "batches on a cluster"),
    ("xllamacpp", "llamacpp", "run an LLM in this process"),
    ("httpx2", "openai", "ask an LLM server over https"),
    ("huggingface_hub", "hub", "download LLMs from the Hugging Face hub"),
    ("fastapi", "serve", "the page and the HTTP API"),
    ("matplotlib", "bench", "plots of a result, pictures of experiments"),
    ("scipy", "bench", "statistics of experiments"),
    ("pymoo", "moc", "the method moc"),
    ("transformers", "transformers", "run any LLM of the hub in this process, best on a GPU"),
    ("gguf", "transformers", "read GGUF files with transformers"),
    ("tokenizers", "embed", "compare texts (embedding pruning)"),
    ("dice-ml", "dice", "the method dice"),
    ("torch", "torch", "the methods cchvae and tabular-diffusion"),
    ("treecf", "treecf", "proofs for tree models"),
    ("keyring", "keyring", "keep API keys in the system's keyring"),
)


def doctor(json: JsonFlag = False) -> None:
    """Say what is installed, cached and missing, and how to get it."""
    import platform

    from waysout import __version__
    from waysout.datasets import registry
    from waysout.files import cache_dir, data_dir
    from waysout.llm import models

    python = {"waysout": __version__, "python": platform.python_version(),
              "platform": platform.platform()}  # fmt: skip
    packages = [
        {"name": name, "version": version(name), "for": purpose,
         "get": f"pip install 'waysout[{extra}]'"}
        for name, extra, purpose in _PACKAGES
    ]  # fmt: skip
    folders = {"cache": str(cache_dir()), "data": str(data_dir() or "WAYSOUT_DATA is not set")}
    data, oracles, kept, llms = (
        registry.status(),
        oracle_states(),
        cached_learning(),
        models.status(),
    )
    if json:
        print_json({"python": python, "packages": packages, "folders": folders, "data": data,
                    "oracles": oracles, "learned": kept, "models": llms})  # fmt: skip
        return
    echo(f"waysout {__version__} on Python {python['python']}, {python['platform']}")
    print_table("Packages", ["package", "version", "for", "how to get it"],
                [(p["name"], p["version"] or "missing", p["for"], "" if p["version"] else p["get"])
                 for p in packages])  # fmt: skip
    print_table("Data", ["name", "here", "how to get it"],
                [(d["name"], "yes" if d["here"] else "no", "" if d["here"] else d["how_to_get"])
                 for d in data])  # fmt: skip
    print_oracles(oracles)
    if kept:
        print_table("Learned", ["method", "rows", "seconds", "device", "folder"],
                    [(m["name"], f"{m['rows']:,}", f"{m['seconds']:g}", m["device"], m["folder"])
                     for m in kept])  # fmt: skip
    print_table("Models", ["name", "size", "here", "how to get it"],
                [(m["name"], size(m["size"]), here(m), "" if m["here"] else m["how_to_get"])
                 for m in llms])  # fmt: skip
    for name, where in folders.items():
        echo(f"{name}: {where}")


def version(package: str) -> str | None:
    """Return the installed version of a package, or of its build for CPUs."""
    import importlib.metadata

    for name in (package, f"{package}-cpu"):
        with suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return None


def cached_learning() -> list[dict[str, Any]]:
    """Return what methods that learn have cached; unreadable manifests are left out."""
    from waysout.files import cache_dir

    found = []
    for path in sorted((cache_dir() / "learned").glob("*/manifest.json")):
        with suppress(OSError, ValueError, RecursionError, AttributeError):
            told = json_module.loads(path.read_text("utf-8"))
            numbers = all(isinstance(told.get(name), (int, float)) for name in ("rows", "seconds"))
            if numbers and all(isinstance(told.get(name), str) for name in ("name", "device")):
                found.append({**told, "folder": str(path.parent)})
    return found


def oracle_states() -> list[dict[str, Any]]:
    """Return for each data set whether its oracle is trained, and how good it is."""
    from waysout.datasets import registry
    from waysout.datasets.manifest import load_oracle_model, trained_oracles
    from waysout.errors import WaysoutError

    found = []
    for name in dict.fromkeys([*registry.DATASETS, *trained_oracles()]):
        try:
            accuracy: float | None = load_oracle_model(name)[1].accuracy
        except WaysoutError:
            accuracy = None
        get = "" if accuracy else f"waysout oracle train {name}"
        found.append({"name": name, "accuracy": accuracy, "get": get})
    return found


def print_oracles(states: list[dict[str, Any]]) -> None:
    """Print which oracles are trained."""
    rows = [(o["name"], o["accuracy"] or "not trained", o["get"]) for o in states]
    print_table("Oracles", ["data set", "accuracy", "how to get it"], rows)
