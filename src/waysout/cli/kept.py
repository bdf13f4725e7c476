"""What a run's file says it was made from. Anybody may have written it: each field is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waysout.run.source import Source

if TYPE_CHECKING:
    from waysout.run.find import Options
    from waysout.store import Store

_TEXT = (str,)
_WHOLE = (int,)
_WHOLE_OR_NONE = (int, type(None))
_NUMBER_OR_NONE = (int, float, type(None))
_ABOUT: Mapping[str, tuple[type, ...]] = {
    "data": _TEXT, "card": _TEXT, "model": _TEXT, "rules": _TEXT, "positive_class": _TEXT,
    "inputs": _TEXT, "at_least": _NUMBER_OR_NONE, "rise": _NUMBER_OR_NONE,
}  # fmt: skip


@dataclass(frozen=True)
class Kept:
    """All that `waysout runs resume` needs of a run; ``llm`` is empty where none is asked."""

    source: Source
    options: Options
    llm: str
    row: Mapping[str, Any]


def read_kept(store: Store) -> Kept:
    """Return what a run of `waysout find` was made from."""
    from waysout.run.find import make_plan

    about = _Fields(store.path, _about(store), "about.")
    source = Source(**{name: about.get(name, kinds) for name, kinds in _ABOUT.items()})
    llm, price = about.get("llm", _TEXT), about.get("price", _TEXT)
    options = _options(_Fields(store.path, store.manifest, "").part("plan"), llm, price)
    asked = llm if make_plan(options).asks_llm else ""
    return Kept(source, {**options, "run": store.path}, asked, about.get("row", (dict,)))


def check_is_of_find(store: Store) -> None:
    """Refuse a run that `waysout find` cannot go on with."""
    from waysout.errors import InputError

    check_says_of_what(store)
    if _about(store).get("service"):
        raise InputError(
            f"{store.path} was made by `waysout serve`, with what that person cannot change: go on "
            f"there, with waysout serve {store.path.stem}"
        )


def check_says_of_what(store: Store) -> None:
    """Refuse a run that other code has made: only that code can make its problem again."""
    from waysout.errors import InputError

    if "row" not in _about(store):
        raise InputError(
            f"{store.path} was not made by `waysout find`: resume it where it was made, with the "
            "same problem and run=…"
        )


def made_of(store: Store) -> dict[str, str]:
    """Return the LLM and the files that a run names, as far as it names them."""
    about = _about(store)
    found = {name: about.get(name) for name in ("llm", "model", "data", "card")}
    if not store.manifest.get("llm"):  # the method asks none
        del found["llm"]
    return {name: value for name, value in found.items() if isinstance(value, str) and value}


def check_unchanged(run: Path, source: Source) -> None:
    """Refuse to go on with a run once its model or table is another: it would be half of each."""
    from waysout.errors import IntegrityError
    from waysout.store import Store

    with Store.read(run) as store:
        before = _mapping(_about(store).get("digests"))
    for name, digest in source.digests().items():
        if before.get(name, digest) != digest:
            raise IntegrityError(
                f"the {name} {getattr(source, name)} is not the one {run} began with: bring that "
                "back to go on, or start a new run"
            )


def _about(store: Store) -> Mapping[str, Any]:
    return _mapping(store.manifest.get("about"))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class _Fields:
    """A part of a manifest, and its name there."""

    path: Path
    found: Mapping[str, Any]
    at: str

    def get(self, name: str, kinds: tuple[type, ...]) -> Any:
        value = self.found.get(name)
        # What is missing is no answer, even where None would be one; and a boolean is no number.
        if name not in self.found or isinstance(value, bool) or not isinstance(value, kinds):
            raise self.wrong(name)
        return value

    def part(self, name: str) -> _Fields:
        return _Fields(self.path, self.get(name, (dict,)), f"{self.at}{name}.")

    def wrong(self, name: str) -> Exception:
        from waysout.errors import IntegrityError, shown

        said = f"is {shown(self.found[name])}" if name in self.found else "is missing"
        return IntegrityError(
            f"{self.path} cannot be resumed: {self.at}{name} {said}, and no release writes that"
        )


def _options(plan: _Fields, llm: str, price: str) -> Options:
    budget = plan.part("budget")
    options: Options = {
        "method": plan.get("method", _TEXT),
        "settings": plan.get("method_settings", (dict,)),
        "llm": llm,
        "calls": budget.get("llm_calls", _WHOLE_OR_NONE),
        "k": plan.get("k", _WHOLE),
        "oracle_rows": budget.get("oracle_rows", _WHOLE_OR_NONE),
        "seconds": budget.get("seconds", _NUMBER_OR_NONE),
        "tokens": budget.get("tokens", _WHOLE_OR_NONE),
        "money": budget.get("money", _NUMBER_OR_NONE),
        "seed": plan.get("seed", _WHOLE),
    }
    style = plan.get("style", (dict, type(None)))
    if style is not None:
        options["style"] = _style(plan, style)
    if "polish" in plan.found:
        options["polish"] = plan.get("polish", _WHOLE)
    if price:
        options["price"] = price
    return options


def _style(plan: _Fields, style: Mapping[str, Any]) -> Any:
    from typing import get_args

    from waysout.prompts.propose import Style
    from waysout.prompts.render import Template

    try:
        found = Style(**style)
    except TypeError:
        raise plan.wrong("style") from None
    switches = (found.constrain, found.strict, found.spread)
    if found.template not in get_args(Template) or not all(isinstance(s, bool) for s in switches):
        raise plan.wrong("style")
    return found
