"""Results as a search would leave them, the hostile ones included."""

from __future__ import annotations

from dataclasses import replace

from waysout.domain.budget import Spent
from waysout.domain.result import Option, Outcome, OutcomeKind
from waysout.domain.rules import Violation
from waysout.domain.schema import Value
from waysout.report.result import Result

QUERY: dict[str, Value] = {"income": 40500.0, "term": 36, "home": "rent", "car": False, "age": None}
SETTINGS = {
    "title": "Personal loans",
    "yes": "granted",
    "no": "refused",
    "method": "comp-mcts",
    "llm": "llamacpp:tiny",
    "oracle": "loans.txt",
    "distance": {"alpha": 0.5, "scales": {"income": 9000.0, "term": 12.0}},
}
SPENT = Spent(llm_calls=30, attempts=32, tokens_in=41230, tokens_out=3120, oracle_rows=150,
              seconds=48.31)  # fmt: skip


def option(
    probability: float, proximity: float, *reasons: str, stable: bool = True, **new: Value
) -> Option:
    changes = {name: (QUERY[name], value) for name, value in new.items()}
    row = {**QUERY, **new}
    return Option(row, changes, probability, proximity, len(new), str(new), reasons, stable)


OPTIONS = (
    option(0.714, 0.6, "More income.", income=52000.0),
    option(0.9, 0.4, "More income.", "A longer term.", income=60000.5, term=60),
    option(0.55, 0.3, stable=False, home="own", car=True),
)
FOUND = Result(
    QUERY,
    Outcome(OutcomeKind.FOUND),
    OPTIONS,
    ledger=SPENT,
    metrics={"unique_valid": 3, "prune_pct": 12.34567, "novelty": None},
    rejections={"no change": 11},
    settings=SETTINGS,
)
ONE = replace(FOUND, options=OPTIONS[:1])
MISSED = replace(
    FOUND,
    outcome=Outcome(OutcomeKind.BUDGET_SPENT, "all 30 LLM calls are spent", (), 0.382),
    options=(),
    near_misses=(option(0.382, 0.5, "More income.", income=45000.0),),
)
APPROVED = Result(
    QUERY, Outcome(OutcomeKind.ALREADY_APPROVED, "granted already", (), 0.83), settings=SETTINGS
)
STUCK = Result(
    QUERY,
    Outcome(
        OutcomeKind.INFEASIBLE,
        "; ".join(f"{name} is fixed" for name in QUERY),
        tuple(Violation("immutable", (name,), f"{name} is fixed") for name in QUERY),
        0.12,
    ),
)

SCRIPT = "<script>alert(1)</script>"
TURNED = "safe\u202eevil\x1b[31m"
_NASTY: dict[str, Value] = {
    SCRIPT: TURNED,
    "{x} $title %s": "</style><img src=x onerror=alert(1)>",
    "=cmd|' /C calc'!A0": "@SUM(1)",
    "probability": -3,
    "שלום": "עולם",
    "x" * 200: "y" * 400,
    "half": "\ud800",
}
_NASTY_CHANGES: dict[str, tuple[Value, Value]] = {
    SCRIPT: (TURNED, '"><b onload=x>'),
    "{x} $title %s": ("</style><img src=x onerror=alert(1)>", "${body}"),
    "=cmd|' /C calc'!A0": ("@SUM(1)", "+1+1"),
    "probability": (-3, -4),
}
HOSTILE = Result(
    _NASTY,
    Outcome(OutcomeKind.FOUND, SCRIPT),
    tuple(
        Option(
            {**_NASTY, **{name: new for name, (_, new) in _NASTY_CHANGES.items()}},
            _NASTY_CHANGES, 0.5, 0.5, 4, "k", ("r" * 300, SCRIPT, "=1+1\nnext"),
        )
        for _ in range(60)
    ),
    ledger=SPENT,
    metrics={SCRIPT: 1},
    rejections={SCRIPT: 1},
    settings={**SETTINGS, "title": SCRIPT, "oracle": SCRIPT, "llm": "simulated:<b>",
              "nested": {SCRIPT: [TURNED]}},
)  # fmt: skip
BROKEN = Result({}, Outcome(OutcomeKind.FAILED, "the oracle broke"))
EVERY = {
    "found": FOUND, "one": ONE, "missed": MISSED, "approved": APPROVED, "stuck": STUCK,
    "hostile": HOSTILE, "broken": BROKEN,
}  # fmt: skip
