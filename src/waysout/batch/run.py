"""A batch from its request to its summary: survey the table, probe the model, search, count.

One person's way through a batch is drawn in docs/scale.md, "How a batch runs".
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict

from waysout import __version__
from waysout.batch.apart import OracleApart
from waysout.batch.driver import BatchEnd, Driver, OnBatchProgress, cut
from waysout.batch.executor import Executor
from waysout.batch.job import BatchJob
from waysout.batch.marks import ID, MANIFEST, PEOPLE, are_kept, marked, read_manifest
from waysout.batch.resume import check_end, check_model, check_parts, sweep_stores
from waysout.batch.sealed import damaged, sealed
from waysout.batch.shared_edits import LOOKED_AT, SharedEdits, library_in, sharing
from waysout.batch.summary import BatchSummary, summarize, write_summary
from waysout.batch.tables import STORES, Contents, people_done, sweep
from waysout.batch.watched import WatchedTable
from waysout.datasets import registry
from waysout.datasets.manifest import load_oracle_model
from waysout.datasets.table import RowStream, Survey, open_stream, survey
from waysout.domain.card import Card
from waysout.domain.known import Known, need_known
from waysout.domain.problem import Problem
from waysout.domain.result import plain
from waysout.domain.rules import Custom, RuleSet
from waysout.domain.schema import Row
from waysout.errors import InputError, IntegrityError, RowError, WaysoutError, shown
from waysout.files import file_sha256, private_folder, write_atomically
from waysout.llm.base import Backend
from waysout.llm.connect import connect
from waysout.llm.openai.pool import pooled
from waysout.methods import DEFAULT as DEFAULT_METHOD
from waysout.oracles.probe import form_told
from waysout.oracles.watchdog import ROW_SECONDS, at_most
from waysout.report.rules import rule_words
from waysout.report.words import Wording, counted
from waysout.run.context import probe_within
from waysout.run.find import learn
from waysout.run.machine import cores
from waysout.run.options import Options, make_plan
from waysout.run.plan import Plan, as_now, changed_settings, manifest, told
from waysout.run.source import Source, Trust, card_of, problem_of, whole_name
from waysout.run.sync import wait_for
from waysout.search.base import OnLearning
from waysout.store.lock import WriterLock

Cluster = Literal["local", "ray"]

VERSION = 1

TREES = 64
"""The default number of searches under way at once, of all workers."""
PART_ROWS = (10, 200)
LIMITED_PART_ROWS = 50
"""At least this many under a limit: parts keep their size when the limit grows."""
SAMPLE = 20_000
"""Rows that distances are measured by: a larger table would not fit."""
COMPARED = 2_000
"""Rows with known outcomes that options are compared with: more would cost more than a search."""
# What may differ when a batch is resumed.
_FREE = ("version", "limit", "about", "probed", "wording", "rules_in_words")
_VALUES, _CODE = "values", "code"  # which folders of earlier releases do not tell
# Models that live in the memory of the process that loads them: one for all workers.
_IN_MEMORY = ("llamacpp", "transformers")


@dataclass(frozen=True)
class BatchRequest:
    """What a batch is to do.

    ``training`` names the table that distances are measured by, if not the people's own.
    ``in_flight`` is the number of searches under way at once. With ``share``, that many pilots are
    searched for first, and the edits that the LLM names for them are shared by everyone. Files
    have a row for each way, with ``all_options`` for each option.
    """

    source: Source
    out: Path
    options: Options
    trust: Trust = field(default_factory=Trust)
    training: str = ""
    limit: int | None = None
    share: int = 0
    cluster: Cluster = "local"
    address: str = ""
    workers: int | None = None
    in_flight: int | None = None
    part_rows: int | None = None
    all_options: bool = False
    keep_stores: bool = False
    retry_failed: bool = False

    def whole(self) -> BatchRequest:
        """Return the same with whole paths: a model may change the folder, or be in another."""
        return replace(
            self,
            source=self.source.whole(),
            out=self.out.absolute(),
            training=whole_name(self.training),
        )


def make_problem(
    source: Source, trust: Trust, training: Sequence[Row], digests: Mapping[str, str]
) -> Problem:
    """Make the problem, in any process that has its files under the same names.

    A worker may start hours after the batch, when a model was trained anew: ``digests`` are those
    of the files that the batch began with.
    """
    problem = problem_of(source, trust, card_of(source, trust), training)
    now = digests_of(source) | code_digests(problem.rules)
    for name in digests:
        if now.get(name) != digests[name]:
            what = getattr(source, name, f"the file of the {name}")
            raise IntegrityError(
                f"{what} was changed after the batch had begun. What is done is kept: put the file "
                "back and run the same command again, or begin with the new one in another folder"
            )
    return problem


def digests_of(source: Source) -> dict[str, str]:
    """Return the SHA-256 of the files that answers and rules come from."""
    files = {"model": Path(source.model), "card": Path(source.card)}
    return {name: file_sha256(file) for name, file in files.items() if file.is_file()}


def code_digests(rules: RuleSet) -> dict[str, str]:
    """Return the SHA-256 of the modules of custom rules, but of none that these import."""
    calls = [rule.call for rule in rules.rules if isinstance(rule, Custom)]
    modules = {call.__module__ for call in calls if hasattr(call, "__module__")}
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in sorted(modules)}
    return {f"rules in {name}": file_sha256(Path(at)) for name, at in files.items() if at}


@dataclass(frozen=True)
class KnownSample:
    """Some rows of a table, and for each whether its outcome was a yes."""

    rows: tuple[Row, ...]
    labels: tuple[bool, ...]


@dataclass(frozen=True)
class PreparedBatch:
    """A request whose table was surveyed and whose model was loaded; it was not asked anything.

    The problem's oracle is ``apart``: this process never asks the model itself.
    """

    request: BatchRequest
    plan: Plan
    stream: RowStream
    table: WatchedTable
    survey: Survey
    factory: Callable[[], Problem]
    problem: Problem
    apart: OracleApart
    known: Known | None
    to_probe: tuple[Sequence[Row], KnownSample | None]
    """What to try the model with: rows and, where there are any, those with known outcomes."""

    @property
    def rows(self) -> int:
        """How many rows of the input there are to do."""
        limit, rows = self.request.limit, self.survey.rows
        return rows if limit is None else min(limit, rows)

    @property
    def trees(self) -> int:
        """How many searches are under way at once, of all workers."""
        return self.request.in_flight or TREES

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return min(self.request.workers or cores(), self.trees)

    @property
    def llm(self) -> str | Backend | None:
        """The LLM, if the method asks one."""
        return self.request.options.get("llm") if self.plan.asks_llm else None

    @property
    def llm_name(self) -> str | None:
        """The LLM's name, without addresses."""
        if isinstance(self.llm, str):
            return pooled(self.llm).name
        return None if self.llm is None else self.llm.name

    @property
    def in_memory(self) -> str | None:
        """The LLM, if it is a model that is to be loaded once for all workers."""
        llm = self.llm
        return llm if isinstance(llm, str) and llm.partition(":")[0] in _IN_MEMORY else None


