from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from waysout.domain.card import Card
from waysout.domain.rules import RULE_KINDS
from waysout.domain.toml_lines import line_map
from waysout.errors import CardError, InputError

CARD = """\
card = 1
name = "loans"
title = "Loans"
rule_set = "realistic"
rule_sets = ["paper"]
missing_values = ["", "?"]

[outcome]
target = "status"
positive = "yes"
ignore = ["id"]

[features.income]
kind = "integer"
unit = "euro"
about = "yearly income"
range = [0, 100000]
bins = [10000, 20000]
scale = 5000

[features."school, or none"]
kind = "category"
levels = [
  "low",   # a bracket ] in a comment
  "high",
]
ordered = true
codes = { low = 0, high = 1 }

[[rules.realistic]]
kind = "include"
set = "paper"

[[rules.realistic]]
kind = "direction"
features = ["school, or none"]
direction = "up"

[[rules.realistic]]
name = "cheap"
kind = "range"
feature = "income"
max = 90000
"""


def problems(text: str) -> list[tuple[int | None, str]]:
    with pytest.raises(CardError) as caught:
        Card.parse(text)
    return [(p.line, p.reason) for p in caught.value.problems]


def test_a_card_is_read() -> None:
    card = Card.parse(CARD)
    assert card.schema.names == ("income", "school, or none")
    assert card.outcome.ignore == ("id",)
    assert (card.bins, card.scales) == ({"income": (10000.0, 20000.0)}, {"income": 5000.0})
    assert card.schema["income"].missing_tokens == ("", "?")
    assert [rule.label for rule in card.rules().rules] == ["school, or none only up", "cheap"]
    assert card.rules("paper").rules == ()
    assert card.outcome.yes == "status is yes"


@pytest.mark.parametrize(
    ("old", "new", "line", "fragment"),
    [
        ("card = 1", "", None, "card = 1"),
        ("card = 1", "card = 2", 1, "card = 1"),
        ('name = "loans"', 'name = "a b"', 2, "name is 1 to 64"),
        ('title = "Loans"', 'titel = "Loans"', 3, "did you mean 'title'"),
        ('title = "Loans"', "title = 3", 3, "title must be text"),
        ('title = "Loans"', "title = ", 3, "not valid TOML"),
        ('rule_set = "realistic"', 'rule_set = "real"', 4, "unknown rule set 'real'"),
        ('rule_set = "realistic"\n', "", None, "several rule sets"),
        ('rule_sets = ["paper"]', 'rule_sets = "paper"', 5, "rule_sets must be a list"),
        ('target = "status"', 'target = "income"', 9, "cannot be a feature"),
        ('target = "status"', "", 8, "needs 'target'"),
        ('positive = "yes"', "positive = []", 8, "positive must be text, a finite number"),
        ('kind = "integer"', "", 13, "needs a kind"),
        ('kind = "integer"', 'kind = "int"', 14, "unknown kind 'int'"),
        ('kind = "integer"', 'kind = ["integer"]', 14, "unknown kind"),
        ("range = [0, 100000]", "range = [9, 1]", 17, "empty"),
        ("range = [0, 100000]", "range = 9", 17, "two numbers"),
        ("range = [0, 100000]", "range = [0, inf]", 17, "finite"),
        ("bins = [10000, 20000]", "bins = [2, 1]", 18, "rising order"),
        ("bins = [10000, 20000]", "bins = [1, 1]", 18, "rising order"),
        ("scale = 5000", "scale = 0", 19, "above 0"),
        ("scale = 5000", "scales = 5000", 19, "did you mean 'scale'"),
        ("ordered = true", 'ordered = "yes"', 27, "true or false"),
        ("ordered = true", "", 34, "ordered = true"),
        ("codes = { low = 0, high = 1 }", "codes = { low = 0 }", 28, "'high' has no code"),
        ("codes = { low = 0, high = 1 }", "codes = { lo = 0 }", 28, "did you mean 'low'"),
        ("scale = 5000", 'moves = { higher = "earn {} more" }', 19, "unknown direction 'higher'"),
        ("scale = 5000", 'moves = { up = "earn more" }', 19, "'earn more' needs {} once"),
        ("scale = 5000", 'moves = { up = "{} or {}" }', 19, "needs {} once"),
        ("scale = 5000", "moves = { up = 3 }", 19, "moves must be text"),
        ("ordered = true", 'ordered = true\nmoves = { hihg = "finish school" }', 28,
         "unknown level 'hihg'"),
        ('"high",', '"low",', 23, "listed twice"),
        ('set = "paper"', 'set = "papr"', 30, "did you mean 'paper'"),
        ('kind = "direction"', 'kind = "dir"', 34, "unknown rule kind 'dir'"),
        ('features = ["school, or none"]', 'features = ["school"]', 34, "unknown feature 'school'"),
        ("max = 90000", "min = 3\nmax = 1", 39, "is empty"),
        ("max = 90000", "maxx = 90000", 39, "did you mean 'max'"),
        ('[[rules.realistic]]\nkind = "include"', '[rules]\nx = 3\n[[rules.realistic]]\nkind = '
         '"include"', 31, "is a list"),
    ],
)  # fmt: skip
def test_a_wrong_card_names_the_line(old: str, new: str, line: int | None, fragment: str) -> None:
    assert old in CARD
    found = problems(CARD.replace(old, new, 1))
    assert any(at == line and fragment in reason for at, reason in found), found


