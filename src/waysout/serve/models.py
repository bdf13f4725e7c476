"""What goes in and out of the API, as its OpenAPI document describes it.

Input is untrusted: unknown fields are refused, numbers are finite, texts and lists are limited. The
card says what a value means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WrapValidator
from pydantic_core import PydanticCustomError

from waysout.domain.budget import Spent
from waysout.domain.result import Option, TipStatus, Way


def read_value(raw: Any, read: Callable[[Any], Any]) -> Any:
    """Read a value of a row, with one error message instead of one for each type."""
    try:
        return read(raw)
    except ValidationError:
        said = "a value is a finite number, true, false, null or a text of at most 1000 characters"
        raise PydanticCustomError("value", said) from None


Text = Annotated[str, Field(max_length=1000)]
Value = Annotated[bool | int | float | Text | None, WrapValidator(read_value)]
Values = Annotated[list[Value], Field(max_length=10_000)]
Pair = Annotated[list[Value], Field(min_length=2, max_length=2)]
RowTable = Annotated[dict[Text, Value], Field(max_length=5000)]
ChangeTable = Annotated[dict[Text, Pair], Field(min_length=1, max_length=5000)]
Calls = Annotated[int, Field(ge=0, le=1_000_000, description="LLM calls, all parts together")]
Rows = Annotated[int, Field(ge=0, le=1_000_000, description="oracle rows, all parts together")]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Given(BaseModel):
    """A request, or a part of one."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Ends(Given):
    """The ends of a range; null is no end."""

    min: float | None = None
    max: float | None = None


class Locks(Given):
    """What one person cannot do, in addition to the card's rules; it never loosens them.

    `ranges` limit numbers, `choices` list the values a feature may be moved to (it may always stay
    as it is). `excluded` are the `changes` of options that are not possible: it rules out those and
    everything that goes at least as far in each of the changes.
    """

    fixed: Annotated[list[Text], Field(max_length=5000)] = []
    ranges: Annotated[dict[Text, Ends], Field(max_length=5000)] = {}
    choices: Annotated[dict[Text, Values], Field(max_length=5000)] = {}
    excluded: Annotated[list[ChangeTable], Field(max_length=1000)] = []


class DecideRequest(Given):
    """A row to ask the model about, and the query it changes."""

    row: RowTable
    query: RowTable | None = None
    locks: Locks = Locks()


class StripsRequest(DecideRequest):
    """A row, the query it changes, and the features to move alone; by default all of them."""

    features: Annotated[list[Text], Field(max_length=5000)] | None = None


class FartherRequest(Given):
    """A way out of a query, to be carried on."""

    row: RowTable
    query: RowTable
    locks: Locks = Locks()


class SearchRequest(Given):
    """A search to begin: the row, the locks and the budget."""

    problem: Text
    row: RowTable
    locks: Locks = Locks()
    calls: Calls | None = None
    oracle_rows: Annotated[Rows, Field(ge=1)] | None = None
    method: Text | None = None
    settings: Annotated[dict[Text, Value], Field(max_length=100)] = {}
    seed: Seed = 0


class ContinueRequest(Given):
    """How to continue: other locks, or new total budgets; by default as before."""

    locks: Locks | None = None
    calls: Calls | None = None
    oracle_rows: Rows | None = None


class PinsRequest(Given):
    """The rows to keep at hand, instead of those that were; at most four."""

    rows: Annotated[list[RowTable], Field(max_length=4)]


class ErrorBody(BaseModel):
    """What went wrong: `code` is the exit code that the command line has for it."""

    type: str
    message: str
    code: int


class ErrorDocument(BaseModel):
    """Every error of the API, and of the command line with --json."""

    error: ErrorBody


class Health(BaseModel):
    """Whether the service is up, and how busy it is."""

    status: Literal["ok"]
    version: str
    running: int
    searches: int
    hung: int = Field(description="Calls of a model that were given up and have not come back.")


class ProblemName(BaseModel):
    """A problem in short."""

    name: str
    title: str
    yes: str
    no: str
    oracle: str


