"""A result as one page that needs nothing else: no script, no font, no request.

Names, values and reasons are untrusted. They reach the page through `esc` alone, which cleans and
escapes them, and a policy in the page forbids everything but its own style.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from html import escape
from importlib import resources
from string import Template
from typing import Any

from waysout.domain.pick import easiest_first, pick, pickable
from waysout.domain.result import Option, OutcomeKind, ResultData, plain
from waysout.report.advice import SHOWN, doubts_about, plan_words
from waysout.report.chart import chart
from waysout.report.tables import esc as esc
from waysout.report.tables import html_table
from waysout.report.text import (
    MOST_TIPS,
    NOT_APPROVED,
    ending,
    has_own_edits,
    headline,
    headline_words,
    lead,
    note_lines,
    safer_lines,
    sentence,
    spent,
    stand_in_note,
)
from waysout.report.tipping import TITLE, alone
from waysout.report.words import (
    Wording,
    capital,
    clean,
    counted,
    date_text,
    goal_words,
    reason_text,
    value_text,
)

MOST_LISTED = 500
_CAPTION_ALONE = (
    "What the model says if one of these changes, with what moves along, and nothing else"
)
_NO_ANSWER = "has given no answer"
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


def page(
    result: ResultData,
    n: int = SHOWN,
    *,
    when: date | None = None,
    ways: Sequence[Option] | None = None,
) -> str:
    """Return a whole page about one result, the n ways to read first on top.

    ``when`` is the day of the search, which a result does not hold; ``ways`` are shown instead of
    those that would be picked.
    """
    wording = Wording.of(result)
    shown = list(ways or ()) or (pick(result, n) if result.options else ())
    named = result.settings.get("title")
    title = f"Ways out: {named}" if named else "Ways out"
    parts = [_head(result, title, wording, when, ways or ())]
    if shown:
        parts += [_shown(result, shown, wording)]
    elif result.near_misses:
        about = '<p class="note"><strong>None of these was approved.</strong> They show how near '
        about += "the search came, and are not ways out.</p>"
        cards = _cards(result.near_misses, result, wording, missed=True)
        parts.append(section(NOT_APPROVED, about, cards, kind="missed"))
    parts += [_tips(result, wording), _values(result, wording), _limits(result)]
    parts += [_promises(result, when)] if shown else []
    parts.append(_how(result))
    return whole_page(title, "page.css", "\n".join(filter(None, parts)))


def excerpt(result: ResultData, n: int = 5) -> str:
    """Return a few lines and a short table for a notebook's cell."""
    wording = Wording.of(result)
    shown = pick(result, n) if result.options else ()
    lines, note = [esc(sentence(result, wording))], stand_in_note(result)
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


def _head(
    result: ResultData, title: str, wording: Wording, when: date | None, ways: Sequence[Option]
) -> str:
    """Return what to do, what was decided and asked for, and how the search ended."""
    parts = ["<header>", f"<h1>{esc(title)}</h1>"]
    if note := stand_in_note(result):
        parts.append(warning_note(note))
    parts.append(f'<p class="lead">{esc(lead(result, wording, ways))}</p>')
    parts.append(f"<p>{' '.join(_facts(result, when))}</p>")
    if result.outcome.binding and not result.options:
        rules = bullets(f"{esc(v.rule)}: {esc(v.reason)}" for v in result.outcome.binding)
        parts.append(f"<p>The rules that stand in the way:</p>\n{rules}")
    return "\n".join([*parts, "</header>"])


def _facts(result: ResultData, when: date | None) -> list[str]:
    told = result.settings
    model = f"the model {esc(told['oracle'])}" if told.get("oracle") else "the model"
    chance = f" (chance {escape(standing(result))})" if standing(result) else ""
    stands = f"says: <strong>{esc(decision(result))}</strong>{chance}"
    said = [f"Goal: {esc(goal_words(told.get('goal')))}."]
    said.append(f"As things stand, {model} {stands if decision(result) else _NO_ANSWER}.")
    said += [f"Asked on {date_text(when)}."] if when is not None else []
    return [*said, esc(ended)] if (ended := ending(result, people=True)) else said