def test_a_card_says_what_a_person_does() -> None:
    numbers = 'scale = 5000\nmoves = { up = "earn {} more" }'
    levels = 'ordered = true\nmoves = { high = "finish school" }'
    card = Card.parse(CARD.replace("scale = 5000", numbers).replace("ordered = true", levels))
    assert card.schema["income"].moves == {"up": "earn {} more"}
    assert card.schema["school, or none"].moves == {"high": "finish school"}
    assert Card.parse(CARD).schema["income"].moves == {}


def test_all_problems_are_reported_at_once() -> None:
    text = CARD.replace('kind = "integer"', 'kind = "int"').replace("ordered = true", "ordered = 3")
    assert [line for line, _ in problems(text)] == [14, 27]
    with pytest.raises(CardError, match=r"line 14: .*\(and 1 more: waysout card check card\)"):
        Card.parse(text)


@pytest.mark.parametrize(
    ("old", "new", "fragment"),
    [
        ('kind = "direction"', 'kind = ["range"]', "unknown rule kind"),
        ('kind = "direction"', "kind = {}", "unknown rule kind"),
        ('rule_set = "realistic"', 'rule_set = ["paper"]', "unknown rule set"),
        ('rule_sets = ["paper"]', "rule_sets = 5", "rule_sets must be a list"),
        ('rule_sets = ["paper"]', "rule_sets = [5]", "rule_sets must be text"),
        ("scale = 5000", f"scale = {'9' * 5000}", "not valid TOML"),
        ("scale = 5000", f"scale = 0x{'f' * 5000}", "thousands of digits"),
        ("card = 1", "card = true", "card = 1"),
        ('positive = "yes"', "positive = nan", "positive must be"),
        ("max = 90000", 'feature2 = "x"', "unknown field 'feature2'"),
    ],
)
def test_odd_types_are_problems_not_crashes(old: str, new: str, fragment: str) -> None:
    assert any(fragment in reason for _, reason in problems(CARD.replace(old, new, 1)))


def test_names_are_the_same_in_every_unicode_form() -> None:
    text = CARD.replace("[features.income]", '[features."re\u0301venu "]')
    text = text.replace('feature = "income"', 'feature = "r\u00e9venu"')
    text = text.replace('target = "status"', 'target = "e\u0301tat"')
    card = Card.parse(text)
    assert card.bins.keys() == card.scales.keys() == {"r\u00e9venu"}
    assert card.outcome.target == "\u00e9tat"


def test_rule_sets_that_include_each_other_are_refused() -> None:
    text = CARD + '\n[[rules.paper]]\nkind = "include"\nset = "realistic"\n'
    assert any("in a circle" in reason for _, reason in problems(text))


def _sets(included: dict[str, list[str]]) -> str:
    """Return a card whose rule sets include others, besides one rule each."""
    rule = '[[rules.{0}]]\nkind = "range"\nfeature = "income"\nmax = 90000\n'
    include = '[[rules.{0}]]\nkind = "include"\nset = "{1}"\n'
    head = CARD[: CARD.index("[[rules")].replace('"realistic"', '"s0"').replace('"paper"', "")
    parts = (
        rule.format(name) + "".join(include.format(name, other) for other in others)
        for name, others in included.items()
    )
    return head + "".join(parts)


def test_a_set_that_is_included_twice_counts_once() -> None:
    doubling = {f"s{i}": [f"s{i + 1}"] * 2 for i in range(40)} | {"s40": []}
    card = Card.parse(_sets(doubling))
    assert len(card.rules().rules) == 41
    assert len(card.rules("s40").rules) == 1


