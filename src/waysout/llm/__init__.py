"""LLM backends: one request in, one reply out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waysout.lazy import on_first_use

if TYPE_CHECKING:
    from waysout.llm.base import Backend as Backend
    from waysout.llm.base import Message as Message
    from waysout.llm.base import Reply as Reply
    from waysout.llm.base import Request as Request
    from waysout.llm.base import Usage as Usage

__getattr__, __dir__, __all__ = on_first_use(
    __name__, {"base": "Backend Message Reply Request Usage"}
)
