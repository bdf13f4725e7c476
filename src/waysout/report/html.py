"""A result as one page that needs nothing else: no script, no font, no request.

Names, values and reasons are untrusted. They reach the page through `esc` alone, which cleans and
escapes them and keeps text that runs from right to left from turning the words around it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from html import escape
from importlib import resources
from string import Template
from typing import Any

from waysout.domain.distance import simplicity
from waysout.domain.pick import pick
from waysout.domain.result import Option, OutcomeKind, ResultData, plain
from waysout.domain.schema import Value
from waysout.report.chart import chart
from waysout.report.text import NOT_APPROVED, ending, has_own_edits, sentence, simulated_note, spent
from waysout.report.wording import Wording
from waysout.report.words import (
    change_count,
    clean,
    counted,
    date_text,
    goal_text,
    reason_text,
    value_text,
)

MOST_LISTED = 500


def page(result: ResultData, n: int = 5, *, when: date | None = None) -> str:
    """Return a whole page about one result, the n options to read first on top.

    ``when`` is the day of the search, which a result does not hold.
    """
    wording = Wording.of(result)
    parts = [_head(result, wording), _asked(result, when), _present(result, wording)]
    if result.options:
        parts.append(_shortlist(pick(result, n), result.options, wording))
    elif result.near_misses:
        parts.append(_near_misses(result.near_misses, wording))
    parts += [_promises(result, when), _limits(result)]
    if result.options:
        parts.append(_all_options(result.options, wording))
    parts.append(_spent(result))
    return whole_page(_title(result), "page.css", "\n".join(part for part in parts if part))


def whole_page(title: str, style: str, body: str) -> str:
    """Return a page of its own from markup: its title is text, its style a file of this package."""
    return Template(packaged("page.html")).substitute(
        title=escape(clean(title)), style=packaged(style), body=body
    )


def esc(text: object) -> str:
    """Return untrusted text that shows as itself and can do nothing else.

    >>> esc("<b>&\\u202e")
    '<bdi>&lt;b&gt;&amp;</bdi>'
    """
    return f"<bdi>{escape(clean(text))}</bdi>"


def packaged(name: str) -> str:
    """Return a text file of this package."""
    return (resources.files(__package__) / name).read_text("utf-8")


def decision(result: ResultData) -> str:
    """Return what was decided as things stand, in the settings' words; empty where unknown."""
    told, kind = result.settings, result.outcome.kind
    approved = told.get("query_approved")
    if approved is None:
        if kind in (OutcomeKind.INTERRUPTED, OutcomeKind.FAILED) and not result.options:
            return ""  # it may have ended before the model was asked at all
        approved = kind is OutcomeKind.ALREADY_APPROVED
    return str((told.get("yes") or "approved") if approved else (told.get("no") or "rejected"))


def standing(result: ResultData) -> str:
    """Return the chance as things stand; empty where it is not known."""
    chance = result.settings.get("query_probability")
    return Wording.of(result).chance(chance) if isinstance(chance, (int, float)) else ""


def easiest_first(options: Iterable[Option]) -> list[Option]:
    """Return options by ease: few and small changes first, those that waver last."""
    return sorted(options, key=lambda o: (o.stable is False, -o.proximity * simplicity(o.sparsity)))


def _section(title: str, *parts: str, kind: str = "") -> str:
    marked = f' class="{kind}"' if kind else ""
    return "\n".join([f"<section{marked}>", f"<h2>{title}</h2>", *parts, "</section>"])