def _shown(result: ResultData, shown: Sequence[Option], wording: Wording) -> str:
    """Return the ways to read first, drawn and as cards, and where the others are."""
    drawn = "" if wording.labels_only else chart(shown)
    others = [way for way in result.ways if way not in shown]
    rest = ""
    if not result.ways and len(result.options) > len(shown):
        rest = _all_options(result, wording)
    elif others:
        many = counted(len(others), "other way out", "other ways out")
        listed, start = others[:MOST_LISTED], len(shown) + 1
        table = _table(f"{many}, the best first", listed, result, wording, start)
        rest = f"<details><summary>{many}</summary>{table}</details>"
        rest += f'<p class="print">{many} {_is(others)} in the CSV and JSON files.</p>'
    cards = _cards(shown, result, wording)
    return section(headline_words(len(shown)), cards, drawn, rest)


def _is(things: Sequence[object]) -> str:
    return "is" if len(things) == 1 else "are"


def _tips(result: ResultData, wording: Wording) -> str:
    """Return what one change does alone; what was not asked, and the long rest, is folded."""
    first = _alone(result, wording, _CAPTION_ALONE, MOST_TIPS)
    every = _alone(result, wording, f"{_CAPTION_ALONE}, all of them")
    if not every:
        return ""
    more = every.count("<tr>") > first.count("<tr>")
    rest = f"<details><summary>All of them, what was not asked too</summary>{every}</details>"
    return section("One change alone", first, _ABOUT_ALONE, rest if more else "")


def _values(result: ResultData, wording: Wording) -> str:
    values = "".join(
        f"<div><dt>{esc(wording.name(name))}</dt><dd>{esc(wording.value(name, value))}</dd></div>"
        for name, value in result.query.items()
    )
    told = {name: said for name in result.query if (said := wording.about(name))}
    meanings = bullets(f"{esc(wording.name(name))}: {esc(said)}" for name, said in told.items())
    folded = f"<details><summary>What the words mean</summary>{meanings}</details>" if told else ""
    return section("Present values", f'<dl class="values">{values}</dl>', folded)


def _limits(result: ResultData) -> str:
    """Return the rules in words; results of earlier releases hold them as the card writes them."""
    limits, parts = result.settings.get("limits") or result.settings.get("rules"), []
    if isinstance(limits, (list, tuple)) and limits:
        parts.append(section("The limits that were kept", bullets(map(esc, limits)), kind="limits"))
    if notes := note_lines(result):
        parts.append(section("What was taken for granted", bullets(map(esc, notes))))
    return "\n".join(parts)


def _how(result: ResultData) -> str:
    """Return how it was searched, folded: method, what it took, figures and settings."""
    told, said = result.settings, list[str]()
    if told.get("method") and result.ledger.oracle_rows:
        said.append(f"Searched with {esc(told['method'])}.")
    if told.get("llm") and result.ledger.llm_calls:
        llm = esc(told["llm"])
        said.append(
            f"Some changes proposed by {llm}; the others, without a reason, by the search itself."
            if has_own_edits(result)
            else f"Changes proposed by {llm}."
        )
    if result.ways:
        said.append(
            f"{esc(headline(result))}. The approved rows count as "
            f"{counted(len(result.options), 'different option')}; those that are no ways are in "
            "the JSON file, and in the CSV file if it is asked for them: "
            "<code>waysout find … --csv all.csv --all-options</code>, or "
            "<code>to_csv(all_options=True)</code>."
        )
    told_all = f"<p>{' '.join([*said, esc(spent(result))])}</p>{_figures(result)}"
    folded = f"<details><summary>Method, cost and settings</summary>{told_all}</details>"
    return section("How it was searched", folded, kind="how")


