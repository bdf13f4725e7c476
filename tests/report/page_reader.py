"""Reads a page as a browser would, and refuses what no page of ours holds."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br"}
ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "section", "div", "h1",
    "h2", "h3", "p", "strong", "bdi", "span", "ul", "ol", "li", "dl", "dt", "dd", "table",
    "caption", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre", "code",
    "small", "figure", "figcaption", "svg", "line", "circle", "text", "br",
}  # fmt: skip
ATTRIBUTES = {
    "lang", "charset", "name", "content", "http-equiv", "class", "role", "tabindex", "aria-label",
    "scope", "style", "viewbox", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "text-anchor",
}  # fmt: skip


class Page(HTMLParser):
    """What a browser would make of a page: its text, and whether it is well formed."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED
        assert {name for name, _ in attrs} <= ATTRIBUTES
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data.replace("\u00a0", " ")
