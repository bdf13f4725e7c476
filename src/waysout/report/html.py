"""A result as one page that needs nothing else: no script, no font, no request.

Names, values and reasons are untrusted. They reach the page through `esc` alone, which cleans and
escapes them, and a policy in the page forbids everything but its own style.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import date
from html import escape
from importlib import resources
from string import Template
from typing import Any

from waysout.domain.pick import easiest_first, pick, pickable
from waysout.domain.result import Option, OutcomeKind, ResultData, plain
from waysout.report.chart import chart
from waysout.report.tables import esc as esc
from waysout.report.tables import html_table
from waysout.report.text import (
    MOST_TIPS,
    NOT_APPROVED,
    ending,
    has_own_edits,
    note_lines,
    safer_lines,
    sentence,
    simulated_note,
    spent,
)
from waysout.report.tipping import TITLE, alone
from waysout.report.words import (
    Wording,
    change_count,
    clean,
    counted,
    date_text,
    doubts,
    goal_text,
    reason_text,
    value_text,
)

MOST_LISTED = 500
_CAPTION_ALONE = (
    "What the model says if one of these changes, with what moves along, and nothing else"
)
_ABOUT_ALONE = (
    '<p class="soft">An answer is told for values that were asked: between them, and beyond, the '
    "model may answer otherwise.</p>"
)
# Notebooks may drop a style sheet, so each element of an excerpt brings its own style, in colours
# that work on light and dark themes.
_CELL = (
    "text-align:left;vertical-align:top;white-space:normal;color:inherit;background:none;"
    "padding:.4em .9em .4em 0;border:0;border-top:1px solid rgba(128,128,128,.4)"
)


def page(result: ResultData, n: int = 5, *, when: date | None = None) -> str:
    """Return a whole page about one result, the n ways to read first on top.

    ``when`` is the day of the search, which a result does not hold.
    """
    wording, options = Wording.of(result), result.options
    named = result.settings.get("title")
    title = f"Ways out: {named}" if named else "Ways out"
    values = "".join(
        f"<div><dt>{esc(wording.name(name))}"
        + (f" <small>{esc(about)}</small>" if (about := wording.about(name)) else "")
        + f"</dt><dd>{esc(wording.value(name, value))}</dd></div>"
        for name, value in result.query.items()
    )
    parts = [
        _head(result, title, wording),
        _asked(result, when),
        section("Present values", f'<dl class="values">{values}</dl>'),
    ]
    if options:
        first = pick(result, n)
        others = [way for way in result.ways if way not in first][:MOST_LISTED]
        many = len(pickable(result)) > len(first)
        heading = f"{len(first)} ways out to read first" if many else "The ways out"
        about = '<p class="soft">Good ones that differ; the others are listed below.</p>'
        cards, drawn = _cards(first, result, wording), chart(options[:MOST_LISTED], first)
        if others:
            title = "The other ways out, the best first"
            cards += _table(title, others, result, wording, start=len(first) + 1)
        parts += [section(heading, about if many else "", cards, drawn)]
    elif result.near_misses:
        about = '<p class="note"><strong>None of these was approved.</strong> They show how near '
        about += "the search came, and are not ways out.</p>"
        cards = _cards(result.near_misses, result, wording, missed=True)
        parts.append(section(NOT_APPROVED, about, cards, kind="missed"))
    if tips := _alone(result, wording, _CAPTION_ALONE):
        parts.append(section("One change alone", _ABOUT_ALONE, tips))
    parts += [_promises(result, when)] if options else []
    rules = result.settings.get("rules")
    if isinstance(rules, (list, tuple)) and rules:
        about = "<p>Each way out had to keep these rules, including those that the person set:</p>"
        parts.append(section("The limits", about, bullets(map(esc, rules))))
    if options:
        parts.append(_other_rows(result) if result.ways else _all_options(result, wording))
    parts.append(_spent(result))
    return whole_page(title, "page.css", "\n".join(parts))


def excerpt(result: ResultData, n: int = 5) -> str:
    """Return a few lines and a short table for a notebook's cell."""
    wording = Wording.of(result)
    shown = pick(result, n) if result.options else ()
    lines, note = [esc(sentence(result, wording))], simulated_note(result)
    lines += [f"<strong>{esc(note)}</strong>"] if note else []
    lines += map(esc, note_lines(result))
    first = _table("Ways out to read first", shown, result, wording) if shown else ""
    more = len(pickable(result)) - len(shown)
    rest = f"<p>… and {more:,} more: <code>to_frame()</code></p>" if more > 0 else ""
    table = first + rest + _alone(result, wording, TITLE, MOST_TIPS)
    # A notebook has its own style sheet, so each cell carries its own look. The tags are ours: text
    # from outside is escaped.
    looks = {"<td": _CELL, "<th ": _CELL, "<ul": "margin:0;padding-left:1.2em", "<p ": "margin:0"}
    for tag, look in looks.items():
        space = " " * tag.endswith(" ")
        table = table.replace(tag, f'{tag.rstrip()} style="{look}"{space}')
    told = "".join(f"<p>{line}</p>" for line in lines)
    return f'<div style="max-width:60em;overflow-wrap:anywhere">{told}{table}</div>'