def _items(items: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def _pairs(pairs: Mapping[str, str]) -> str:
    """Return a list of terms and what they are, both markup already."""
    told = (f"<div><dt>{term}</dt><dd>{what}</dd></div>" for term, what in pairs.items())
    return f'<dl class="values">{"".join(told)}</dl>'


def _title(result: ResultData) -> str:
    named = result.settings.get("title")
    return f"Ways out: {named}" if named else "Ways out"


def _head(result: ResultData, wording: Wording) -> str:
    parts = ["<header>", f"<h1>{esc(_title(result))}</h1>"]
    if note := simulated_note(result):
        word, rest = note.split(":", 1)
        parts.append(f'<p class="note" role="note"><strong>{word}:</strong>{rest}</p>')
    parts += [f'<p class="lead">{esc(sentence(result, wording.lines))}</p>']
    if said := ending(result):
        parts.append(f'<p class="soft">{esc(said)}</p>')
    if result.outcome.binding and not result.options:
        rules = _items(f"{esc(v.rule)}: {esc(v.reason)}" for v in result.outcome.binding)
        parts.append(f"<p>The rules that stand in the way:</p>\n{rules}")
    return "\n".join([*parts, "</header>"])


def _asked(result: ResultData, when: date | None) -> str:
    """Say what was decided and by whom, what was asked, and how the search was made."""
    told = result.settings
    model = f"the model {esc(told['oracle'])}" if told.get("oracle") else "the model"
    chance = f" (chance {escape(standing(result))})" if standing(result) else ""
    stands = f"says: <strong>{esc(decision(result))}</strong>{chance}"
    said = [f"As things stand, {model} {stands if decision(result) else 'was not heard'}."]
    said.append(f"What was asked for: {esc(goal_text(told.get('goal')))}.")
    if when is not None:
        said.append(f"Asked on {date_text(when)}.")
    if told.get("method") and result.ledger.oracle_rows:
        said.append(f"Searched with {esc(told['method'])}.")
    if told.get("llm") and result.ledger.llm_calls:
        llm = esc(told["llm"])
        said.append(
            f"Some changes proposed by {llm}; the others, without a reason, by the search itself."
            if has_own_edits(result)
            else f"Changes proposed by {llm}."
        )
    return _section("What was decided, and what was asked", f"<p>{' '.join(said)}</p>")


def _present(result: ResultData, wording: Wording) -> str:
    values = {
        _term(name, wording): esc(wording.value(name, value))
        for name, value in result.query.items()
    }
    return _section("Present values", _pairs(values))


def _term(name: str, wording: Wording) -> str:
    about = wording.about(name)
    return esc(wording.name(name)) + (f" <small>{esc(about)}</small>" if about else "")


def _shortlist(first: Sequence[Option], options: Sequence[Option], wording: Wording) -> str:
    many = len(options) > len(first)
    title = f"{len(first)} ways out to read first" if many else "The ways out"
    about = "The most different good ones; all are listed below." if many else ""
    note = f'<p class="soft">{about}</p>' if about else ""
    return _section(title, note, _cards(first, wording), chart(options[:MOST_LISTED], first))


def _near_misses(misses: Sequence[Option], wording: Wording) -> str:
    about = '<p class="note"><strong>None of these was approved.</strong> They show how near '
    about += "the search came, and are not ways out.</p>"
    return _section(NOT_APPROVED, about, _cards(misses, wording, missed=True), kind="missed")


def _cards(options: Iterable[Option], wording: Wording, *, missed: bool = False) -> str:
    cards = (_card(i, option, wording, missed) for i, option in enumerate(options, 1))
    return f'<ol class="cards">\n{"".join(cards)}</ol>'


def _card(number: int, option: Option, wording: Wording, missed: bool) -> str:
    name = "Near miss" if missed else "Way out"
    kind = "tag warn" if missed or option.stable is False else "tag"
    reason = reason_text(option.reasons)
    said = f'<p class="reason">Reason given: {esc(reason)}</p>' if reason else ""
    return (
        f'<li class="card"><h3>{name} {number}</h3>'
        f"<ul>{''.join(_change(change, wording) for change in option.changes.items())}</ul>"
        f'<p><span class="{kind}">{escape(_verdict(option, wording, missed))}</span> '
        f"{change_count(option)}</p>{said}</li>\n"
    )


def _verdict(option: Option, wording: Wording, missed: bool) -> str:
    doubt = "not approved each time" if option.stable is False else ""
    chance = wording.chance(option.probability)
    said = ["not approved" if missed else doubt, f"chance {chance}" if chance else ""]
    return ", ".join(part for part in said if part) or "approved"


def _change(change: tuple[str, tuple[Value, Value]], wording: Wording) -> str:
    name, (old, new) = change
    before, after = wording.pair(name, old, new)
    return (
        f"<li>Change {esc(wording.name(name))} from {esc(before)} "
        f"to <strong>{esc(after)}</strong></li>"
    )


def _all_options(options: Sequence[Option], wording: Wording) -> str:
    listed = easiest_first(options)[:MOST_LISTED]
    counts = f"All {counted(len(options), 'option')}"
    about = '<p class="soft">Nearness runs from 0 to 1, the present values being 1.</p>'
    if len(options) > len(listed):
        counts = f"The {len(listed):,} easiest of {len(options):,} options"
        about += (
            '<p class="note">Not all are listed here. All of them are in the CSV and JSON files: '
            "<code>waysout runs export --format csv</code>, or <code>to_csv()</code>.</p>"
        )
    caption = f"{counts}, the easiest first"
    return _section("All ways out", about, _table(listed, caption, wording))


def _table(options: Sequence[Option], caption: str, wording: Wording) -> str:
    rows = "\n".join(_row(i, option, wording) for i, option in enumerate(options, 1))
    heads = "".join(f'<th scope="col" class="number">{h}</th>' for h in ("Chance", "Nearness"))
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}">'
        f"<table><caption>{caption}</caption>"
        f'<thead><tr><th scope="col">#</th><th scope="col">What changes</th>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def arrows(option: Option, wording: Wording) -> list[str]:
    """Return an option's changes as markup, an arrow between old and new."""
    pairs = {name: wording.pair(name, old, new) for name, (old, new) in option.changes.items()}
    return [
        f"{esc(wording.name(name))}: {esc(before)} → <strong>{esc(after)}</strong>"
        for name, (before, after) in pairs.items()
    ]


