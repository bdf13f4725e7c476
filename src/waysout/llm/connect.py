"""Connection strings: one text names a backend anywhere a user may choose one."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any
from urllib.parse import parse_qsl

from waysout.errors import InputError, shown, unknown
from waysout.llm.base import Backend


@dataclass(frozen=True, slots=True)
class Provider:
    """One kind of backend; its factory takes the text after the colon, and options."""

    factory: str
    usage: str
    what: str
    options: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    """Options that are text; the factory checks them."""


PROVIDERS: Mapping[str, Provider] = {
    "llamacpp": Provider(
        "llamacpp:LlamaCpp",
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
    "replay": Provider("replay:Replay.load", "replay:FILE", "answers from a recording"),
    "scripted": Provider(
        "scripted:connect", "scripted:SEED", "a script of common sense, no language model"
    ),
    "simulated": Provider(
        "simulated:connect", "simulated:SEED", "a simulated LLM, for tests and dry runs"
    ),
    "transformers": Provider(
        "transformers:Transformers",
        "transformers:OWNER/NAME, transformers:FOLDER or transformers:FILE.gguf",
        "a model of the Hugging Face hub or of your own, in one batch; best on a GPU",
        ("slots", "context", "threads"),
        ("device", "sampling", "top_k", "top_p", "min_p", "repetition_penalty"),
    ),
}
# What proposes without a language model; whatever is made with it says so.
_STAND_INS = ("simulated", "scripted")
# For commands that are about an LLM, and are given none; no search asks it unless told to.
DEFAULT = "llamacpp:smollm2-135m"


def connect(name: str) -> Backend:
    """Return the backend that a connection string names; nothing is loaded or contacted yet.

    Options follow a question mark: ``llamacpp:smollm2-135m?slots=8&threads=2``.

    >>> import waysout
    >>> waysout.connect("simulated:1").name  # no LLM: random edits, for tests and dry runs
    'simulated:1'
    """
    scheme, colon, rest = name.partition(":")
    provider = PROVIDERS.get(scheme)
    if provider is None:
        from waysout.llm.models import MODELS

        is_model = name in MODELS or name.endswith(".gguf")
        hint = f"; did you mean llamacpp:{name}?" if is_model else "."
        known = ", ".join(p.usage for p in PROVIDERS.values())
        raise InputError(f"{unknown('LLM backend', scheme, PROVIDERS)}{hint} Write {known}")
    target, options = _options(rest, provider)
    if not colon or not target:
        raise InputError(f"{shown(name)} is incomplete: write {provider.usage}")
    module, _, factory = provider.factory.partition(":")
    make = attrgetter(factory)(importlib.import_module(f"waysout.llm.{module}"))
    made: Backend = make(target, **options)
    return made


def stand_in(llm: str | None) -> str:
    """Return what a name or a connection string has in place of a language model, if anything.

    >>> stand_in("simulated:1"), stand_in("scripted:1"), stand_in("openai:gemma@http://gpu/v1")
    ('simulated', 'scripted', '')
    """
    scheme, colon, _ = (llm or "").partition(":")
    return scheme if colon and scheme in _STAND_INS else ""


def _options(rest: str, provider: Provider) -> tuple[str, dict[str, Any]]:
    """Split the options off a target, and read them."""
    target, mark, query = rest.rpartition("?")
    # A question mark may also be part of a file's name.
    known = provider.options + provider.words
    if not mark or not known or "=" not in query:
        return rest, {}
    options: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in known:
            raise InputError(f"{provider.usage}: {unknown('option', key, known)}")
        if key in provider.options and not re.fullmatch("[1-9][0-9]{0,5}", value):
            raise InputError(f"{key} is a whole number of at least 1, not {shown(value)}")
        options[key] = int(value) if key in provider.options else value
    return target, options
