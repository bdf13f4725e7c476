from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib import resources

import pytest

SERVE = resources.files("waysout.serve")
TEMPLATE = (SERVE / "page.html").read_text("utf-8")
FILES = {
    entry.name: entry.read_text("utf-8")
    for entry in (SERVE / "static").iterdir()
    if entry.name.endswith((".js", ".css", ".svg"))
}
SCRIPTS = {name: text for name, text in FILES.items() if name.endswith(".js")}
STYLES = {name: text for name, text in FILES.items() if name.endswith(".css")}

# What turns text into markup or code, or would need a weaker policy.
FORBIDDEN = (
    r"\b(?:inner|outer)HTML\b", r"\binsertAdjacentHTML\b", r"\bdocument\s*\.\s*write",
    r"\bcreateContextualFragment\b", r"\bDOMParser\b", r"\bsetHTML", r"\bsrcdoc\b", r"\beval\b",
    r"\bnew\s+Function\b", r"\bimport\s*\(", r"\bset(?:Timeout|Interval)\s*\(\s*[\"'`]",
    r"\.on[a-z]+\s*=[^=>]", r"javascript:", r"\.cssText\b", r"\.style\s*=", r"\blocalStorage\b",
    r"\bsessionStorage\b", r"\bdocument\s*\.\s*cookie\b",
)  # fmt: skip


class Shell(HTMLParser):
    """Notes every element of the page's shell."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.feed(TEMPLATE)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def values(self, attribute: str) -> list[str]:
        return [found[attribute] for _, found in self.elements if attribute in found]


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_no_script_makes_markup_or_code_of_text(pattern: str) -> None:
    assert [name for name, text in SCRIPTS.items() if re.search(pattern, text)] == []


@pytest.mark.parametrize(
    "text", ["node.innerHTML = x", "eval(x)", "a.onclick = f", "new Function()"]
)
def test_what_is_forbidden_would_be_seen(text: str) -> None:
    assert any(re.search(pattern, text) for pattern in FORBIDDEN)


def test_the_shell_holds_no_script_style_or_handler_of_its_own() -> None:
    shell = Shell()
    for tag, found in shell.elements:
        assert tag not in ("style", "iframe", "object", "embed", "base")
        assert tag != "script" or found.get("src", "").startswith("/static/")
        assert not [name for name in found if name.startswith("on") or name == "style"]


def test_nothing_is_asked_of_another_server() -> None:
    namespace = "http://www.w3.org/2000/svg"
    for name, text in {**FILES, "page.html": TEMPLATE}.items():
        assert set(re.findall(r"https?://[^\s\"'`)]+", text)) <= {namespace}, name
        assert "@import" not in text
        assert "//cdn" not in text


def test_the_shell_takes_nothing_but_the_version_and_whether_a_token_is_needed() -> None:
    assert set(re.findall(r"\$(\w*)", TEMPLATE)) == {"version", "logout"}


def test_ids_are_unique_and_all_that_refers_to_one_finds_it() -> None:
    shell = Shell()
    ids = shell.values("id")
    assert len(set(ids)) == len(ids)
    named = [
        name
        for attribute in ("for", "aria-labelledby", "aria-controls", "aria-describedby")
        for value in shell.values(attribute)
        for name in value.split()
    ]
    assert set(named) <= set(ids)
    wanted = {
        (name, id)
        for name, text in SCRIPTS.items()
        for id in re.findall(r'\bslot\("([^"]+)"\)', text)
    }
    assert {(name, id) for name, id in wanted if id not in ids} == set()


def test_every_control_of_the_shell_has_a_name() -> None:
    shell = Shell()
    labelled = set(shell.values("for"))
    wrapped = {"problem-select", "feature-query", "sort"}  # inside their labels
    for tag, found in shell.elements:
        if tag in ("input", "select") and "hidden" not in found:
            assert found["id"] in labelled | wrapped or "aria-label" in found, found


def test_every_module_is_announced_at_once() -> None:
    announced = re.findall(r'rel="modulepreload" href="/static/([^"]+)"', TEMPLATE)
    assert sorted(announced) == sorted(set(SCRIPTS) - {"main.js"})


def test_every_style_sheet_is_used() -> None:
    assert set(re.findall(r'rel="stylesheet" href="/static/([^"]+)"', TEMPLATE)) == set(STYLES)


@pytest.mark.parametrize("name", sorted(FILES))
def test_files_stay_small(name: str) -> None:
    assert len(FILES[name].splitlines()) < 450


def colours(scheme: str) -> dict[str, str]:
    """The colours of the page, by their names in the style sheet."""
    light, dark = STYLES["base.css"].split("@media (prefers-color-scheme: dark)")
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light))
    if scheme == "dark":
        found |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", dark))
    return found


def brightness(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((brightness(one), brightness(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("text", "back"),
    [
        ("ink", "paper"), ("ink", "card"), ("ink", "sunk"), ("ink", "warn-back"),
        ("ink", "yes-back"), ("soft", "paper"), ("soft", "card"), ("soft", "sunk"),
        ("soft", "warn-back"), ("yes", "paper"), ("yes", "card"), ("yes", "sunk"),
        ("yes", "yes-back"), ("yes", "warn-back"), ("warn", "card"), ("warn", "sunk"),
        ("warn", "warn-back"), ("on-yes", "yes"), ("on-yes", "yes-strong"), ("card", "ink"),
    ],
)  # fmt: skip
def test_text_can_be_read_in_both_schemes(scheme: str, text: str, back: str) -> None:
    found = colours(scheme)
    assert contrast(found[text], found[back]) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("mark", "back"), [("edge", "card"), ("yes-mid", "card"), ("warn", "sunk")]
)
def test_marks_can_be_told_from_their_ground(scheme: str, mark: str, back: str) -> None:
    found = colours(scheme)
    assert contrast(found[mark], found[back]) >= 3
