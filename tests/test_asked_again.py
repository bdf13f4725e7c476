"""What a person is shown, put to the model again: by code that takes the search's word for nothing.

Ten of the demo's applicants by default; with ``-m slow`` all 30, and ten queries of each real
table, whose models take minutes to train.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import pytest

import waysout
from waysout.cli.demo import demo_problem
from waysout.datasets.load import Dataset, load_dataset, training_rows
from waysout.datasets.manifest import load_oracle
from waysout.datasets.queries import queries
from waysout.datasets.train import train_oracle
from waysout.domain.problem import Problem
from waysout.domain.result import Tip, TipStatus, Way
from waysout.domain.rules import Lever
from waysout.domain.schema import Row, Value
from waysout.domain.ways import Checks
from waysout.errors import UnavailableError
from waysout.report.advice import advice
from waysout.report.result import Result
from waysout.report.words import doubts, doubts_in_full
from waysout.serve.strips import Strips

SHOWN = 5
FARTHER = 10


def demo_cases(first: int) -> tuple[Problem, Dataset, list[Row]]:
    problem, dataset = demo_problem(quiet=True)
    numbers = queries("synthetic")
    assert len(numbers) == 30
    return problem, dataset, [dataset.rows[i] for i in numbers[first : first + 10]]


def table_cases(name: str) -> tuple[Problem, Dataset, list[Row]]:
    try:
        dataset = load_dataset(name)
    except UnavailableError as error:
        pytest.skip(str(error))
    try:
        oracle = load_oracle(dataset.card)
    except UnavailableError:
        train_oracle(dataset)
        oracle = load_oracle(dataset.card)
    problem = Problem.from_card(dataset.card, oracle, training=training_rows(dataset))
    return problem, dataset, [dataset.rows[i] for i in queries(name)[:10]]


@dataclass(frozen=True)
class Judge:
    """Asks the model about changes of one query, as a person would."""

    problem: Problem
    query: Row

    def row(self, changes: Mapping[str, Value]) -> Row:
        return self.problem.schema.replace(self.query, changes)

    def is_yes(self, changes: Mapping[str, Value]) -> bool:
        """Whether the model says yes to them; what the rules forbid is no way either."""
        schema = self.problem.schema  # results hold the table's own spelling
        row = self.row({name: schema[name].parse(value) for name, value in changes.items()})
        if row == self.query or self.problem.violations(self.query, row):
            return False
        return bool(self.problem.oracle.ask([row]).decision[0])

    def still_yes(self, way: Way) -> bool:
        """Whether the model says yes to a tenth and half as much more, as `Checks` defines it."""
        rows = Checks(self.problem, self.query).farther(self.problem.row(way.row))
        return not rows or bool(self.problem.oracle.ask(rows).decision.all())

    def lever(self, name: str) -> Lever:
        return self.problem.rules.levers(self.query)[name]

    def numbers(self, changes: Mapping[str, Value]) -> dict[str, tuple[float, float]]:
        """Return the changed numbers, and how far each goes."""
        features = (self.problem.schema[name] for name in changes)
        names = [f.name for f in features if f.is_numeric]
        now = self.problem.schema.as_dict(self.query)
        return {
            name: (float(old), float(new))
            for name in names
            if (old := now[name]) is not None and (new := changes[name]) is not None
        }

    def typed(self, name: str, number: float) -> Value | None:
        """Return the admitted value nearest to a number; nothing where there is none."""
        value = self.lever(name).towards(number)
        return None if value == self.lever(name).now else value


def parts(changes: Mapping[str, Value]) -> Iterator[dict[str, Value]]:
    for size in range(1, len(changes)):
        for names in combinations(changes, size):
            yield {name: changes[name] for name in names}


def nearer(judge: Judge, changes: Mapping[str, Value]) -> Iterator[dict[str, Value]]:
    """Yield the changes with one number a tenth nearer, where a value lies there."""
    for name, (now, there) in judge.numbers(changes).items():
        value = judge.typed(name, there + 0.1 * (now - there))
        if value is not None and min(now, there) < float(value) < max(now, there):
            yield {**changes, name: value}


def check_ways(judge: Judge, ways: Iterable[Way], counts: Counter[str]) -> None:
    """Check what each way claims; what was not asked it must say, and those are counted."""
    for way in ways:
        changes = {name: new for name, (_, new) in way.changes.items()}
        counts["ways"] += 1
        assert judge.is_yes(changes)
        if len(way.levers) < len(changes):
            continue  # something follows a lever: taking changes apart one by one says nothing
        shorter = any(map(judge.is_yes, parts(changes))) if len(changes) <= 4 else False
        less = any(map(judge.is_yes, nearer(judge, changes)))
        more = judge.still_yes(way)
        assert not (way.irreducible and shorter), way
        assert not (way.tight and less), way
        assert not (way.holds and not more), way
        counts["sure"] += bool(way.irreducible and way.tight and way.holds)
        counts["shorter"] += shorter


def check_tip(judge: Judge, name: str, tip: Tip, counts: Counter[str]) -> None:
    counts[str(tip.status)] += 1
    for interval in tip.intervals:
        for value in {interval.first, interval.last}:
            assert judge.is_yes({name: value}), (name, tip)
    for value in tip.refused:
        assert not judge.is_yes({name: value}), (name, tip)
    if tip.status is TipStatus.NOT_UP_TO and tip.limit is not None:
        assert not judge.is_yes({name: tip.limit})
    if tip.move not in ("up", "down") or not judge.problem.schema[name].is_numeric:
        return
    now = float(judge.problem.schema.as_dict(judge.query)[name] or 0)
    for interval in tip.intervals:
        assert interval.before in (*tip.refused, judge.lever(name).now)
    for interval in tip.intervals[:1]:  # beyond it, a tenth less may lie in the pocket before
        first = float(interval.first or 0)
        step = judge.typed(name, first + 0.1 * (now - first))
        if interval.sharp and step is not None and min(now, first) < float(step) < max(now, first):
            assert not judge.is_yes({name: step}), (name, tip)
            counts["not a step before"] += 1
    if tip.goes_on:
        [interval] = tip.intervals
        start, end = float(interval.first or 0), float(tip.limit or 0)
        draw = random.Random(f"{name}{judge.query}")
        for _ in range(FARTHER):
            value = judge.typed(name, draw.uniform(start, end))
            if value is not None and min(start, end) <= float(value) <= max(start, end):
                assert judge.is_yes({name: value}), (name, value, tip)
        counts["from here on"] += 1


def check_all(
    problem: Problem, dataset: Dataset, rows: list[Row], *, words: bool = False
) -> Counter[str]:
    counts: Counter[str] = Counter()
    for result in waysout.find_many(problem, rows, data=dataset, calls=0):
        judge = Judge(problem, rows[result.index])
        shown = result.pick(SHOWN)
        assert all(isinstance(way, Way) for way in shown)
        check_ways(judge, (way for way in shown if isinstance(way, Way)), counts)
        for name, tips in result.tipping.items():
            for tip in tips:
                check_tip(judge, name, tip, counts)
        check_surfaces(result)
        if words:
            check_advice(judge, result, counts)
    return counts


def test_the_strips_of_a_page() -> None:
    problem, _, rows = demo_cases(0)
    counts: Counter[str] = Counter()
    for row in rows[:3]:
        strips = Strips(problem, row, row, problem.schema.names)
        strips.answer()
        for name, tips in strips.tips().items():
            for tip in tips:
                check_tip(Judge(problem, row), name, tip, counts)
    assert counts["from here on"] >= 2


def check_surfaces(result: Result) -> None:
    """Check that no surface shows an option that is no way."""
    assert len(result.to_frame()) == len(result.ways)
    assert len(result.to_frame(all_options=True)) == len(result.options)
    three, terminal, page = result.pick(3), one_line(str(result)), str(result.to_html())
    letter = str(result.to_letter())
    told = letter.partition("What would change the answer")[2].partition("\nWhat ")[0]
    assert re.findall(r"^  (\d)\. ", told, re.MULTILINE) == [str(i + 1) for i in range(len(three))]
    for way in three:
        assert all(doubt in one_line(told) for doubt in doubts_in_full(way))
        assert all(doubt in terminal and doubt[1:] in page for doubt in doubts(way))


# What the synthetic card lets people do, read back: a number by how much, a level by its words.
BY = {
    r"earn ([\d,]+) euros a year more": ("income", 1),
    r"save ([\d,]+) euros more": ("savings", 1),
    r"pay off ([\d,]+) euros of your other debts": ("other_debts", -1),
    r"lower your card use by ([\d.]+)": ("card_use", -1),
    r"raise your credit score by (\d+) points": ("credit_score", 1),
    r"borrow ([\d,]+) euros less": ("loan_amount", -1),
    r"take (\d+) months longer to repay": ("loan_months", 1),
    r"repay (\d+) months sooner": ("loan_months", -1),
}
TO: dict[str, tuple[str, Value]] = {
    "finish secondary school": ("education", "secondary"),
    "finish a bachelor's degree": ("education", "bachelor"),
    "finish a master's degree": ("education", "master"),
    "find part-time work": ("employment", "part-time"),
    "become self-employed": ("employment", "self-employed"),
    "find full-time work": ("employment", "full-time"),
    "find a co-signer": ("co_signer", "yes"),
}


def read_plan(plan: str, now: Mapping[str, Value]) -> dict[str, Value]:
    """Return the changes that the words of a plan tell."""
    found: dict[str, Value] = {}
    for move in re.split(r", (?!\d)| and ", plan):
        if move in TO:
            name, level = TO[move]
            found[name] = level
            continue
        [(name, sign, by)] = [
            (name, sign, told[1]) for says, (name, sign) in BY.items()
            if (told := re.fullmatch(says, move))
        ]  # fmt: skip
        number = float(now[name] or 0) + sign * float(by.replace(",", ""))
        found[name] = round(number, 6)
    return found


def check_advice(judge: Judge, result: Result, counts: Counter[str]) -> None:
    """Check the sentence by its words alone: each plan is a yes, and all of it is needed."""
    said = advice(result)
    told = re.fullmatch(r"The \(synthetic\) loan is approved if you (.*?)\.( [A-Z].*)?", said)
    assert told, said
    counts["doubtful advice"] += told[2] is not None
    now = judge.problem.schema.as_dict(judge.query)
    for plan in told[1].split(", or "):
        changes = read_plan(plan, now)
        counts["plans"] += 1
        assert judge.is_yes(changes), (said, changes)
        for name in changes if told[2] is None else ():
            counts["dropped"] += 1
            assert not judge.is_yes({n: v for n, v in changes.items() if n != name}), (said, name)
    for way in result.pick(SHOWN):
        news = {name: new for name, (_, new) in way.changes.items()}
        for name in () if doubts(way) else news:
            assert not judge.is_yes({n: v for n, v in news.items() if n != name}), (way, name)


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in (10, 20))]
)
def test_the_demo(first: int) -> None:
    counts = check_all(*demo_cases(first), words=True)
    assert counts["ways"] >= 30
    assert counts["sure"] >= 0.7 * counts["ways"]
    assert counts["shorter"] <= 0.05 * counts["ways"]
    assert counts["from here on"] >= 5
    assert counts["not a step before"] >= 5
    assert counts["not_up_to"] >= 30
    assert counts["plans"] >= 15
    assert counts["dropped"] >= 20
    assert counts["doubtful advice"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["loan", "adult", "credit", "heloc"])
def test_real_tables(name: str) -> None:
    counts = check_all(*table_cases(name))
    assert counts["ways"] >= 30
    assert counts["sure"] >= 0.6 * counts["ways"]
    assert counts["shorter"] <= 0.05 * counts["ways"]
    assert counts["turns"] >= 10
    assert counts["not a step before"] >= 5