def run_batch(
    request: BatchRequest,
    *,
    tell: OnLearning | None = None,
    on_cost: Callable[[str], None] | None = None,
    on_note: Callable[[str], None] | None = None,
    on_start: Callable[[Driver], None] | None = None,
    on_progress: OnBatchProgress | None = None,
) -> tuple[BatchSummary, BatchEnd]:
    """Run a batch, or resume the one in its folder; see `BatchRequest`.

    ``tell`` is called while the table is read and before the searches, ``on_cost`` with what the
    batch may cost, when the model is loaded and nothing is spent yet, ``on_note`` with what was odd
    about the model or the files in the folder, ``on_start`` with its driver, which can be stopped
    from then on, and ``on_progress`` while it runs. Return the summary of the whole batch, and how
    this run of it ended.
    """
    tell, note = tell or (lambda what, share: None), on_note or (lambda what: None)
    request = as_begun(request.whole())
    batch = prepare(request, tell)
    if on_cost is not None:
        on_cost(most_cost(batch))
    wait_for(learn(batch.plan.method, batch.problem, batch.known, tell=tell))
    out, library, memory = request.out, None, None
    private_folder(out)
    with ExitStack() as stack:
        stack.enter_context(WriterLock.take(out / "_batch"))
        stack.callback(batch.apart.close)
        held, probed = open_folder(batch, note)
        part_rows = int(held["part_rows"])
        # The LLM that this process holds for all workers, if any.
        backend = batch.llm if isinstance(batch.llm, Backend) else None
        if backend is None and batch.in_memory and request.cluster == "local":
            loaded = backend = connect(batch.in_memory)
            stack.callback(lambda: wait_for(loaded.aclose()))
        options = request.options
        if request.share:
            tell(f"searching for {request.share} pilots", 0.0)
            given: Options = {**options, "in_flight": batch.trees}
            if backend is not None:
                given["llm"] = backend
            people = [record for _, record in batch.survey.sample]
            steady = probed["stable"]
            library = library_in(out, batch.problem, people, given, request.share, steady=steady)
        batch.apart.close()  # its memory is for the workers
        if backend is not None:
            options = {**options, "llm": backend.name}  # the backend itself stays here
        if library is not None:
            options, memory = sharing(options), SharedEdits(library)
        job = BatchJob(
            make=batch.factory,
            options=options,
            out=out.resolve(),
            columns=batch.stream.columns,
            trees=-(-batch.trees // batch.workers),
            known=batch.known,
            memory=memory,
            steady=probed["stable"],
            keep_stores=request.keep_stores,
            contents=contents_of(held),
            as_in_table=_VALUES in held,
            row_seconds=request.source.row_seconds or ROW_SECONDS,
        )
        tasks = cut(batch.stream, part_rows, limit=request.limit, total=batch.survey.rows)
        driver = Driver(out, batch.table.checked(tasks), batch.rows, on_progress,
                        retry_failed=request.retry_failed)  # fmt: skip
        if on_start is not None:
            on_start(driver)
        try:
            ended = driver.run(lambda: start_executor(batch, job, part_rows, backend))
            if not ended.stopped:
                batch.table.check(whole=True)
            ended = check_end(out, part_rows, batch.rows, ended, note)
        finally:
            summary = summarize(out, batch.rows, library.tally if library else None)
            summary.llm, summary.probe_rows = batch.llm_name, probed["rows"]
            write_summary(out, summary)
    return summary, ended


def open_folder(batch: PreparedBatch, note: Callable[[str], None]) -> tuple[dict[str, Any], Probed]:
    """Make the folder this batch's, or check that it is, and that what is done there is sound.

    Return its manifest, and what trying the model has shown.
    """
    out = batch.request.out
    described, probed = describe(batch), probed_before(out)
    if probed is None:
        write_manifest(out, described)  # another batch is refused before the model is asked
        probed = try_model(batch, note)
    held = write_manifest(out, {**described, "probed": probed})
    for folder in (PEOPLE, STORES):
        private_folder(out / folder)
    sweep(out)
    part_rows = int(held["part_rows"])
    check_parts(out, part_rows, batch.survey.rows, note)
    sweep_stores(out)
    done = sum(people_done(out, part) or 0 for part in marked(out))
    to_do = done < batch.rows or batch.request.retry_failed
    # The digest of a model's file tells already.
    if done and to_do and probed["stable"] and "model" not in described["digests"]:
        with at_most(batch.plan.budget.seconds or None):
            asked = check_model(out, part_rows, batch.problem.oracle, batch.problem.schema,
                                batch.survey.sample, turn=probed["rows"])  # fmt: skip
        probed = {**probed, "rows": probed["rows"] + asked}
        held = write_manifest(out, {**described, "probed": probed})
    return held, probed


def start_executor(
    batch: PreparedBatch, job: BatchJob, part_rows: int, backend: Backend | None
) -> Executor[Any]:
    """Start the workers: processes of this machine, or actors of Ray."""
    workers = batch.workers
    if batch.request.cluster == "local":
        from waysout.batch.local_executor import LocalExecutor

        return LocalExecutor(job, workers=workers, part_rows=part_rows, backend=backend)
    from waysout.batch.ray_executor import RayExecutor

    return RayExecutor(
        job, workers=workers, part_rows=part_rows, address=batch.request.address,
        backend=batch.in_memory,
    )  # fmt: skip


# Preparing -------------------------------------------------------------------------------------


def prepare(request: BatchRequest, tell: OnLearning) -> PreparedBatch:
    """Read the table once and load the model, before anything is spent."""
    _check_out(request.out)
    plan = make_plan(request.options)
    plan.method.prepare()
    digests = digests_of(request.source)
    card = card_of(request.source, request.trust)
    digests |= code_digests(card.rules(request.source.rules or None))

    def surveyed(data: str) -> tuple[RowStream, WatchedTable, Survey]:
        stream = open_stream(registry.get(data) if data in registry.DATASETS else Path(data))
        table = WatchedTable(stream.path, request.out)

        def count(rows: int) -> None:
            tell(f"reading {stream.source}: {rows:,} rows", 0.0)

        seen = survey(stream, most=SAMPLE, tell=count)
        table.surveyed(seen.sha256)
        return stream, table, seen

    stream, table, seen = surveyed(request.source.data)
    sample = surveyed(request.training)[2].sample if request.training else seen.sample
    rows, known = _typed(card, request.training or stream.source, sample)
    factory = partial(make_problem, request.source, request.trust, rows, digests)
    apart, to_probe = OracleApart(factory), (rows, known)
    if probed_before(request.out) is None:
        apart.start()  # it loads the model while this process does
    problem = apart.put_into(factory())
    if plan.method.needs_known:
        need_known(known, f"the method {plan.name!r}")
    elif known is not None:
        step = max(1, -(-len(known.rows) // COMPARED))
        known = KnownSample(known.rows[::step], known.labels[::step])
    return PreparedBatch(
        request, plan, stream, table, seen, factory, problem, apart, known, to_probe
    )


def _check_out(out: Path) -> None:
    try:
        is_taken = out.exists() and not out.is_dir()
    except OSError as error:  # its name is too long, or what it lies in is closed to us
        raise InputError(
            f"{out} cannot be a folder: {error.strerror or error}; name another for the results"
        ) from None
    if is_taken:
        raise InputError(f"{out} is a file: name a folder for the results")


def _typed(
    card: Card, source: str, sample: Iterable[tuple[int, Mapping[str, Any]]]
) -> tuple[tuple[Row, ...], KnownSample | None]:
    """Return the rows that can be read, and those of them whose outcome is known."""
    rows, labelled, labels, why = [], [], [], ""
    for index, record in sample:
        try:
            row = card.schema.parse(record)
        except RowError as error:
            why = why or str(error.at(index))
            continue
        rows.append(row)
        label = record.get(card.outcome.target)
        if label is not None and str(label).strip():
            labelled.append(row)
            labels.append(card.is_positive(label))
    if not rows:
        raise InputError(f"{source} has no row that the card can read ({why or 'it is empty'})")
    both = len(set(labels)) == 2
    return tuple(rows), KnownSample(tuple(labelled), tuple(labels)) if both else None


def most_cost(batch: PreparedBatch) -> str:
    """Say what a batch may cost at most, before anything is spent."""
    budget, pilots = batch.plan.budget, batch.request.share
    people = batch.rows + pilots

    def limit(most: int | None, what: str) -> str:
        return f"any number of {what}" if most is None else f"{most * people:,} {what}"

    own, once = budget.own_setup_rows, budget.probe_rows
    chosen = min(LOOKED_AT, len(batch.survey.sample)) if pilots else 0
    setup = f"{own * people + once + chosen:,} for set-up ({own} a person, {once} once"
    setup += f", {chosen:,} to choose the pilots)" if pilots else ")"
    setup += form_told(batch.problem.oracle, each="worker")
    limits = [f"{limit(budget.oracle_rows, 'oracle rows')} for the search and {setup}"]
    if batch.plan.asks_llm:
        limits.insert(0, limit(budget.llm_calls, "LLM calls"))
    shared = f" and {counted(pilots, 'pilot')}" if pilots else ""
    rows = counted(batch.rows, "row")
    return f"{rows}{shared}, {batch.plan.name}: at most {', '.join(limits)}"


def describe(batch: PreparedBatch) -> dict[str, Any]:
    """Return the manifest of a batch; see `write_manifest` for what of it may change."""
    request, source, (least, most) = batch.request, batch.request.source, PART_ROWS
    # A data set has its own model, which may be trained anew.
    model = Path(source.model) if source.model else load_oracle_model(batch.problem.name)[0]
    files = {"model": model, "card": Path(source.card), "training": Path(request.training)}
    digests = {name: file_sha256(file) for name, file in files.items() if file.is_file()}
    if batch.rows < batch.survey.rows:
        least = LIMITED_PART_ROWS
    each = -(-batch.rows // (4 * batch.workers))
    return {
        **manifest(batch.problem, batch.plan, batch.llm_name),
        "version": __version__,
        "digests": {"data": batch.survey.sha256, **digests},
        _CODE: code_digests(batch.problem.rules),
        "rows": batch.survey.rows,
        "limit": request.limit,
        "share": request.share,
        "part_rows": request.part_rows or max(least, min(most, each)),
        "all_options": request.all_options,
        _VALUES: "as in the table",
        "about": source.as_dict(),
        **words_of(batch.problem),
    }


def words_of(problem: Problem) -> dict[str, Any]:
    """Return the card's words for features and rules: an audit has no card to take them from."""
    words = told(problem)["wording"]
    rules: dict[str, str] = {}
    for rule in problem.rules.rules:
        said = rule_words(rule, Wording(words))
        # Two rules may share a name, which is all that the people's rows have of them.
        rules[rule.label] = f"{rules[rule.label]}; {said}" if rule.label in rules else said
    return {"wording": words, "rules_in_words": rules}


class Probed(TypedDict):
    """What a batch keeps of trying its model: how many rows that took, and whether it is steady."""

    rows: int
    stable: bool


def try_model(batch: PreparedBatch, note: Callable[[str], None]) -> Probed:
    """Try the model, once for all people, workers and later runs of a batch."""
    rows, known = batch.to_probe
    report = probe_within(batch.plan.budget, batch.problem.oracle, known, rows)
    for odd in report.notes:
        note(odd)
    return {"rows": report.rows_asked, "stable": report.stable}


def as_begun(request: BatchRequest) -> BatchRequest:
    """Return a request with the settings that an earlier release began its folder without."""
    try:
        plan = read_manifest(request.out, "")["plan"]
        method, before = plan["method"], plan["method_settings"]
        given = dict(request.options.get("settings") or {})
        lacking = {n: v for n, v in as_now(method, before).items() if n not in before}
    except (OSError, ValueError, TypeError, KeyError, WaysoutError):
        return request  # `write_manifest` says what is wrong with it
    if not lacking or request.options.get("method", DEFAULT_METHOD) != method:
        return request
    return replace(request, options={**request.options, "settings": {**lacking, **given}})


def probed_before(out: Path) -> Probed | None:
    """Return what trying the model has shown in an earlier run of this batch, if it is on file."""
    try:
        found = read_manifest(out, "")["probed"]
        return {"rows": int(found["rows"]), "stable": bool(found["stable"])}
    except (OSError, ValueError, TypeError, KeyError, WaysoutError):
        return None  # of an earlier release; or not to be read, which `write_manifest` says


def write_manifest(out: Path, described: Mapping[str, Any]) -> dict[str, Any]:
    """Write the manifest of a new batch, or check that the folder's own is of the same batch.

    Return the one in the folder: ``part_rows`` stays as it was when the batch was started.
    """
    path, wanted = out / MANIFEST, plain({"waysout_batch": VERSION, **described})
    remedy = "put back a copy of it, or give a new folder"
    try:
        found = read_manifest(out, remedy)
    except FileNotFoundError:
        names = sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
        # The lock, and what a kill has left of a manifest, are ours.
        if others := [name for name in names if not name.startswith(("_batch", MANIFEST))]:
            raise InputError(
                f"{out} is not empty ({', '.join(others[:3])}), and holds no batch: give a new "
                "folder"
            ) from None
        found = wanted
    if found.get("waysout_batch") != VERSION:
        raise InputError(f"{path} is not of a batch that this release can read")
    part_rows = found.get("part_rows")
    if type(part_rows) is not int or part_rows < 1:
        raise damaged(path, f"its part_rows is {shown(part_rows)}", remedy)
    if not are_kept(out):  # it is new, or of a release without marks, which get their batch's id
        found.setdefault(ID, secrets.token_hex(16))
    if "all_options" not in found:
        # It is of a release that wrote options alone, and stays as it is whatever is asked.
        wanted.pop("all_options", None)
    # Nor did it write the table's own values, or look at the code of rules.
    for name in (_VALUES, _CODE):
        if name not in found:
            wanted.pop(name, None)
    now = {**found, **{name: wanted.get(name) for name in _FREE}}
    changed = changed_settings(now, {**wanted, "part_rows": part_rows, ID: found.get(ID)})
    if changed:
        raise InputError(
            f"{out} holds another batch ({'; '.join(changed[:5])}): give the same settings to "
            "resume it, or another folder"
        )
    write_atomically(path, sealed(now))
    return now


def contents_of(held: Mapping[str, Any]) -> Contents:
    """Return what has a row in the files of a batch, given the manifest in its folder."""
    if "all_options" not in held:
        return Contents.BEFORE_WAYS
    return Contents.OPTIONS if held["all_options"] else Contents.WAYS
