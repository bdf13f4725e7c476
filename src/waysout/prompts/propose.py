"""From a node to a request, and from its reply to edits: all that a search needs from prompts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from waysout.domain.schema import Edit, Row
from waysout.llm.base import Constraint, Editable, Form, Message, Reply, Request
from waysout.prompts.accept import Proposal, read_reply
from waysout.prompts.menu import menu
from waysout.prompts.render import Output, Question, Record, Template, Topic, render
from waysout.prompts.spelling import Spelling

# Five candidates of the longest features and a sentence each fit well.
_TOKENS_PER_CANDIDATE = 100


@dataclass(frozen=True, slots=True)
class Style:
    """How questions are put and replies read.

    ``constrain`` holds the model to the format where the backend can. ``strict`` reads names and
    categories to the letter, as the paper does. ``Style("paper", False, True)`` is the paper's.
    ``spread`` gives each candidate of a reply other features to choose from, dealt anew for each
    call, where the backend takes a grammar: a small model names the same feature five times (the
    demo with SmolLM2-135M found 0 options without it, and 35 with it). ``unchanged`` admits edits
    to the value that is there, which then cost a row: the paper's unpruned searches ask 147.8 to
    150.0 of 150 rows, so nothing that could be read was refused before the oracle.

    >>> import waysout
    >>> data = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["credit_score"] / 1400, data.card)
    >>> problem = waysout.Problem.from_card(data.card, oracle, training=data.rows)
    >>> paper = waysout.Style("paper", constrain=False, strict=True)
    >>> asked = {"llm": "simulated:1", "calls": 2, "oracle_rows": 20, "style": paper}
    >>> waysout.find(problem, data.rows[828], **asked).settings["style"]["template"]
    'paper'
    """

    template: Template = "waysout"
    constrain: bool = True
    strict: bool = False
    spread: bool = True
    unchanged: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the style as files store it.

        What a later release added is left out where it is off, so that an earlier run is the same.
        """
        told = asdict(self)
        if not self.unchanged:
            del told["unchanged"]
        return told


class Proposer:
    """Puts the questions about one table to one kind of backend."""

    def __init__(self, topic: Topic, form: Form = "none", style: Style | None = None) -> None:
        self.topic = topic
        self.style = style or Style()
        self.form: Form = form if self.style.constrain else "none"
        self.spelling = Spelling(topic.rules.schema)

    def request(
        self,
        query: Row,
        row: Row,
        *,
        k: int = 5,
        history: Sequence[Record] = (),
        avoid: Sequence[str] = (),
        named: Sequence[Edit] = (),
        temperature: float = 0.7,
        seed: int = 0,
        draw: int = 0,
    ) -> Request | None:
        """Return the request for ``k`` edits of a row; ``None`` where nothing may be edited.

        ``history`` are earlier attempts, ``avoid`` the features it should rather leave alone, and
        ``named`` the edits it should not name again.
        """
        offered = menu(self.topic.rules, self.spelling, query, row)
        if not offered:
            return None
        question = Question(
            self.topic, self.spelling, query, row, offered, k, tuple(history), tuple(avoid),
            tuple(named),
        )  # fmt: skip
        # The paper's template asks for the paper's block, but for JSON where a schema holds it.
        output: Output = "json" if self.form == "json_schema" else "block"
        slots = None
        if self.form == "grammar" and self.style.spread:
            names = [item.name for item in offered]
            slots = deal(names, k, random.Random(f"{seed} {draw}"))
        # One user message, no system message: some chat templates refuse the system role.
        return Request(
            messages=(Message("user", render(question, self.style.template, output)),),
            k=k,
            temperature=temperature,
            seed=seed,
            max_tokens=_TOKENS_PER_CANDIDATE * k,
            constraint=constraint(self.form, offered, k, slots),
            draw=draw,
            menu=offered,
        )

    def read(self, reply: Reply, query: Row, row: Row, *, k: int = 5) -> Proposal:
        """Return the edits of a reply, and why its other candidates were rejected.

        Their reasons are left out where the LLM that replied is known to write nonsense.
        """
        from waysout.llm.models import writes_reasons

        return read_reply(
            reply.text, rules=self.topic.rules, spelling=self.spelling, query=query, row=row, k=k,
            cut=reply.finish != "stop", strict=self.style.strict,
            unchanged=self.style.unchanged, reasons=writes_reasons(reply.model),
        )  # fmt: skip


def deal(names: Sequence[str], k: int, rng: random.Random) -> tuple[tuple[str, ...], ...]:
    """Deal features to candidates at random; if there are too few, some get the same.

    >>> deal(["a", "b", "c", "d", "e"], 2, random.Random(1))
    (('b', 'e', 'c'), ('a', 'd'))
    """
    shuffled = rng.sample(names, len(names))
    if len(shuffled) < k:
        return tuple((shuffled[i % len(shuffled)],) for i in range(k))
    return tuple(tuple(shuffled[i::k]) for i in range(k))


@lru_cache(maxsize=256)
def constraint(
    form: Form,
    offered: tuple[Editable, ...],
    k: int,
    slots: tuple[tuple[str, ...], ...] | None = None,
) -> Constraint | None:
    """Return what holds a reply to the menu, in the form a backend knows."""
    if form == "grammar":
        from waysout.prompts.grammar import block_grammar

        return Constraint(grammar=block_grammar(offered, k, slots))
    if form == "json_schema":
        from waysout.prompts.json_schema import candidates_schema

        return Constraint(json_schema=candidates_schema(offered, k))
    return None