def _row(number: int, option: Option, wording: Wording) -> str:
    reason = reason_text(option.reasons)
    said = f'<div class="reason">{esc(reason)}</div>' if reason else ""
    doubt = (
        '<div><span class="tag warn">not approved each time</span></div>'
        if option.stable is False
        else ""
    )
    return (
        f'<tr><th scope="row">{number}</th><td>{_items(arrows(option, wording))}{said}{doubt}</td>'
        f'<td class="number">{escape(wording.chance(option.probability)) or "yes"}</td>'
        f'<td class="number">{option.proximity:.2f}</td></tr>'
    )


def _promises(result: ResultData, when: date | None) -> str:
    """Say in plain words what an option is, and what it is not."""
    if not result.options:
        return ""
    asked = f"on {date_text(when)}" if when else "when this search was made"
    promised = [
        "Each way out was put to the model, with exactly the values listed, and met what was "
        "asked for.",
        "Each keeps all the rules that were set.",
        "Only the values named change. All others were held as they are.",
    ]
    not_promised = [
        "These are the answers of a model, not causes. It goes by what went together in past data, "
        "and correlation is not causation: that a change turns the answer does not mean that it "
        "changes anything else.",
        "Nobody has checked that a change is possible, affordable or wise for this person.",
        "In life, values that were held as they are may move when another one does. The answer "
        "could then be another.",
        f"The model, or the rules, may change. This is what the model answered {asked}; it binds "
        "nobody who decides.",
        "There may be ways out that the search did not find.",
    ]
    if any(reason_text(option.reasons) for option in result.options):
        not_promised.append(
            "Reasons given beside a change were written by a language model, or a stand-in for "
            "one. Nobody has checked them."
        )
    title = "What is promised here, and what is not"
    parts = ("<h3>Promised</h3>", _items(promised), "<h3>Not promised</h3>", _items(not_promised))
    return _section(title, *parts, kind="promises")


def _limits(result: ResultData) -> str:
    """List the rules that were kept, a person's own among them."""
    rules = result.settings.get("rules")
    if not isinstance(rules, (list, tuple)) or not rules:
        return ""
    about = "<p>Each way out had to keep these rules, those that the person set among them:</p>"
    return _section("The limits", about, _items(esc(rule) for rule in rules))


def _spent(result: ResultData) -> str:
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
