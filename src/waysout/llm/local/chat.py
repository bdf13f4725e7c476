"""Conversations to tokens and back, by a model's own chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from waysout.errors import InputError

_MARK = "qwertzuiop"
Turn = tuple[str, str]


class Chat:
    """The tokenizer and the chat template of a model."""

    def __init__(self, tokenizer: Any, name: str) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise InputError(
                f"{name} has no chat template, so it is not a chat model: choose one that follows "
                "instructions (often named -it, -instruct or -chat)"
            )
        self.tokenizer = tokenizer
        self._takes_system = self._takes([("system", _MARK), ("user", "a")])

    def encode(self, messages: Sequence[Turn]) -> list[int]:
        """Return the tokens of a conversation, up to where the reply begins."""
        turns = messages if self._takes_system else folded(messages)
        return self._tokens(self._written(turns, add_generation_prompt=True))

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of a reply."""
        text: str = self.tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def ends(self, network: Any) -> set[int]:
        """Return the tokens that end a reply: those the model lists, and the one after a turn."""
        listed = [
            getattr(network.generation_config, "eos_token_id", None),
            getattr(network.config.get_text_config(), "eos_token_id", None),
            self.tokenizer.eos_token_id,
            self.tokenizer.bos_token_id,
        ]
        # Files often list only the end-of-text token, not the special token that ends a turn.
        turns = [("user", "a"), ("assistant", _MARK)]
        if self._takes(turns):
            after = self._tokens(self._written(turns).rpartition(_MARK)[2].lstrip())
            special = {*self.tokenizer.all_special_ids, *self.tokenizer.added_tokens_decoder}
            listed += [token for token in after[:1] if token in special]
        groups = [one if isinstance(one, list) else [one] for one in listed]
        return {int(one) for group in groups for one in group if one is not None}

    def _takes(self, turns: Sequence[Turn]) -> bool:
        """Whether the template supports such turns; some raise on a role, others drop it."""
        from jinja2 import TemplateError

        try:
            return _MARK in self._written(turns)
        except TemplateError:
            return False

    def _written(self, turns: Sequence[Turn], **options: bool) -> str:
        text: str = self.tokenizer.apply_chat_template(
            [{"role": role, "content": content} for role, content in turns],
            tokenize=False,
            enable_thinking=False,  # replies are limited to few tokens
            **options,
        )
        return text

    def _tokens(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids


def folded(messages: Sequence[Turn]) -> list[Turn]:
    """Put system messages before the first user message, for templates without that role.

    >>> folded([("system", "Be brief."), ("user", "Hello")])
    [('user', 'Be brief.\\n\\nHello')]
    """
    system = [content for role, content in messages if role == "system"]
    turns = [(role, content) for role, content in messages if role != "system"]
    if not system or not turns:
        return turns or [("user", content) for content in system]
    role, content = turns[0]
    return [(role, "\n\n".join([*system, content])), *turns[1:]]