def test_includes_without_end_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    circle = {f"s{i}": [f"s{(i + 1) % 400}"] for i in range(400)}
    assert "in a circle: 's0'" in problems(_sets(circle))[0][1]
    chain = {f"s{i}": [f"s{i + 1}"] for i in range(400)} | {"s400": []}
    monkeypatch.setattr("waysout.domain.card._MOST_RULES", 1500)
    [(line, reason)] = problems(_sets(chain))
    assert line is not None
    assert "the sets up to 's1' hold more than 1,500 rules" in reason
    assert "include fewer sets" in reason


def test_of_very_many_problems_the_first_hundred_are_told() -> None:
    wrong = "".join(f'[features.f{i}]\nkind = "nmber"\n' for i in range(300))
    assert len(problems(CARD[: CARD.index("[[rules")] + wrong)) == 100


@pytest.mark.parametrize(
    ("line", "fragment"),
    [
        ("a." * 20_000 + "a = 1", "more than 100 parts"),
        ("a = 1\nx = {" + "'b'\t. " * 100 + "c = 1}", "more than 100 parts"),
        ("x = " + "[" * 20_000 + "]" * 20_000, "nested too deeply"),
        ("x = " + "{a = " * 5000 + "1" + "}" * 5000, "nested too deeply"),
        ("x = " + "9" * 5000, "not valid TOML"),
    ],
)
def test_a_file_made_to_break_the_parser_is_refused(line: str, fragment: str) -> None:
    [(_, reason)] = problems(f"{line}\n{CARD}")
    assert fragment in reason


def test_what_the_parser_still_takes_is_read_in_time() -> None:
    """Seconds of the processor, not of the clock; it was the square of the length before."""
    widest = ". ".join(["a"] * 99)
    text = "\n".join(f"{widest}.b{i} = 1" for i in range(100)) + f"\n c{' ' * 100_000}.d = 1"
    began = time.thread_time()
    assert len(line_map(text)) == 101
    assert "unknown field 'a'" in problems(text)[0][1]
    assert time.thread_time() - began < 4


def test_custom_rules_need_the_users_word(tmp_path: Path) -> None:
    text = CARD + '\n[[rules.realistic]]\nkind = "custom"\ncall = "operator:ne"\n'
    assert "trust_code=True" in problems(text)[0][1]
    card = Card.parse(text, trust_code=True)
    assert len(card.rules().rules) == 3


@pytest.mark.parametrize("label", ["1", 1, 1.0, "1.0", " 1 "])
def test_labels_match_however_they_are_typed(label: object) -> None:
    card = Card.parse(CARD.replace('positive = "yes"', "positive = 1"))
    assert card.is_positive(label)
    assert not card.is_positive("yes")
    assert not card.is_positive(0)


def test_an_unknown_rule_set_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown rule set 'x'.*'paper', 'realistic'"):
        Card.parse(CARD).rules("x")