class ProblemList(BaseModel):
    """All problems, and the LLM that proposes."""

    problems: list[ProblemName]
    llm: str | None
    stand_in: Literal["", "simulated", "scripted"]


class Level(BaseModel):
    """A value of a category or a boolean, and its name for people."""

    value: bool | int | float | str
    words: str


class FeatureForm(BaseModel):
    """What a form needs to ask for one feature."""

    name: str
    kind: Literal["number", "integer", "category", "boolean", "opaque"]
    unit: str
    about: str
    label: str
    levels: list[Level] | None
    range: list[float] | None
    decimals: int | None
    step: float | None
    may_be_missing: bool
    ordered: bool


class RuleForm(BaseModel):
    """A rule of the card in words."""

    name: str
    words: str


class MethodForm(BaseModel):
    """A way to search; `llm` says whether it asks one."""

    name: str
    what: str
    llm: bool


class LimitsForm(BaseModel):
    """The most that one search may spend: `calls` and `oracle_rows` in all, the others a part."""

    calls: int
    oracle_rows: int
    part_rows: int
    settling_rows: int
    setup_rows: int


class ProblemForm(ProblemName):
    """All that a page needs to ask for a row and start a search."""

    labels_only: bool
    goal: str
    goal_words: str
    safer: list[float]
    limits_of_chance: list[float]
    features: list[FeatureForm]
    rules: list[RuleForm]
    methods: list[MethodForm]
    method: str
    llm: str | None
    stand_in: Literal["", "simulated", "scripted"]
    limits: LimitsForm
    suggested_calls: int
    instant: bool = Field(description="whether searches may begin by themselves")
    llm_local: bool = Field(description="whether an LLM is set, and runs on this machine")
    people: int = Field(description="how many rows can be looked up")


class PersonForm(BaseModel):
    """A row of the table, by its number there, and the model's answer to it."""

    number: int
    row: dict[str, Value]
    probability: float
    approved: bool


class ExampleList(BaseModel):
    """Rejected rows to start from."""

    examples: list[PersonForm]


class PeopleList(BaseModel):
    """A page of the rows that fit what was typed."""

    total: int
    people: list[PersonForm]


class LeverForm(BaseModel):
    """What one feature may be set to: an interval, or a list of values."""

    open: bool
    says: str
    why: str
    low: float | None
    high: float | None
    step: float | None
    choices: list[Value] | None


class Broken(BaseModel):
    """A rule that a row breaks."""

    rule: str
    features: list[str]
    reason: str
    says: str


class Decision(BaseModel):
    """The model's answer about a row, and what may change."""

    row: dict[str, Value]
    approved: bool
    decision: str
    probability: float
    levers: dict[str, LeverForm]
    broken: list[Broken]
    changes: dict[str, list[Value]]
    proximity: float
    sparsity: int


class AskedForm(BaseModel):
    """A value of one feature, and the model's answer where it has that value."""

    value: Value
    probability: float
    approved: bool


class ForbiddenForm(BaseModel):
    """Neighbouring values within the allowed span that a rule on several features forbids."""

    first: Value = Field(alias="from")
    last: Value = Field(alias="to")
    why: str


class StripForm(BaseModel):
    """What one lever does alone from a row on.

    It has the value `now` in the row and `start` in the query. A number is drawn from `low` to
    `high`, and may be set within `allowed`; a category has none of these. `asked` are values in the
    order to draw them, the present one among them; `said` is the same in words. A lever that is not
    open says `why`.
    """

    feature: str
    open: bool
    why: str
    now: Value
    start: Value
    low: float | None
    high: float | None
    allowed: list[float] | None
    asked: list[AskedForm]
    forbidden: list[ForbiddenForm]
    said: list[str]


class StripList(BaseModel):
    """The strips of a row; `rows` are those that the model was asked for."""

    strips: list[StripForm]
    rows: int


class BudgetForm(BaseModel):
    """The total budget of a search, and what is left of it."""

    calls: int
    calls_left: int
    oracle_rows: int
    oracle_rows_left: int


