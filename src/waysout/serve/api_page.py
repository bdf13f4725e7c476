"""The API as a page to read, written on the server from its OpenAPI document.

Swagger UI is not used: its bundle needs inline styles and scripts, which the page's policy forbids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

Json = Mapping[str, Any]

PATH = "/docs"
DOCUMENT = "/api/openapi.json"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>{title}: the API</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/base.css">
</head>
<body>
<main class="panel">
<h1>{title} {version}: the API</h1>
{about}
<p>The same for programs: <a href="{document}">{document}</a>. Back to <a href="/">the page</a>.</p>
<hr>
<h2>All routes</h2>
<ul>
{contents}
</ul>
{routes}
<hr>
<h2>Shapes</h2>
<p>What goes in and out, by name.</p>
{shapes}
</main>
</body>
</html>
"""


def api_page(document: Json) -> str:
    """Return a page that describes an OpenAPI document."""
    routes = [
        (method.upper(), path, route)
        for path, methods in document["paths"].items()
        for method, route in methods.items()
    ]
    info, shapes = document["info"], document.get("components", {}).get("schemas", {})
    about = " ".join(info[name] for name in ("summary", "description") if info.get(name))
    return _PAGE.format(
        title=escape(info["title"]),
        version=escape(info["version"]),
        about=_text(about),
        document=DOCUMENT,
        contents="\n".join(_line(*route) for route in routes),
        routes="\n".join(_route(*route, shapes) for route in routes),
        shapes="\n".join(_shape(name, shape) for name, shape in shapes.items()),
    )


def _line(method: str, path: str, route: Json) -> str:
    first = _inline(route.get("description", "").split("\n")[0])
    return f'<li><a href="#{_id(route)}"><code>{method} {escape(path)}</code></a> {first}</li>'


def _route(method: str, path: str, route: Json, shapes: Json) -> str:
    title = f"<code>{method} {escape(path)}</code>"
    parts = [f'<hr>\n<h2 id="{_id(route)}">{title}</h2>', _text(route.get("description", ""))]
    if parameters := route.get("parameters"):
        cells = [_parameter(parameter) for parameter in parameters]
        parts.append(f"<h3>Parameters</h3>\n{_table(('Name', 'Where', 'What', 'Note'), cells)}")
    if body := route.get("requestBody"):
        parts.append(f"<h3>Body</h3>\n<p>{_content(body)}</p>")
        (sent,) = body["content"].values()
        parts.append(_fields(shapes[sent["schema"]["$ref"].rsplit("/", 1)[1]]))
    answers = [
        (f"<code>{escape(status)}</code>", _inline(said.get("description", "")), _content(said))
        for status, said in sorted(route["responses"].items())
    ]
    parts.append(f"<h3>Answers</h3>\n{_table(('Status', 'When', 'What'), answers)}")
    return "\n".join(parts)


def _parameter(found: Json) -> tuple[str, str, str, str]:
    name, where, schema = escape(found["name"]), escape(found["in"]), found["schema"]
    note = _inline(found.get("description", schema.get("description", "")))
    return f"<code>{name}</code>", where, _type(schema) + _default(schema), note


def _content(said: Json) -> str:
    """Return what a body or an answer holds."""
    found = [
        f"{_type(content['schema'])} ({escape(kind)})" if content.get("schema") else escape(kind)
        for kind, content in said.get("content", {}).items()
    ]
    return " or ".join(found) or "nothing"


def _shape(name: str, shape: Json) -> str:
    about = _text(shape.get("description", ""))
    return f'<h3 id="shape-{escape(name)}">{escape(name)}</h3>\n{about}\n{_fields(shape)}'


def _fields(shape: Json) -> str:
    needed = shape.get("required", ())
    cells = [
        (f"<code>{escape(field)}</code>", _type(schema) + _default(schema),
         "yes" if field in needed else "no", _inline(schema.get("description", "")))
        for field, schema in shape.get("properties", {}).items()
    ]  # fmt: skip
    heads = ("Field", "What", "Needed", "Note")
    return _table(heads, cells) if cells else f"<p>{_type(shape)}</p>"


def _type(schema: Json) -> str:
    """Return what a value may be, in words."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[1])
        return f'<a href="#shape-{name}">{name}</a>'
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(_type, choices)))
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in values)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"table of {_type(schema['additionalProperties'])}"
    return escape(str(schema.get("type", "anything"))) + _limits(schema)


def _limits(schema: Json) -> str:
    names = {"minimum": "at least", "maximum": "at most", "maxLength": "characters: at most"}
    said = [f"{words} {schema[name]}" for name, words in names.items() if name in schema]
    return f" ({escape(', '.join(said))})" if said else ""


def _default(schema: Json) -> str:
    default = schema.get("default")
    return "" if default in (None, "", [], {}) else f"; default <code>{escape(str(default))}</code>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{title}</th>' for title in heads)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" for cells in rows
    )
    # A figure keeps its distance from what is around it without a style of its own.
    return f"<figure><table>\n<tr>{head}</tr>\n{body}\n</table></figure>"


def _text(text: str) -> str:
    parts = (part for part in re.split(r"\n\s*\n", text) if part.strip())
    return "\n".join(f"<p>{_inline(part)}</p>" for part in parts)


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(" ".join(text.split())))


def _id(route: Json) -> str:
    return escape(route["operationId"])
