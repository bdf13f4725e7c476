"""`check_backend`: whether a backend keeps its protocol. Run on all of ours; use it for yours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
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
    to a constraint in the form it claims, continue after a cancelled request, and work again in
    another event loop, as when a script calls it twice; all within ``seconds``.

    >>> import waysout
    >>> waysout.check_backend(waysout.connect("simulated:1"))  # silence: it does
    """
    name = getattr(backend, "name", None)
    _demand(isinstance(name, str) and bool(name), backend, f"its name is {shown(name)}")
    form, forms, parallel = backend.form, get_args(Form), backend.parallel
    _demand(form in forms, backend, f"its form is {shown(form)}, not one of {forms}")
    known = isinstance(parallel, int) and parallel >= 1
    _demand(known, backend, f"parallel is {shown(parallel)}, not a whole number from 1")

    async def in_time(check: Callable[[Backend], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(seconds):
                await check(backend)
        except TimeoutError:
            _demand(False, backend, f"it did not answer within {seconds:g} seconds")

    for check in (_check_replies, _check_after_cancelling):
        asyncio.run(in_time(check))


def _demand(holds: bool, backend: Backend, reason: str) -> None:
    if not holds:
        raise LLMError(f"{shown(getattr(backend, 'name', backend))} breaks the protocol: {reason}")


async def _check_replies(backend: Backend) -> None:
    await _ask(backend, _question("Say hello."))
    short = await _ask(backend, _question("Count from 1 to 100.", max_tokens=8))
    exact = not short.usage.estimated
    _demand(not exact or short.usage.tokens_out <= 8, backend, "a reply passed its token limit")
    draws = (_ask(backend, _question("Name a colour.", draw=i)) for i in range(4))
    await asyncio.gather(*draws)
    if _form(backend) == "none":
        return
    asked = _question("Is the sky blue? Answer yes or no.", constraint=_YES_NO)
    answer: object = (await _ask(backend, asked)).text.strip()
    form = _form(backend)
    if form == "none":
        return  # the server has just refused it, and the backend says so
    allowed: list[object] = ["yes", "no"]
    if form == "json_schema":
        allowed = [{"answer": word} for word in allowed]
        with suppress(ValueError):
            answer = json.loads(str(answer))
    problem = f"it claims the form {form!r} and answered {shown(answer)}"
    _demand(answer in allowed, backend, problem)


def _form(backend: Backend) -> Form:
    """Return the current form: a backend may learn that its server cannot do it."""
    return backend.form


async def _check_after_cancelling(backend: Backend) -> None:
    task = asyncio.create_task(backend.complete(_question("Tell a long story.", max_tokens=400)))
    await asyncio.sleep(0.05)
    task.cancel()
    # It may have been answered before it was cancelled; both are fine.
    await asyncio.gather(task, return_exceptions=True)
    await _ask(backend, _question("Say goodbye."))


async def _ask(backend: Backend, request: Request) -> Reply:
    reply = await backend.complete(request)
    _demand(isinstance(reply, Reply), backend, f"it answered {shown(reply)}, not a Reply")
    _demand(isinstance(reply.text, str), backend, f"the text is {shown(reply.text)}")
    usage = reply.usage
    sound = isinstance(usage, Usage)
    if sound:
        counts = (usage.tokens_in, usage.tokens_out, usage.cached_tokens)
        sound = all(type(n) is int and n >= 0 for n in counts) and counts[2] <= counts[0]
    _demand(sound, backend, f"its usage is {usage}")
    latency = isinstance(reply.latency, (int, float)) and reply.latency >= 0
    _demand(latency, backend, f"the latency is {shown(reply.latency)}")
    finish = f"finish is {shown(reply.finish)}, not one of {FINISHES}"
    _demand(reply.finish in FINISHES, backend, finish)
    return reply
