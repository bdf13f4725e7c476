"""The problem of one table: what rows are, what may change, what decides, how options compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from waysout.domain.card import Card
from waysout.domain.distance import Distance, Matrix, proximity
from waysout.domain.key import Key
from waysout.domain.oracle import Answers, Goal, Oracle
from waysout.domain.result import Option, Outcome, OutcomeKind
from waysout.domain.rules import Rule, RuleSet, Violation
from waysout.domain.schema import Row, Schema, Value
from waysout.errors import InputError, shown

Binning = Literal["fixed", "fit", "none"]


@dataclass(frozen=True)
class Problem:
    """Schema, rules, key, distance and oracle, bound together.

    This is what `find` searches; a card and a model make one.

    >>> import waysout
    >>> data = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["credit_score"] / 1400, data.card)
    >>> problem = waysout.Problem.from_card(data.card, oracle, training=data.rows)
    >>> result = waysout.find(problem, data.rows[828], oracle_rows=40)
    >>> str(result.outcome.kind)
    'found'
    """

    schema: Schema
    rules: RuleSet
    key: Key
    distance: Distance
    oracle: Oracle
    goal: Goal = field(default_factory=Goal)
    yes: str = "approved"
    no: str = "rejected"
    name: str = "problem"
    title: str = ""
    notes: tuple[str, ...] = ()
    """What users should know about how it was made; results repeat it."""
    examples: Sequence[Row] = ()
    """Rows to try the model with where none with a known outcome are given."""

    @classmethod
    def from_frame(cls, model: Any, frame: Any, y: Any = None, **set_up: Any) -> Problem:
        """Bind a model to a data frame, with what may change inferred: see `waysout.Explainer`.

        >>> import pandas as pd
        >>> frame = pd.DataFrame({"income": [1.5, 2.5, 3.5], "age": [20, 30, 40]})
        >>> problem = Problem.from_frame(lambda rows: rows["income"] / 4, frame)
        >>> [rule.says for rule in problem.rules.rules]
        ['immutable age', 'income only up']
        """
        from waysout.explainer import Explainer

        return Explainer(model, frame, y, **set_up).problem

    @classmethod
    def from_card(
        cls,
        card: Card,
        oracle: Oracle,
        *,
        training: Sequence[Row] = (),
        rule_set: str | None = None,
        rules: Sequence[Rule] = (),
        goal: Goal | None = None,
        binning: Binning = "fixed",
    ) -> Problem:
        """Bind a card to a model.

        ``training`` rows set the scales that the card does not state. The key's bins are the card's
        (``binning="fixed"``), fitted to the training rows (``"fit"``), or left out (``"none"``).
        """
        if binning == "fit" and not training:
            raise InputError("binning 'fit' takes its bins from training rows: pass some")
        if not callable(getattr(oracle, "ask", None)):
            raise InputError(f"{shown(oracle)} is not an oracle: make one with waysout.as_oracle")
        goal = goal or Goal()
        if goal.needs_probability and oracle.labels_only:
            raise InputError(
                f"the goal asks for a probability, but {oracle.name} gives labels only"
            )
        fixed = Key(card.schema, card.bins if binning == "fixed" else {})
        return cls(
            schema=card.schema,
            rules=card.rules(rule_set).extended(rules),
            key=Key.fit(card.schema, training) if binning == "fit" else fixed,
            distance=Distance.fit(card.schema, training, card.scales_beside(training)),
            oracle=oracle,
            goal=goal,
            yes=card.outcome.yes,
            no=card.outcome.no,
            name=card.name,
            title=card.title,
        )

    def with_rules(self, rules: Sequence[Rule]) -> Problem:
        """Return the problem with more rules, for example what one person cannot change."""
        return replace(self, rules=self.rules.extended(rules))

    def row(self, raw: Mapping[str, Any]) -> Row:
        """Read one row given as a mapping."""
        return self.schema.parse(raw)

    def violations(self, query: Row, candidate: Row) -> tuple[Violation, ...]:
        """Return the rules a candidate breaks."""
        return self.rules.violations(query, candidate)

    def changes(self, query: Row, row: Row) -> dict[str, tuple[Value, Value]]:
        """Return what differs from the query: feature → (from, to)."""
        at = self.schema.index
        return {n: (query[at(n)], row[at(n)]) for n in self.schema.changed(query, row)}

    def told_changes(self, query: Row, row: Row) -> dict[str, tuple[Value, Value]]:
        """Return the same as the user's table holds the values."""
        return {
            name: (self.schema[name].raw(old), self.schema[name].raw(new))
            for name, (old, new) in self.changes(query, row).items()
        }

    def costs(self, query: Row, rows: Sequence[Row]) -> Matrix:
        """Return what rows cost: a sum over their changes (see `Distance.costs`)."""
        encoded = self.schema.encode([query, *rows])
        return self.distance.costs(encoded[0], encoded[1:])

    def option(
        self,
        query: Row,
        row: Row,
        probability: float,
        reasons: Sequence[str] = (),
        *,
        key: str | None = None,
        distance: float | None = None,
    ) -> Option:
        """Return a row as a person sees it: what changes, how far, how likely.

        Its values are those of the user's table, so that what comes out can go in again; see
        `waysout.domain.spelling` for the way back. ``key`` and ``distance`` (by `Distance.each`)
        may be passed where they are known.
        """
        return Option(
            row=self.schema.raw(row),
            changes=self.told_changes(query, row),
            probability=float(probability),
            proximity=proximity(self.distance(query, row) if distance is None else distance),
            sparsity=self.rules.count_changes(query, row),
            key=self.key(row) if key is None else key,
            reasons=tuple(reasons),
        )

    def goal_of(self, query: Row, answers: Answers) -> Goal:
        """Return the goal of one query, given what the oracle says of it alone."""
        approved = bool(answers.decision[0]) and not self.violations(query, query)
        return self.goal.for_query(float(answers.probability[0]), approved)

    def settled(self, query: Row, answers: Answers) -> Outcome | None:
        """Return the outcome if it is known without a search.

        ``answers`` is what the oracle says of the query alone: a batch of queries is asked once.
        """
        probability = float(answers.probability[0])
        rise = self.goal.rise
        if rise is not None and probability + rise > 1.0:
            reason = f"the chance is {probability:.2f} already; it cannot rise by {rise:g}"
            return Outcome(OutcomeKind.INFEASIBLE, reason, best_probability=probability)
        goal = self.goal_of(query, answers)
        if bool(goal.met(answers)[0]) and not self.violations(query, query):
            return Outcome(
                OutcomeKind.ALREADY_APPROVED, f"{self.yes} already", best_probability=probability
            )
        stuck = self.rules.obstacles(query)
        if not stuck:
            return None
        reason = "; ".join(dict.fromkeys(violation.reason for violation in stuck))
        return Outcome(OutcomeKind.INFEASIBLE, reason, stuck, probability)
