"""`check_backend`: whether a backend keeps its protocol. Run on all of ours, and for yours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import get_args

from waysout.errors import LLMError, shown
from waysout.llm.base import (
    FINISHES,
    Backend,
    Constraint,
    Editable,
    Form,
    Message,
    Reply,
    Request,
    Usage,
)

_YES_NO = Constraint(
    grammar='root ::= "yes" | "no"',
    json_schema={
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": ["yes", "no"]}},
        "required": ["answer"],
        "additionalProperties": False,
    },
)
_MENU = (Editable("income", "40000", (), 40000, 90000, decimals=0), Editable("job", "a", ("b",)))


def _question(text: str, **settings: object) -> Request:
    filled = {"max_tokens": 24, "k": 1, "menu": _MENU, **settings}
    return Request((Message("user", text),), **filled)  # type: ignore[arg-type]


def check_backend(backend: Backend, *, seconds: float = 300.0) -> None:
    """Raise `LLMError` unless the backend keeps its protocol. Asks about ten short questions.

    It must answer with well-formed replies, one or several at a time, keep to the token limit and
    to a constraint in the form it claims, go on after a cancelled request, and work again in
    another event loop, as when a script calls it twice; all within ``seconds``.
    """
    _check_describes_itself(backend)
    for check in (_check_answers, _check_goes_on):
        asyncio.run(_in_time(backend, check(backend), seconds))


async def _in_time(backend: Backend, check: Coroutine[None, None, None], seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await check
    except TimeoutError:
        _demand(False, backend, f"it did not answer within {seconds:g} seconds")


def _demand(holds: bool, backend: Backend, reason: str) -> None:
    if not holds:
        raise LLMError(f"{shown(getattr(backend, 'name', backend))} breaks the protocol: {reason}")


def _check_describes_itself(backend: Backend) -> None:
    name = getattr(backend, "name", None)
    _demand(isinstance(name, str) and bool(name), backend, f"its name is {shown(name)}")
    forms = get_args(Form)
    _demand(
        backend.form in forms, backend, f"its form is {shown(backend.form)}, not one of {forms}"
    )
    known = isinstance(backend.parallel, int) and backend.parallel >= 1
    _demand(known, backend, f"parallel is {shown(backend.parallel)}, not a whole number from 1")


async def _check_answers(backend: Backend) -> None:
    await _ask(backend, _question("Say hello."))
    short = await _ask(backend, _question("Count from 1 to 100.", max_tokens=8))
    exact = not short.usage.estimated
    _demand(not exact or short.usage.tokens_out <= 8, backend, "a reply passed its token limit")
    draws = (_ask(backend, _question("Name a colour.", draw=i)) for i in range(4))
    await asyncio.gather(*draws)
    await _check_constraint(backend)


async def _check_constraint(backend: Backend) -> None:
    if _form(backend) == "none":
        return
    asked = _question("Is the sky blue? Answer yes or no.", constraint=_YES_NO)
    text = (await _ask(backend, asked)).text.strip()
    if _form(backend) == "none":
        return  # the server has just refused it, and the backend says so
    _demand(_is_yes_or_no(backend.form, text), backend,
            f"it claims the form {backend.form!r} and answered {shown(text)}")  # fmt: skip


def _form(backend: Backend) -> Form:
    """Return the form of the moment: a backend may learn that its server cannot do it."""
    return backend.form


def _is_yes_or_no(form: Form, text: str) -> bool:
    if form == "grammar":
        return text in ("yes", "no")
    try:
        answer = json.loads(text)
    except ValueError:
        return False
    return answer in ({"answer": "yes"}, {"answer": "no"})


async def _check_goes_on(backend: Backend) -> None:
    task = asyncio.create_task(backend.complete(_question("Tell a long story.", max_tokens=400)))
    await asyncio.sleep(0.05)
    task.cancel()
    # It may have been answered before it was cancelled; either is well.
    await asyncio.gather(task, return_exceptions=True)
    await _ask(backend, _question("Say goodbye."))


async def _ask(backend: Backend, request: Request) -> Reply:
    reply = await backend.complete(request)
    _demand(isinstance(reply, Reply), backend, f"it answered {shown(reply)}, not a Reply")
    _demand(isinstance(reply.text, str), backend, f"the text is {shown(reply.text)}")
    _demand(_is_sound(reply.usage), backend, f"its usage is {reply.usage}")
    latency = isinstance(reply.latency, (int, float)) and reply.latency >= 0
    _demand(latency, backend, f"the latency is {shown(reply.latency)}")
    finish = f"finish is {shown(reply.finish)}, not one of {FINISHES}"
    _demand(reply.finish in FINISHES, backend, finish)
    return reply


def _is_sound(usage: object) -> bool:
    if not isinstance(usage, Usage):
        return False
    counts = (usage.tokens_in, usage.tokens_out, usage.cached_tokens)
    return all(type(n) is int and n >= 0 for n in counts) and counts[2] <= counts[0]
