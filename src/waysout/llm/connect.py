"""Connection strings: one text names a backend anywhere a user may choose one."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from waysout.errors import InputError, shown, unknown
from waysout.llm.base import Backend


@dataclass(frozen=True, slots=True)
class Provider:
    """How one kind of backend is made: its factory takes what follows the colon, and options."""

    factory: str
    usage: str
    what: str
    options: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    """Options that are no numbers; the factory checks them."""


PROVIDERS: Mapping[str, Provider] = {
    "llamacpp": Provider(
        "llamacpp:connect",
        "llamacpp:NAME or llamacpp:FILE.gguf",
        "a GGUF model in this process; NAME: see `waysout models list`",
        ("slots", "threads", "context"),
    ),
    "openai": Provider(
        "openai.pool:connect",
        "openai:MODEL@URL[,URL…]",
        "any OpenAI-compatible server (vLLM, SGLang, llama.cpp, Ollama, a cloud), or several",
        ("parallel", "seconds", "silence", "patience"),
        ("stream",),
    ),
    "replay": Provider("replay:load", "replay:FILE", "answers from a recording"),
    "simulated": Provider(
        "simulated:connect", "simulated:SEED", "a simulated LLM, for tests and dry runs"
    ),
    "transformers": Provider(
        "transformers:connect",
        "transformers:OWNER/NAME, transformers:FOLDER or transformers:FILE.gguf",
        "a model of the Hugging Face hub or of your own, in one batch; best on a GPU",
        ("slots", "context", "threads"),
        ("device",),
    ),
}
DEFAULT = "llamacpp:smollm2-135m"


def connect(name: str) -> Backend:
    """Return the backend that a connection string names; nothing is loaded or contacted yet.

    Options follow a question mark: ``llamacpp:smollm2-135m?slots=8&threads=2``.
    """
    scheme, colon, rest = name.partition(":")
    provider = PROVIDERS.get(scheme)
    if provider is None:
        hint = f"; did you mean llamacpp:{name}?" if _is_model(name) else "."
        known = ", ".join(p.usage for p in PROVIDERS.values())
        raise InputError(f"{unknown('LLM backend', scheme, PROVIDERS)}{hint} Write {known}")
    target, options = _options(rest, provider)
    if not colon or not target:
        raise InputError(f"{shown(name)} is incomplete: write {provider.usage}")
    module, _, factory = provider.factory.partition(":")
    made: Backend = getattr(importlib.import_module(f"waysout.llm.{module}"), factory)(
        target, **options
    )
    return made


def is_simulated(llm: str | None) -> bool:
    """Whether a name or a connection string is that of the simulated LLM."""
    return llm is not None and llm.startswith("simulated:")


def _is_model(name: str) -> bool:
    from waysout.llm.models import MODELS

    return name in MODELS or name.endswith(".gguf")


def _options(rest: str, provider: Provider) -> tuple[str, dict[str, Any]]:
    target, mark, query = rest.rpartition("?")
    # A question mark may also be part of a file's name.
    known = provider.options + provider.words
    if not mark or not known or "=" not in query:
        return rest, {}
    options: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in known:
            raise InputError(f"{provider.usage}: {unknown('option', key, known)}")
        if key in provider.words:
            options[key] = value
            continue
        if not re.fullmatch("[1-9][0-9]{0,5}", value):
            raise InputError(f"{key} is a whole number of at least 1, not {shown(value)}")
        options[key] = int(value)
    return target, options
