"""What a run's file says it was made from. It may come from anywhere: each field is checked."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from waysout.cli.places import command, is_ours, resume_hint, run_argument, trust_options
from waysout.run.plan import as_now
from waysout.run.source import Source

if TYPE_CHECKING:
    from waysout.run.options import Options
    from waysout.run.source import Trust
    from waysout.store import Store

_TEXT = (str,)
_WHOLE = (int,)
_WHOLE_OR_NONE = (int, type(None))
_NUMBER_OR_NONE = (int, float, type(None))
_ABOUT: Mapping[str, tuple[type, ...]] = {
    "data": _TEXT, "card": _TEXT, "model": _TEXT, "rules": _TEXT, "positive_class": _TEXT,
    "inputs": _TEXT, "at_least": _NUMBER_OR_NONE, "rise": _NUMBER_OR_NONE,
}  # fmt: skip
_BUDGET: Mapping[str, tuple[type, ...]] = {
    "llm_calls": _WHOLE_OR_NONE, "oracle_rows": _WHOLE_OR_NONE, "tokens": _WHOLE_OR_NONE,
    "money": _NUMBER_OR_NONE, "seconds": _NUMBER_OR_NONE,
}  # fmt: skip


@dataclass(frozen=True)
class Kept:
    """All that `waysout runs resume` needs from a run; its options are not checked yet."""

    source: Source
    options: Options
    row: Mapping[str, Any]


def read_kept(store: Store) -> Kept:
    """Return what a run of `waysout find` was made from."""
    about = _Fields(store.path, _about(store), "about.")
    source = Source(
        **{name: about.get(name, kinds) for name, kinds in _ABOUT.items()},
        safer=_safer(about),
        folder=about.get("folder", _TEXT) if "folder" in about.found else "",
    )
    plan = _Fields(store.path, store.manifest, "").part("plan")
    budget = plan.part("budget")
    options: dict[str, Any] = {
        "method": plan.get("method", _TEXT),
        "settings": as_now(plan.get("method", _TEXT), plan.get("method_settings", (dict,))),
        "llm": about.get("llm", _TEXT) or None,
        "price": about.get("price", _TEXT) or None,
        "k": plan.get("k", _WHOLE),
        "seed": plan.get("seed", _WHOLE),
        "style": _style(plan),
        "polish": plan.get("polish", _WHOLE) if "polish" in plan.found else None,
        "run": store.path,
        **{name: budget.get(name, kinds) for name, kinds in _BUDGET.items()},
    }
    options["calls"] = options.pop("llm_calls")
    return Kept(source, cast("Options", options), about.get("row", (dict,)))


def check_is_of_find(store: Store) -> None:
    """Refuse a run that `waysout find` cannot resume."""
    from waysout.errors import InputError

    if not says_of_what(store):
        raise InputError(
            f"{store.path} was not made by `waysout find`: resume it where it was made, with the "
            "same problem and run=…"
        )
    if _about(store).get("service"):
        raise InputError(
            f"{store.path} was made by `waysout serve`, with what that person cannot change: open "
            f"it there, with {command('serve', run_argument(store.path))}"
        )


def says_of_what(store: Store) -> bool:
    """Whether a run says what it was made from; if not, only its own code can resume it."""
    return "row" in _about(store)


def made_of(store: Store) -> dict[str, str]:
    """Return the LLM and the files that a run names, if it does."""
    about = _about(store)
    found = {name: about.get(name) for name in ("llm", "model", "data", "card")}
    if not store.manifest.get("llm"):  # the method asks none
        del found["llm"]
    return {name: value for name, value in found.items() if isinstance(value, str) and value}


def how_to_resume(store: Store) -> str:
    """Say how to resume a run; nothing where only its own code can."""
    about = _about(store)
    if not says_of_what(store):
        return ""
    if about.get("service"):
        return f"open it with: {command('serve', run_argument(store.path))}"
    trusted = about.get("trusted") if is_ours(store.path) else []  # no file vouches for itself
    words = trusted if isinstance(trusted, list) else []
    llm = made_of(store).get("llm", "")
    return resume_hint(store.path, llm, [word for word in words if isinstance(word, str)])


def check_unchanged(run: Path, source: Source) -> None:
    """Refuse to resume a run if its model or table has changed: it would be half of each."""
    from waysout.errors import IntegrityError
    from waysout.store import Store

    with Store.read(run) as store:
        before = _about(store).get("digests")
    for name, digest in source.digests().items():
        if isinstance(before, dict) and before.get(name, digest) != digest:
            raise IntegrityError(
                f"the {name} {getattr(source, name)} is not the one {run} began with: restore it "
                "to resume, or start a new run"
            )


def to_resume(trust: Trust, run: Path, source: Source) -> list[str]:
    """Return the options that a resumed run needs again.

    No file vouches for itself; and how long the model may take changes no answer, so it is not on
    file.
    """
    limit = source.row_seconds
    patience = [] if limit is None else ["--row-seconds", f"{limit:g}"]
    trusted = dict.fromkeys([*trust_options(trust), *reopening(run, source.model)])
    return [*trusted, *patience]


def reopening(run: Path, model: str) -> list[str]:
    """Return the options without which the model that a run names is not opened again.

    A file from anywhere may name any code, and any address to send rows and a key to.
    """
    from waysout.oracles.load import is_address, is_code

    if is_code(model):
        return ["--trust-code"]
    return ["--model", model] if is_address(model) and not is_ours(run) else []


def check_confirmed_model(run: Path, model: str, said: str) -> None:
    """Refuse to ask an address that only the file names; ``said`` is the user's word."""
    from waysout.errors import InputError, shown

    if said and said != model:
        raise InputError(f"{run} was started with the model {shown(model, 200)}, not with {said}")
    if not said and (words := reopening(run, model)) and words[0] == "--model":
        raise InputError(
            f"{run} is outside our folder of runs, and sends rows, and your key if you have one, "
            f"to an address that it names: to confirm that, add {shlex.join(words)}"
        )


def _about(store: Store) -> Mapping[str, Any]:
    value = store.manifest.get("about")
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class _Fields:
    """A part of a manifest, and its name there."""

    path: Path
    found: Mapping[str, Any]
    at: str

    def get(self, name: str, kinds: tuple[type, ...]) -> Any:
        value = self.found.get(name)
        # A missing field is an error even where None is allowed; and a boolean is no number.
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


def _safer(about: _Fields) -> tuple[float, ...]:
    # Earlier releases wrote none.
    levels = about.get("safer", (list,)) if "safer" in about.found else []
    if not all(isinstance(level, (int, float)) for level in levels):
        raise about.wrong("safer")
    return tuple(levels)


def _style(plan: _Fields) -> Any:
    from waysout.prompts.propose import Style
    from waysout.prompts.render import Template

    style = plan.get("style", (dict, type(None)))
    if style is None:
        return None
    try:
        found = Style(**style)
    except TypeError:
        raise plan.wrong("style") from None
    switches = (found.constrain, found.strict, found.spread)
    if found.template not in get_args(Template) or not all(isinstance(s, bool) for s in switches):
        raise plan.wrong("style")
    return found
