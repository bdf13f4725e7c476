"""A result as one page that needs nothing else: no script, no font, no request.

Names, values and reasons are untrusted. They reach the page through `esc` alone, which cleans and
escapes them and keeps text that runs from right to left from turning the words around it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any

from waysout.domain.pick import pick
from waysout.domain.result import Option, OutcomeKind, Result, plain
from waysout.domain.schema import Value
from waysout.report.text import NOT_APPROVED, has_own_edits, sentence, simulated_note, spent
from waysout.report.words import chance, change_count, clean, counted, reason_text, value_text

_PROMISE = (
    "Each option was put to the model and approved, and breaks no rule. It says what this model "
    "would answer if these values changed and all others stayed the same; it does not say that "
    "the change is easy, or wise, or that the model will not be replaced."
)


def page(result: Result, n: int = 5) -> str:
    """Return a whole page about one result, the n options to read first on top."""
    parts = [_head(result), _present(result)]
    if result.options:
        parts += [_shortlist(pick(result, n), len(result.options)), _all_options(result.options)]
    elif result.near_misses:
        parts.append(_near_misses(result.near_misses))
    parts += [_spent(result), _footer(result)]
    return Template(_packaged("page.html")).substitute(
        title=escape(clean(_title(result))), style=_packaged("page.css"), body="\n".join(parts)
    )


def excerpt(result: Result, n: int = 5) -> str:
    """Return a few lines for a notebook's cell."""
    note = simulated_note(result)
    simulated = f"<p><strong>{esc(note)}</strong></p>" if note else ""
    shown = pick(result, n) if result.options else ()
    table = _table(shown, "The options to read first") if shown else ""
    more = len(result.options) - len(shown)
    rest = f"<p>… and {more:,} more: <code>to_frame()</code></p>" if more else ""
    return f"<div><p>{esc(sentence(result))}</p>{simulated}{table}{rest}</div>"


def esc(text: object) -> str:
    """Return untrusted text that shows as itself and can do nothing else.

    >>> esc("<b>&\\u202e")
    '<bdi>&lt;b&gt;&amp;</bdi>'
    """
    return f"<bdi>{escape(clean(text))}</bdi>"


def _packaged(name: str) -> str:
    return (resources.files(__package__) / name).read_text("utf-8")


def _section(title: str, *parts: str, kind: str = "") -> str:
    marked = f' class="{kind}"' if kind else ""
    return "\n".join([f"<section{marked}>", f"<h2>{title}</h2>", *parts, "</section>"])


def _title(result: Result) -> str:
    named = result.settings.get("title")
    return f"Ways out: {named}" if named else "Ways out"


def _head(result: Result) -> str:
    parts = ["<header>", f"<h1>{esc(_title(result))}</h1>"]
    if note := simulated_note(result):
        word, rest = note.split(":", 1)
        parts.append(f'<p class="note" role="note"><strong>{word}:</strong>{rest}</p>')
    parts += [f'<p class="lead">{esc(sentence(result))}</p>', _decision(result)]
    if result.outcome.binding and not result.options:
        rules = (f"<li>{esc(v.rule)}: {esc(v.reason)}</li>" for v in result.outcome.binding)
        parts.append(f"<p>The rules that stand in the way:</p>\n<ul>{''.join(rules)}</ul>")
    return "\n".join([*parts, "</header>"])


def _decision(result: Result) -> str:
    """Say what was decided, and by whom, as far as the settings tell."""
    told = result.settings
    approved = told.get("query_approved", result.outcome.kind is OutcomeKind.ALREADY_APPROVED)
    decision = told.get("yes", "approved") if approved else told.get("no", "rejected")
    model = f"the model {esc(told['oracle'])}" if told.get("oracle") else "the model"
    said = [f"As things stand, {model} says: <strong>{esc(decision)}</strong>."]
    if told.get("method") and result.ledger.oracle_rows:
        said.append(f"Searched with {esc(told['method'])}.")
    if told.get("llm") and result.ledger.llm_calls:
        llm = esc(told["llm"])
        said.append(
            f"Some changes proposed by {llm}; the others, without a reason, by the search itself."
            if has_own_edits(result)
            else f"Changes proposed by {llm}."
        )
    return f"<p>{' '.join(said)}</p>"


def _present(result: Result) -> str:
    values = (
        f"<div><dt>{esc(name)}</dt><dd>{esc(value_text(value))}</dd></div>"
        for name, value in result.query.items()
    )
    return _section("Present values", f'<dl class="values">{"".join(values)}</dl>')