def _cards(
    options: Iterable[Option], result: ResultData, wording: Wording, *, missed: bool = False
) -> str:
    cards = ""
    for number, option in enumerate(options, 1):
        changes = ""
        for feature, (old, new) in option.changes.items():
            before, after = map(esc, wording.pair(feature, old, new))
            name = f'<span class="soft">{esc(wording.name(feature))}</span>'
            changes += f"<li>{name} {before} → <strong>{after}</strong></li>"
        chance = wording.chance(option.probability)
        told = ["not approved"] * missed + [f"chance {chance}"] * bool(chance)
        kind = "tag warn" if missed or doubts_about(option, result) else "tag"
        plan = "Near miss" if missed else capital(plan_words(option, wording))
        cards += (
            f'<li class="card"><h3>{number}. {esc(plan)}</h3><ul>{changes}</ul>'
            f'<p><span class="{kind}">{escape(", ".join(told) or "approved")}</span></p>'
            f"{'' if missed else _remarks(option, result, wording)}"
            f"{_reason(option, 'Reason given: ')}</li>\n"
        )
    return f'<ol class="cards">\n{cards}</ol>'


def _remarks(option: Option, result: ResultData, wording: Wording) -> str:
    """Return what is doubtful about an option, and its safer variants."""
    said = "".join(
        f'<p class="doubt">{escape(f"{capital(what)}.")}</p>'
        for what in doubts_about(option, result)
    )
    safer = safer_lines(option, result.settings, wording)
    return said + "".join(f'<p class="safer">{esc(capital(line))}.</p>' for line in safer)


def _reason(option: Option, before: str = "") -> str:
    reason = reason_text(option.reasons)
    return f'<p class="reason">{before}{esc(reason)}</p>' if reason else ""


def _alone(result: ResultData, wording: Wording, caption: str, most: int | None = None) -> str:
    """Return what each feature does alone, as a table; a short one without what was not asked."""
    tips = alone(result, wording, esc, not_asked=most is None)[:most]
    heads = ["What changes", "Now", "Alone"]
    rows = [[tip.name, tip.now, tip.said] for tip in tips]
    return html_table(caption, heads, rows) if rows else ""


def _all_options(result: ResultData, wording: Wording) -> str:
    """Return the options of a result without ways, folded."""
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
    return f"<details><summary>{counts}</summary>{about}{table}</details>"


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
        "Each way was put to the model, with exactly the values listed and all others held as they "
        "are, and reached the goal. Each keeps all the limits.",
    ]
    not_promised = [
        "These are answers of a model, not causes: correlation is not causation.",
        "Nobody has checked that a change is possible, affordable or wise for this person, nor "
        "what else would move with it.",
        f"The model, or the limits, may change: this is what it answered {asked}. It does not bind "
        "those who decide.",
        "There may be ways that the search did not find.",
    ]
    if any(reason_text(option.reasons) for option in result.options):
        not_promised.append(
            "Reasons beside a change were written by a language model, or a stand-in for one; "
            "nobody has checked them."
        )
    parts = ("<h3>Promised</h3>", bullets(promised), "<h3>Not promised</h3>", bullets(not_promised))
    return section("What is promised here, and what is not", *parts, kind="promises")


def _figures(result: ResultData) -> str:
    def rounded(table: Mapping[str, float | int | None]) -> dict[str, float | int | None]:
        return {k: round(v, 3) if isinstance(v, float) else v for k, v in table.items()}

    parts = ""
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
            parts += f"<details><summary>{title}</summary>{shown}</details>"
    return parts


def _setting(value: Any) -> str:
    if not isinstance(value, (dict, list)):
        return "–" if value is None else esc(value_text(value))
    lines = json.dumps(value, indent=1, ensure_ascii=False).splitlines()
    indents = [" " * (len(line) - len(line.lstrip(" "))) for line in lines]
    cleaned = [indent + clean(line) for indent, line in zip(indents, lines, strict=True)]
    return f"<pre>{escape(chr(10).join(cleaned))}</pre>"