def test_files_that_cannot_be_cards(tmp_path: Path) -> None:
    with pytest.raises(CardError, match="no such file"):
        Card.load(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "caf\xe9"')
    with pytest.raises(CardError, match="not UTF-8"):
        Card.load(tmp_path / "latin.toml")
    with pytest.raises(CardError, match="cannot be read"):
        Card.load(tmp_path)
    (tmp_path / "bom.toml").write_bytes(b"\xef\xbb\xbf" + CARD.encode())
    assert Card.load(tmp_path / "bom.toml").name == "loans"
    with pytest.raises(CardError):
        Card.parse("x = " + "[" * 5000)


def test_what_is_no_file_or_has_no_end_is_refused(tmp_path: Path) -> None:
    loop = tmp_path / "loop.toml"
    loop.symlink_to(loop)
    for path, fragment in ((loop, "cannot be read"), (Path("/dev/zero"), "larger than 16 MiB")):
        with pytest.raises(CardError, match=fragment):
            Card.load(path)


@pytest.mark.parametrize(
    ("old", "new", "fragment"),
    [
        ("scale = 5000", "scale = 1e-320", "at least 1e-100"),
        ("scale = 5000", "scale = 1e400", "a finite number"),
        ("range = [0, 100000]", f"range = [0, {'9' * 400}]", "a finite number"),
        ("bins = [10000, 20000]", "bins = [10000, nan]", "a finite number"),
        ('positive = "yes"', f"positive = {'9' * 400}", "a finite number"),
        ('"high",', f"{'9' * 400},", "a finite number"),
        ("high = 1 }", "high = inf }", "a finite number"),
        ("max = 90000", "max = -inf", "a finite number"),
    ],
)
def test_a_number_that_is_not_finite_is_refused(old: str, new: str, fragment: str) -> None:
    text = CARD.replace(old, new)
    assert text != CARD
    assert any(fragment in reason for _, reason in problems(text))


def test_advice_points_at_what_is_missing() -> None:
    advice = " ".join(Card.parse(CARD.replace('about = "yearly income"\n', "")).advice())
    assert "income, school, or none: no 'about'" in advice


def test_marks_inside_comments_and_strings_do_not_mislead() -> None:
    text = '# use """ for long text\na = "\'\'\'[" # [\nb = """x\\"""\n"""\nc = 1\u2028\nd = 2\n'
    lines = line_map(text)
    assert (lines[("a",)], lines[("b",)], lines[("c",)], lines[("d",)]) == (2, 3, 5, 6)


def test_problems_of_a_whole_set_point_at_it() -> None:
    step = '\n[[rules.realistic]]\nkind = "step"\nfeature = "income"\nstep = 2\n'
    assert [line for line, _ in problems(CARD + step + step)] == [30]


def test_lines_are_found_past_long_values() -> None:
    lines = line_map('a = """\n[x]\nb = 1\n"""\nc = [\n  1, # ]\n]\n["q.r"."s"]\n"t u" = 3\n')
    assert lines == {("a",): 1, ("c",): 5, ("q.r", "s"): 8, ("q.r", "s", "t u"): 9}


def test_the_reference_shows_a_sound_card() -> None:
    reference = Path(__file__).parents[2] / "docs" / "cards.md"
    (example,) = re.findall(r"```toml\n(.*?)```", reference.read_text("utf-8"), re.DOTALL)
    assert Card.parse(example).schema.names == (
        "income_annum",
        "debt_ratio",
        "education",
        "has_car",
        "letter",
    )


def test_the_reference_lists_every_kind_of_rule() -> None:
    reference = (Path(__file__).parents[2] / "docs" / "cards.md").read_text("utf-8")
    listed = re.findall(r"^\| `([a-z-]+)` \|", reference, re.MULTILINE)
    assert set(listed) == {*RULE_KINDS, "include"}


def test_sorted_codes_are_those_of_a_label_encoder() -> None:
    text = (
        'card = 1\nname = "t"\n[outcome]\ntarget = "y"\npositive = 1\n'
        '[features.job]\nkind = "category"\nlevels = ["cook", "Clerk", "baker"]\n'
        'codes = "sorted"\n[features.grade]\nkind = "category"\nlevels = [10, 9, 2]\n'
        'codes = "sorted"\n'
    )
    schema = Card.parse(text).schema
    assert schema["job"].codes == {"Clerk": 0, "baker": 1, "cook": 2}
    assert schema["grade"].codes == {"2": 0, "9": 1, "10": 2}
    assert problems(text.replace('"sorted"', '"alphabetical"')) == [
        (9, "codes must be a table of numbers or \"sorted\", not 'alphabetical'"),
        (13, "codes must be a table of numbers or \"sorted\", not 'alphabetical'"),
    ]


def test_a_card_describes_opaque_columns_and_written_numbers() -> None:
    text = (
        'card = 1\nname = "t"\n[outcome]\ntarget = "y"\npositive = 1\n'
        '[features.signed]\nkind = "opaque"\nholds = "date"\n'
        '[features.rate]\nkind = "number"\nwritten = "12,5 %"\nlabel = "interest"\n'
    )
    signed, rate = Card.parse(text).schema
    assert (signed.kind, signed.holds) == ("opaque", "date")
    assert (rate.parse("3,5%"), rate.display_name) == (3.5, "interest")
    assert problems(text.replace("12,5 %", "some")) == [
        (11, "feature 'rate': written: 'some' is not an example of a number; write one such as "
             "'1.234,5'"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "rule",
    [
        'kind = "allowed"\nfeature = "note"\nvalues = ["a"]',
        'kind = "direction"\nfeatures = ["note"]\ndirection = "up"',
        'kind = "linear"\nthat = "note <= 3"',
        'kind = "linked"\nfeature = "own"\nsets = "note"\nmap = { True = 1, False = 2 }',
    ],
)
def test_a_rule_that_moves_an_opaque_feature_is_refused(rule: str) -> None:
    card = (
        'card = 1\nname = "t"\n[outcome]\ntarget = "y"\npositive = 1\n[features.note]\n'
        f'kind = "opaque"\n[features.own]\nkind = "boolean"\n[[rules.main]]\n{rule}\n'
    )
    ((line, reason),) = problems(card)
    assert line == 10
    assert reason.startswith("feature 'note' is opaque, so it never changes")
