"""A grammar for replies in blocks, made from a menu.

It is GBNF, which llama.cpp takes: a model held to it can only write the candidates asked for, each
with a feature of the menu and a value that this feature may be set to. It knows features one by
one, and is less than exact where exactness would make it long (see the limits here and in `menu`),
so a reply is validated all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from waysout.errors import InputError
from waysout.llm.base import Editable
from waysout.prompts.menu import MOST_DIGITS, Domain, domains, short_lists

MOST_LISTED = 2000
"""Values listed for all features together; beyond it the longest lists give way."""

MOST_ENDINGS = 20
"""A range keeps to a grid whose numbers have no more endings than this (00, 25, 50 and 75)."""

LONGEST_TEXT = 100
LONGEST_REASON = 120

Slots = Sequence[Collection[str]]
"""For each candidate of a reply, the features it may edit."""


def block_grammar(menu: Sequence[Editable], k: int, slots: Slots | None = None) -> str:
    r"""Return the GBNF of a reply of exactly ``k`` candidates, in blocks.

    With ``slots``, each candidate has features of its own to choose from.

    >>> job, age = Editable("job", "cook", ("clerk",)), Editable("age", "7", (), 3, 9, decimals=0)
    >>> print(block_grammar([job, age], 2))
    root ::= "CANDIDATE=1\n" edit "\n\nCANDIDATE=2\n" edit
    edit ::= "FEATURE=" feature "\nREASONING=" reason
    feature ::= "job" "\nVALUE=" value-1 | "age" "\nVALUE=" value-2
    value-1 ::= "clerk"
    value-2 ::= ([3-6] | [8-9])
    reason ::= [^\x00-\x20\x7F<>\[\]{}=] [^\x00-\x1F\x7F<>\[\]{}=]{0,119}
    """
    values = domains(menu)
    short = short_lists(values, MOST_LISTED)
    shared: dict[str, str] = {}  # rules of values, which like features share
    edits = {}
    for feature, one in values.items():
        rule = _value(one) if feature in short else _line(LONGEST_TEXT)
        name = shared.setdefault(rule, f"value-{len(shared) + 1}")
        edits[feature] = f'{_literal(feature)} "\\nVALUE=" {name}'
    edit = '"FEATURE=" {} "\\nREASONING=" reason'
    numbers = range(1, 1 + (k if slots is None else len(slots)))
    heads = [_literal(f"{chr(10) * 2 * (i > 1)}CANDIDATE={i}\n") for i in numbers]
    if slots is None:
        rules = {"root": " ".join(f"{head} edit" for head in heads)}
        rules |= {"edit": edit.format("feature"), "feature": " | ".join(edits.values())}
    else:
        pairs = zip(heads, numbers, strict=True)
        rules = {"root": " ".join(f"{head} edit-{i}" for head, i in pairs)}
        for i, names in zip(numbers, slots, strict=True):
            rules[f"edit-{i}"] = edit.format(f"({' | '.join(edits[n] for n in names)})")
    # Brackets could spell a chat template's control token, which no prompt should ever hold;
    # braces and equals signs could be taken for another candidate.
    rules |= {name: rule for rule, name in shared.items()}
    rules["reason"] = _line(LONGEST_REASON, r"<>\[\]{}=")
    return "\n".join(f"{name} ::= {rule}" for name, rule in rules.items())


def _line(longest: int, barred: str = "") -> str:
    return rf"[^\x00-\x20\x7F{barred}] [^\x00-\x1F\x7F{barred}]{{0,{longest - 1}}}"


def _value(one: Domain) -> str:
    if one.listed:
        return _either(map(_literal, one.listed))
    endings = _endings(one.step, one.start)
    if not endings:
        return _either(decimal_range(low, high, one.decimals) for low, high in one.spans)
    return _either(part for low, high in one.spans for part in _on_grid(low, high, endings))


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _either(parts: Iterable[str]) -> str:
    options = list(parts)
    return options[0] if len(options) == 1 else f"({' | '.join(options)})"


def decimal_range(low: int, high: int, decimals: int) -> str:
    """Return what matches the numbers between two, which are given in units of the last decimal.

    >>> print(decimal_range(-5, 1200, 0))
    ("-" [1-5] | ([0-9] | [1-9] [0-9]{1,2} | "1" ([0-1] [0-9]{2} | "2" "0" "0")))
    >>> print(decimal_range(0, 72, 2))
    "0" ("." ([0-6] [0-9]? | "7" ([0-2])?))?
    """
    if low > high:
        raise InputError(f"no number lies between {low} and {high}")
    parts = []
    if low < 0:
        parts.append(f'"-" {_unsigned(max(1, -high), -low, decimals)}')
    if high >= 0:
        parts.append(_unsigned(max(0, low), high, decimals))
    return _either(parts)


def _unsigned(low: int, high: int, decimals: int) -> str:
    if not decimals:
        return _whole(low, high)
    (first, after), (last, until) = divmod(low, 10**decimals), divmod(high, 10**decimals)
    if first == last:
        return f"{_literal(str(first))} {_fraction(after, until, decimals)}"
    parts, top = [], 10**decimals - 1
    if after:
        parts.append(f"{_literal(str(first))} {_fraction(after, top, decimals)}")
        first += 1
    if until < top:
        parts.append(f"{_literal(str(last))} {_fraction(0, until, decimals)}")
        last -= 1
    if first <= last:
        parts.append(f"{_whole(first, last)} {_fraction(0, top, decimals)}")
    return _either(parts)


def _fraction(low: int, high: int, decimals: int) -> str:
    """Return what follows the whole part; nothing at all is a fraction of zero."""
    digits = _digits(f"{low:0{decimals}}", f"{high:0{decimals}}", short=True)
    return f'"." {digits}' if low else f'("." {digits})?'


def _whole(low: int, high: int) -> str:
    """Return the numbers of the shortest length, the lengths between, and the longest length."""
    first, last = len(str(low)), len(str(high))
    if first == last:
        return _digits(str(low), str(high))
    parts, top = [], []
    if low != 10 ** (first - 1):
        parts.append(_digits(str(low), "9" * first))
        first += 1
    if high != 10**last - 1:
        top.append(_digits("1" + "0" * (last - 1), str(high)))
        last -= 1
    if first <= last:
        parts.append(f"[1-9]{_any(first - 1, last - 1)}")
    return _either(parts + top)


def _digits(low: str, high: str, *, short: bool = False) -> str:
    """Return the digits between two of the same length; ``short``: final zeros may be missing."""
    first, last, rest = int(low[0]), int(high[0]), len(low) - 1
    if first == last:
        return f'"{first}"{_tail(low[1:], high[1:], short)}'
    parts, top = [], []
    if low[1:] != "0" * rest:
        parts.append(f'"{first}"{_tail(low[1:], "9" * rest, short)}')
        first += 1
    if high[1:] != "9" * rest:
        top.append(f'"{last}"{_tail("0" * rest, high[1:], short)}')
        last -= 1
    if first <= last:
        parts.append(f"[{first}-{last}]{_any(0 if short else rest, rest)}")
    return _either(parts + top)


def _tail(low: str, high: str, short: bool) -> str:
    if not low:
        return ""
    digits = _digits(low, high, short=short)
    return f" ({digits})?" if short and not int(low) else f" {digits}"


def _any(least: int, most: int) -> str:
    """Return ``least`` to ``most`` digits, with the space before them."""
    if most <= 1:
        return ("", " [0-9]?", " [0-9]")[least + most]
    return f" [0-9]{{{most}}}" if least == most else f" [0-9]{{{least},{most}}}"


def _endings(step: int, start: int) -> list[str]:
    """Return the endings of numbers on a grid, if they are few and only numbers on it have them.

    >>> _endings(250, 0), _endings(12, 0)
    (['000', '250', '500', '750'], [])
    """
    width = next((n for n in range(1, MOST_DIGITS) if not 10**n % step), None)
    if step == 1 or width is None or 10**width // step > MOST_ENDINGS:
        return []
    return [f"{ending:0{width}}" for ending in range(start % step, 10**width, step)]


def _on_grid(low: int, high: int, endings: Sequence[str]) -> Iterator[str]:
    """Yield what matches the numbers between two that have one of the endings."""
    if low < 0:
        # A negative number ends in the complement: -175 is on a grid of 25, 125, …
        width = len(endings[0])
        mirrored = [f"{-int(ending) % 10**width:0{width}}" for ending in endings]
        for part in _unsigned_on_grid(max(1, -high), -low, mirrored):
            yield f'"-" {part}'
    if high >= 0:
        yield from _unsigned_on_grid(max(0, low), high, endings)


def _unsigned_on_grid(low: int, high: int, endings: Sequence[str]) -> Iterator[str]:
    power = 10 ** len(endings[0])
    before: dict[tuple[int, int], list[str]] = {}
    for ending in endings:
        alone = int(ending)
        if low <= alone <= high:
            yield _literal(str(alone))
        first, last = max(1, -((alone - low) // power)), (high - alone) // power
        if first <= last:
            before.setdefault((first, last), []).append(_literal(ending))
    for (first, last), literals in before.items():
        yield f"{_whole(first, last)} {_either(literals)}"