def whole_page(title: str, style: str, body: str) -> str:
    """Return a page of its own from markup: its title is text, its style a file of this package."""
    return Template(packaged("page.html")).substitute(
        title=escape(clean(title)), style=packaged(style), body=body
    )


def packaged(name: str) -> str:
    """Return a text file of this package."""
    return (resources.files(__package__) / name).read_text("utf-8")


def section(title: str, *parts: str, kind: str = "") -> str:
    """Return a section of a page; empty parts are left out."""
    marked = f' class="{kind}"' if kind else ""
    shown = filter(None, parts)
    return "\n".join([f"<section{marked}>", f"<h2>{title}</h2>", *shown, "</section>"])


def bullets(items: Iterable[str]) -> str:
    """Return a list of markup."""
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def warning_note(note: str) -> str:
    """Return a note of our own, the word before its colon in bold."""
    word, rest = note.split(":", 1)
    return f'<p class="note" role="note"><strong>{word}:</strong>{rest}</p>'


def decision(result: ResultData) -> str:
    """Return the model's decision on the present values, in the card's words; empty if unknown."""
    told, kind = result.settings, result.outcome.kind
    approved = told.get("query_approved")
    if approved is None:
        if kind in (OutcomeKind.INTERRUPTED, OutcomeKind.FAILED) and not result.options:
            return ""  # it may have ended before the model was asked at all
        approved = kind is OutcomeKind.ALREADY_APPROVED
    return str((told.get("yes") or "approved") if approved else (told.get("no") or "rejected"))


def standing(result: ResultData) -> str:
    """Return the chance with the present values; empty if unknown."""
    chance = result.settings.get("query_probability")
    return Wording.of(result).chance(chance) if isinstance(chance, (int, float)) else ""


def _head(result: ResultData, title: str, wording: Wording) -> str:
    parts = ["<header>", f"<h1>{esc(title)}</h1>"]
    if note := simulated_note(result):
        parts.append(warning_note(note))
    parts += [f'<p class="lead">{esc(sentence(result, wording))}</p>']
    parts += [f'<p class="soft">{esc(note)}</p>' for note in note_lines(result)]
    if said := ending(result):
        parts.append(f'<p class="soft">{esc(said)}</p>')
    if result.outcome.binding and not result.options:
        rules = bullets(f"{esc(v.rule)}: {esc(v.reason)}" for v in result.outcome.binding)
        parts.append(f"<p>The rules that stand in the way:</p>\n{rules}")
    return "\n".join([*parts, "</header>"])


def _asked(result: ResultData, when: date | None) -> str:
    """Return what was decided and by which model, what was asked for, and how it was searched."""
    told = result.settings
    model = f"the model {esc(told['oracle'])}" if told.get("oracle") else "the model"
    chance = f" (chance {escape(standing(result))})" if standing(result) else ""
    stands = f"says: <strong>{esc(decision(result))}</strong>{chance}"
    said = [f"As things stand, {model} {stands if decision(result) else 'has given no answer'}."]
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
    return section("What was decided, and what was asked", f"<p>{' '.join(said)}</p>")


def _cards(
    options: Iterable[Option], result: ResultData, wording: Wording, *, missed: bool = False
) -> str:
    name = "Near miss" if missed else "Way out"
    cards = ""
    for number, option in enumerate(options, 1):
        changes = ""
        for feature, (old, new) in option.changes.items():
            before, after = map(esc, wording.pair(feature, old, new))
            changes += f"<li>Change {esc(wording.name(feature))} from {before} "
            changes += f"to <strong>{after}</strong></li>"
        chance = wording.chance(option.probability)
        told = ["not approved"] * missed + [f"chance {chance}"] * bool(chance)
        kind = "tag warn" if missed or doubts(option) else "tag"
        cards += (
            f'<li class="card"><h3>{name} {number}</h3><ul>{changes}</ul>'
            f'<p><span class="{kind}">{escape(", ".join(told) or "approved")}</span> '
            f"{change_count(option)}</p>{'' if missed else _remarks(option, result, wording)}"
            f"{_reason(option, 'Reason given: ')}</li>\n"
        )
    return f'<ol class="cards">\n{cards}</ol>'


def _remarks(option: Option, result: ResultData, wording: Wording) -> str:
    """Return what is doubtful about an option, and its safer variants."""
    said = "".join(f'<p class="doubt">{escape(_sentence(what))}</p>' for what in doubts(option))
    safer = safer_lines(option, result.settings, wording)
    return said + "".join(f'<p class="safer">{esc(_sentence(line))}</p>' for line in safer)


def _sentence(said: str) -> str:
    return f"{said[0].upper()}{said[1:]}."


def _reason(option: Option, before: str = "") -> str:
    reason = reason_text(option.reasons)
    return f'<p class="reason">{before}{esc(reason)}</p>' if reason else ""


