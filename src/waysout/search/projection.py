"""A row that nobody held to the rules, made into one that keeps them."""

from __future__ import annotations

from waysout.domain.problem import Problem
from waysout.domain.schema import Row, Value


class Projection:
    """Makes a query as like other rows as the rules allow."""

    def __init__(self, problem: Problem, query: Row) -> None:
        self.problem = problem
        self.query = query
        levers = problem.rules.levers(query)
        self._levers = {name: lever for name, lever in levers.items() if lever.is_open}
        # A value that breaks a rule about itself cannot stay, however like the other's it is.
        self._broken = {violation.features for violation in problem.violations(query, query)}

    def __call__(self, goal: Row) -> Row:
        """Return the query made like another row; the query itself where nothing may be done.

        Where rules about several features forbid it, edits are taken back one by one: of those the
        broken rule names, the smallest, since the large ones are what makes the rows alike.
        """
        edits, sizes = self._edits(goal), dict[str, float]()
        row = self.problem.rules.apply(self.query, edits)
        while edits and (broken := self.problem.violations(self.query, row)):
            sizes = sizes or self._sizes(edits)
            named = [name for name in edits if name in broken[0].features]
            del edits[min(named or edits, key=sizes.__getitem__)]
            row = self.problem.rules.apply(self.query, edits)
        return row

    def _edits(self, goal: Row) -> dict[str, Value]:
        edits = {}
        for name, lever in self._levers.items():
            wanted = goal[self.problem.schema.index(name)]
            value = lever.towards(wanted, must_move=(name,) in self._broken)
            if value != lever.now:
                edits[name] = value
        return edits

    def _sizes(self, edits: dict[str, Value]) -> dict[str, float]:
        """Return how far each edit alone leads away."""
        apply, schema = self.problem.rules.apply, self.problem.schema
        alone = [apply(self.query, {name: value}) for name, value in edits.items()]
        encoded = schema.encode([self.query, *alone])
        distances = self.problem.distance.between(encoded[0], encoded[1:]).tolist()
        return dict(zip(edits, distances, strict=True))