def _shortlist(picked: Sequence[Option], total: int) -> str:
    many = total > len(picked)
    title = f"{len(picked)} ways out to read first" if many else "The ways out"
    about = "The most different good ones; all are listed below." if many else ""
    return _section(title, f'<p class="soft">{about}</p>' if about else "", _cards(picked))


def _near_misses(misses: Sequence[Option]) -> str:
    about = '<p class="note"><strong>None of these was approved.</strong> They show how near '
    about += "the search came, and are not ways out.</p>"
    return _section(NOT_APPROVED, about, _cards(misses, missed=True), kind="missed")


def _cards(options: Iterable[Option], *, missed: bool = False) -> str:
    cards = (_card(i, option, missed) for i, option in enumerate(options, 1))
    return f'<ol class="cards">\n{"".join(cards)}</ol>'


def _card(number: int, option: Option, missed: bool) -> str:
    name = "Near miss" if missed else "Way out"
    kind = "tag warn" if missed or option.stable is False else "tag"
    wavers = "not approved each time, " if option.stable is False else ""
    doubt = "not approved, " if missed else wavers
    reason = reason_text(option.reasons)
    said = f'<p class="reason">Reason given: {esc(reason)}</p>' if reason else ""
    return (
        f'<li class="card"><h3>{name} {number}</h3>'
        f"<ul>{''.join(map(_change, option.changes.items()))}</ul>"
        f'<p><span class="{kind}">{doubt}chance {escape(chance(option.probability))}</span> '
        f"{change_count(option)}</p>{said}</li>\n"
    )


def _change(change: tuple[str, tuple[Value, Value]]) -> str:
    name, (old, new) = change
    return (
        f"<li>Change {esc(name)} from {esc(value_text(old))} "
        f"to <strong>{esc(value_text(new))}</strong></li>"
    )


def _all_options(options: Sequence[Option]) -> str:
    caption = f"All {counted(len(options), 'option')}, in the order found"
    about = '<p class="soft">Nearness runs from 0 to 1, the present values being 1.</p>'
    return _section("All ways out", about, _table(options, caption))


def _table(options: Sequence[Option], caption: str) -> str:
    rows = "\n".join(_row(i, option) for i, option in enumerate(options, 1))
    heads = "".join(f'<th scope="col" class="number">{h}</th>' for h in ("Chance", "Nearness"))
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}">'
        f"<table><caption>{caption}</caption>"
        f'<thead><tr><th scope="col">#</th><th scope="col">What changes</th>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def _row(number: int, option: Option) -> str:
    changes = "".join(
        f"<li>{esc(name)}: {esc(value_text(old))} → <strong>{esc(value_text(new))}</strong></li>"
        for name, (old, new) in option.changes.items()
    )
    reason = reason_text(option.reasons)
    said = f'<div class="reason">{esc(reason)}</div>' if reason else ""
    doubt = (
        '<div><span class="tag warn">not approved each time</span></div>'
        if option.stable is False
        else ""
    )
    return (
        f'<tr><th scope="row">{number}</th><td><ul>{changes}</ul>{said}{doubt}</td>'
        f'<td class="number">{escape(chance(option.probability))}</td>'
        f'<td class="number">{option.proximity:.2f}</td></tr>'
    )


def _spent(result: Result) -> str:
    parts = [f"<p>{esc(spent(result))}</p>"]
    for title, table in (
        ("Figures", _rounded(result.metrics)),
        ("Proposals that were not usable", result.rejections),
        ("Ledger", _rounded(result.ledger.as_dict())),
        ("Settings", result.settings),
    ):
        if table:
            parts.append(f"<details><summary>{title}</summary>{_listing(table)}</details>")
    return _section("What it took", *parts)


def _rounded(table: Mapping[str, float | int | None]) -> dict[str, float | int | None]:
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in table.items()}


def _listing(table: Mapping[str, Any]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{esc(name)}</th><td>{_setting(value)}</td></tr>'
        for name, value in plain(table).items()
    )
    return f"<table><tbody>{rows}</tbody></table>"


def _setting(value: Any) -> str:
    if isinstance(value, (dict, list)):
        lines = json.dumps(value, indent=1, ensure_ascii=False).splitlines()
        return "<pre>" + "\n".join(escape(_indented(line)) for line in lines) + "</pre>"
    return "–" if value is None else esc(value_text(value))


def _indented(line: str) -> str:
    return " " * (len(line) - len(line.lstrip(" "))) + clean(line)


def _footer(result: Result) -> str:
    return f'<footer><p class="soft">{_PROMISE}</p></footer>' if result.options else ""