def _alone(result: ResultData, wording: Wording, caption: str, most: int | None = None) -> str:
    """Return what each feature does alone, as a table; a short one without what was not asked."""
    tips = alone(result, wording, esc, not_asked=most is None)[:most]
    heads = ["What changes", "Now", "Alone"]
    rows = [[tip.name, tip.now, tip.said] for tip in tips]
    return html_table(caption, heads, rows) if rows else ""


def _other_rows(result: ResultData) -> str:
    """Return where the approved rows are that are no ways."""
    return section(
        "Everything that was approved",
        f"<p>The approved rows count as {counted(len(result.options), 'different option')}. Those "
        "that are no ways are left out here. The JSON file has them all, and "
        "so has the CSV file if it is asked for them: <code>waysout find … --csv all.csv "
        "--all-options</code>, or <code>to_csv(all_options=True)</code>.</p>",
    )


def _all_options(result: ResultData, wording: Wording) -> str:
    options = result.options
    listed = easiest_first(options)[:MOST_LISTED]
    counts = f"All {counted(len(options), 'option')}"
    about = (
        '<p class="soft">Everything that the model approved, once for each combination that counts '
        "as different. Nearness runs from 0 to 1, the present values being 1.</p>"
    )
    if len(options) > len(listed):
        counts = f"The {len(listed):,} easiest of {len(options):,} options"
        about += (
            '<p class="note">Not all are listed here. All of them are in the CSV and JSON files: '
            "<code>waysout runs export --format csv</code>, or <code>to_csv()</code>.</p>"
        )
    table = _table(f"{counts}, the easiest first", listed, result, wording)
    return section("All options", about, table)


def _table(
    caption: str, options: Iterable[Option], result: ResultData, wording: Wording, start: int = 1
) -> str:
    heads = [f'<th scope="col" class="number">{name}</th>' for name in ("Chance", "Nearness")]
    rows = []
    for number, option in enumerate(options, start):
        pairs = {name: wording.pair(name, old, new) for name, (old, new) in option.changes.items()}
        changes = bullets(
            f"{esc(wording.name(name))}: {esc(before)} → <strong>{esc(after)}</strong>"
            for name, (before, after) in pairs.items()
        )
        changes += _remarks(option, result, wording) + _reason(option)
        chance = escape(wording.chance(option.probability)) or "yes"
        numbers = (f'<td class="number">{x}</td>' for x in (chance, f"{option.proximity:.2f}"))
        rows.append([str(number), changes, *numbers])
    return html_table(caption, ["#", "What changes", *heads], rows)


def _promises(result: ResultData, when: date | None) -> str:
    """Return what an option is, and what it is not."""
    asked = f"on {date_text(when)}" if when else "when this search was made"
    promised = [
        "Each way out was put to the model, with exactly the values listed, and met what was "
        "asked for.",
        "Each keeps all the rules that were set.",
        "Only the values named change. All others were held as they are.",
    ]
    not_promised = [
        "These are the answers of a model, not causes. It goes by what went together in past data, "
        "and correlation is not causation: a change that turns the answer need not change "
        "anything else.",
        "Nobody has checked that a change is possible, affordable or wise for this person.",
        "In life, values that were held as they are may move when another one does. The answer "
        "could then be different.",
        f"The model, or the rules, may change. This is what the model answered {asked}; it does "
        "not bind those who decide.",
        "There may be ways out that the search did not find.",
    ]
    if any(reason_text(option.reasons) for option in result.options):
        not_promised.append(
            "Reasons given beside a change were written by a language model, or a stand-in for "
            "one. Nobody has checked them."
        )
    parts = ("<h3>Promised</h3>", bullets(promised), "<h3>Not promised</h3>", bullets(not_promised))
    return section("What is promised here, and what is not", *parts, kind="promises")


def _spent(result: ResultData) -> str:
    def rounded(table: Mapping[str, float | int | None]) -> dict[str, float | int | None]:
        return {k: round(v, 3) if isinstance(v, float) else v for k, v in table.items()}

    parts = [f"<p>{esc(spent(result))}</p>"]
    for title, table in (
        ("Figures", rounded(result.metrics)),
        ("Proposals that were not usable", result.rejections),
        ("Ledger", rounded(result.ledger.as_dict())),
        ("Settings", result.settings),
    ):
        if table:
            rows = "".join(
                f'<tr><th scope="row">{esc(name)}</th><td>{_setting(value)}</td></tr>'
                for name, value in plain(table).items()
            )
            shown = f"<table><tbody>{rows}</tbody></table>"
            parts.append(f"<details><summary>{title}</summary>{shown}</details>")
    return section("What it took", *parts)


def _setting(value: Any) -> str:
    if not isinstance(value, (dict, list)):
        return "–" if value is None else esc(value_text(value))
    lines = json.dumps(value, indent=1, ensure_ascii=False).splitlines()
    indents = [" " * (len(line) - len(line.lstrip(" "))) for line in lines]
    cleaned = [indent + clean(line) for indent, line in zip(indents, lines, strict=True)]
    return f"<pre>{escape(chr(10).join(cleaned))}</pre>"