class SearchLine(BaseModel):
    """A search in short."""

    id: str
    problem: str
    status: Literal["running", "ended"]
    options: int
    created: str


class IntervalForm(BaseModel):
    """Values of one lever that were asked and all turn the decision, with no refusal between.

    `before` and `after` are the nearest refused ones short of it and beyond it, if there are any;
    it is `sharp` if at most a tenth of the way lies between `before` and its first value.
    """

    first: Value = Field(alias="from")
    last: Value = Field(alias="to")
    asked: int
    before: Value
    after: Value
    sharp: bool


class TipForm(BaseModel):
    """What one lever does alone, by what was asked; `limit` is the farthest value allowed.

    It `goes_on` if enough values up to the limit were asked to say "from here on".
    """

    move: Literal["up", "down", "to"]
    status: TipStatus
    intervals: list[IntervalForm]
    refused: list[Value]
    limit: Value
    goes_on: bool


class LeverTips(BaseModel):
    """What one lever does alone, in words and for each direction."""

    feature: str
    said: list[str]
    moves: list[TipForm]


class ReachForm(BaseModel):
    """How far along its allowed range a change goes: 1 is up to the `limit`.

    Both are null where nothing sets an end, or where the values have no order.
    """

    limit: Value
    share: float | None


class OptionForm(BaseModel):
    """An option: what changes, how likely, how far.

    Its `id` is that of its row, in each part and each search; `title` says what a person does;
    `reach` has each changed feature.
    """

    row: dict[str, Value]
    changes: dict[str, list[Value]]
    probability: float
    proximity: float
    sparsity: int
    key: str
    reasons: list[str]
    stable: bool | None
    id: str
    title: str
    reach: dict[str, ReachForm]


class SaferForm(OptionForm):
    """A way pushed farther, to a chance of at least `at_least`."""

    at_least: float


class StepForm(OptionForm):
    """A way with its numbers farther by a `share` of their changes."""

    share: float
    approved: bool


class StepList(BaseModel):
    """A way carried on, as far as the rules allow; steps that go no farther are left out."""

    steps: list[StepForm]


class WayForm(OptionForm):
    """A way: the cheapest option for its levers, with other values for them (`variants`).

    `irreducible`: no change can be left out. `tight`: nor can a number be walked back by a tenth.
    `holds`: it is still a yes 10 % and 50 % farther. Each is null where that was not asked.
    """

    levers: list[str]
    cost: float
    irreducible: bool | None
    tight: bool | None
    holds: bool | None
    variants: list[OptionForm]
    safer: list[SaferForm]


class PinForm(OptionForm):
    """An option that is kept at hand.

    `own` if the person made it up instead of the search, `carried_on` if it is a way of the search,
    only farther.
    """

    own: bool
    carried_on: bool


class SearchForm(SearchLine):
    """A search as it stands.

    Once it has ended, `ways` are its plans, the best first and different ones before alike, and
    `tipping` tells what each lever does alone, those that turn the decision first.
    """

    part: int
    row: dict[str, Value]
    locks: Locks
    method: str
    llm: str | None
    stand_in: Literal["", "simulated", "scripted"]
    budget: BudgetForm
    ledger: Spent
    shortlist: list[WayForm | OptionForm]
    ways: list[WayForm]
    tipping: list[LeverTips]
    pins: list[PinForm]
    sentence: str
    outcome: str | None
    reason: str
    run: str | None


class SearchList(BaseModel):
    """The searches that are kept, the oldest first."""

    searches: list[SearchLine]


class OptionList(BaseModel):
    """A page of options."""

    total: int
    options: list[Option]


class ResultDocument(BaseModel):
    """A result, as `waysout find --json` prints it."""

    model_config = ConfigDict(extra="allow")

    waysout: int
    outcome: str
    reason: str
    query: dict[str, Value]
    ways: list[Way]
    tipping: dict[str, list[TipForm]]
    options: list[Option]
    near_misses: list[Option]
    notes: list[str]
    ledger: Spent
    settings: dict[str, Any]
