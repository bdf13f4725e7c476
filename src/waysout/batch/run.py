"""A batch from what somebody asks for to its summary: look, try, begin or go on, search, count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from waysout import __version__
from waysout.batch.driver import BatchEnd, Driver, Watch, cut
from waysout.batch.executor import Executor
from waysout.batch.job import BatchJob
from waysout.batch.manifest import begin
from waysout.batch.shared_edits import SharedEdits, SharedLibrary, library_in, sharing
from waysout.batch.summary import BatchSummary, summarize, write_summary
from waysout.batch.tables import sweep
from waysout.datasets import registry
from waysout.datasets.manifest import load_oracle_model
from waysout.datasets.stream import RowStream, Survey, open_stream, survey
from waysout.domain.card import Card
from waysout.domain.known import Known, need_known
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.errors import InputError, RowError
from waysout.files import file_sha256
from waysout.llm.base import Backend
from waysout.llm.connect import connect
from waysout.llm.openai.pool import pooled
from waysout.oracles.probe import probe
from waysout.report.words import counted
from waysout.run.learn import learn
from waysout.run.machine import cores
from waysout.run.options import Options, make_plan
from waysout.run.plan import Plan, manifest
from waysout.run.source import Source, Trust, card_of, problem_of
from waysout.run.sync import wait_for
from waysout.store.lock import WriterLock

Cluster = Literal["local", "ray"]

TREES = 64
"""Searches under way at once, of all workers, where nobody says how many."""
PART_ROWS = (10, 200)
LIMITED_PART_ROWS = 50
"""At least so many where only some rows are taken: the parts of all others will be as large."""
SAMPLE = 20_000
COMPARED = 2_000
"""Rows with known outcomes that options are compared with: more would cost more than a search."""
# Models that live in the memory of the process that loads them: one for all workers.
_IN_MEMORY = ("llamacpp", "transformers")


@dataclass(frozen=True)
class BatchRequest:
    """What a batch is asked to do.

    ``training`` names the table that distances are measured by, where it is another than the
    people's. ``in_flight`` are the searches under way at once. With ``share``, so many pilots are
    searched first, and what the LLM names for them is shared by everybody.
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
    keep_stores: bool = False
    retry_failed: bool = False


class Listener:
    """Hears how a batch goes; this one lets it pass."""

    def reads(self, what: str, share: float) -> None:
        """Hear what is being read or learned before the searches, and which share of it is."""

    def begins(self, told: str, driver: Driver) -> None:
        """Hear what the batch will do at most; the driver can be stopped from now on."""

    def goes(self) -> Watch | None:
        """Return who hears how far the searches have come."""
        return None


@dataclass(frozen=True)
class Made:
    """A problem to be made in any process, from files that lie there under the same names."""

    source: Source
    trust: Trust
    training: tuple[Row, ...]

    def __call__(self) -> Problem:
        """Make it."""
        return problem_of(self.source, self.trust, card_of(self.source, self.trust), self.training)


@dataclass(frozen=True)
class KnownSample:
    """Some rows of a table, and for each whether its outcome was a yes."""

    rows: tuple[Row, ...]
    labels: tuple[bool, ...]


@dataclass(frozen=True)
class Opened:
    """A batch that has been looked at: its rows, its problem, and what trying the model showed."""

    wanted: BatchRequest
    plan: Plan
    stream: RowStream
    seen: Survey
    made: Made
    problem: Problem
    known: Known | None
    steady: bool

    @property
    def rows(self) -> int:
        """How many rows of the input there are to go through."""
        limit, rows = self.wanted.limit, self.seen.rows
        return rows if limit is None else min(limit, rows)

    @property
    def workers(self) -> int:
        """How many workers there are to be."""
        wanted = self.wanted
        return min(wanted.workers or cores(), wanted.in_flight or TREES)


def run_batch(
    wanted: BatchRequest, listener: Listener | None = None
) -> tuple[BatchSummary, BatchEnd]:
    """Run a batch, or go on with it, in its folder; see `BatchRequest`.

    Returns what came of it from its beginning, and how this sitting ended.
    """
    heard = listener or Listener()
    opened = open_batch(wanted, heard)
    with ExitStack() as stack:
        stack.enter_context(WriterLock.take(wanted.out / "_batch"))
        part_rows = int(begin(wanted.out, describe(opened))["part_rows"])
        sweep(wanted.out)
        backend = _shared_backend(stack, opened)
        library = _library(opened, backend, heard)
        job = _job(opened, library, backend)
        tasks = cut(opened.stream, part_rows, limit=wanted.limit, total=opened.seen.rows)
        retry = wanted.retry_failed
        driver = Driver(wanted.out, tasks, opened.rows, heard.goes(), retry_failed=retry)
        heard.begins(most_cost(opened), driver)
        try:
            ended = driver.run(lambda: _executor(opened, job, part_rows, backend))
        finally:
            summary = summarize(wanted.out, opened.rows, library.tally if library else None)
            summary.llm = _llm_name(opened)
            write_summary(wanted.out, summary)
    return summary, ended


# Looking ---------------------------------------------------------------------------------------


def open_batch(wanted: BatchRequest, heard: Listener) -> Opened:
    """Read the table once, load the model and try it, before anything is spent."""
    if wanted.out.exists() and not wanted.out.is_dir():
        raise InputError(f"{wanted.out} is a file: name a folder for the results")
    plan = make_plan(wanted.options)
    plan.method.prepare()
    card = card_of(wanted.source, wanted.trust)
    stream = open_stream(_place(wanted.source.data))
    seen = _surveyed(stream, heard)
    other = _surveyed(open_stream(_place(wanted.training)), heard) if wanted.training else seen
    rows, known = _typed(card, wanted.training or stream.source, other.sample)
    # A worker may be in another folder.
    made = Made(Source(**wanted.source.as_dict()), wanted.trust, rows)
    problem = made()
    tried = probe(
        problem.oracle, known.rows if known else rows, labels=known.labels if known else None
    )
    if plan.method.needs_known:
        need_known(known, f"the method {plan.name!r}")
    elif known is not None:
        known = _thinned(known, COMPARED)
    wait_for(learn(plan.method, problem, known, tell=heard.reads))
    return Opened(wanted, plan, stream, seen, made, problem, known, tried.stable)


def _surveyed(stream: RowStream, heard: Listener) -> Survey:
    def tell(rows: int) -> None:
        heard.reads(f"reading {stream.source}: {rows:,} rows", 0.0)

    return survey(stream, most=SAMPLE, tell=tell)


def _place(data: str) -> Path:
    return registry.get(data) if data in registry.DATASETS else Path(data)


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


def _thinned(known: Known, most: int) -> KnownSample:
    step = max(1, -(-len(known.rows) // most))
    return KnownSample(tuple(known.rows[::step]), tuple(known.labels[::step]))


def most_cost(opened: Opened) -> str:
    """Say what a batch may cost at most, before anything is spent."""
    budget, rows, pilots = opened.plan.budget, opened.rows, opened.wanted.share
    people = rows + pilots

    def limit(most: int | None, what: str) -> str:
        return f"any number of {what}" if most is None else f"{most * people:,} {what}"

    shared = f" and {counted(pilots, 'pilot')}" if pilots else ""
    parts = [limit(budget.oracle_rows, "oracle rows")]
    if opened.plan.asks_llm:
        parts.insert(0, limit(budget.llm_calls, "LLM calls"))
    told = f"{counted(rows, 'row')}{shared}, {opened.plan.name}"
    return f"{told}: at most {', '.join(parts)}"


def describe(opened: Opened) -> dict[str, Any]:
    """Return what the folder says of the batch; see `begin` for what of it may change."""
    wanted, (least, most) = opened.wanted, PART_ROWS
    if opened.rows < opened.seen.rows:
        least = LIMITED_PART_ROWS
    each = -(-opened.rows // (4 * opened.workers))
    return {
        **manifest(opened.problem, opened.plan, _llm_name(opened)),
        "version": __version__,
        "digests": {"data": opened.seen.sha256, **_digests(opened)},
        "rows": opened.seen.rows,
        "limit": wanted.limit,
        "share": wanted.share,
        "part_rows": wanted.part_rows or max(least, min(most, each)),
        "about": wanted.source.as_dict(),
    }


def _digests(opened: Opened) -> dict[str, str]:
    """Return the SHA-256 of the files that decide what is found, beside the table."""
    wanted, source = opened.wanted, opened.wanted.source
    # A data set has a model of its own, which may be trained anew.
    model = Path(source.model) if source.model else load_oracle_model(opened.problem.name)[0]
    files = {"model": model, "card": Path(source.card), "training": Path(wanted.training)}
    return {name: file_sha256(file) for name, file in files.items() if file.is_file()}


# The LLM, the library and the executor -----------------------------------------------------------


def _llm_name(opened: Opened) -> str | None:
    llm = opened.wanted.options.get("llm")
    if not opened.plan.asks_llm or llm is None:
        return None
    return pooled(llm).name if isinstance(llm, str) else llm.name


def _shared_backend(stack: ExitStack, opened: Opened) -> Backend | None:
    """Return the LLM that this process holds for all workers, where it is one to be held."""
    llm = opened.wanted.options.get("llm")
    if not opened.plan.asks_llm or llm is None:
        return None
    if isinstance(llm, Backend):
        return llm
    if llm.partition(":")[0] not in _IN_MEMORY or opened.wanted.cluster == "ray":
        return None
    backend = connect(llm)
    stack.callback(lambda: wait_for(backend.aclose()))
    return backend


def _library(opened: Opened, backend: Backend | None, heard: Listener) -> SharedLibrary | None:
    """Return what pilots were told, on file or asked now."""
    wanted = opened.wanted
    if not wanted.share:
        return None
    heard.reads(f"searching for {wanted.share} pilots", 0.0)
    options: Options = {**wanted.options, "in_flight": wanted.in_flight or TREES}
    if backend is not None:
        options["llm"] = backend
    people = [record for _, record in opened.seen.sample]
    return library_in(wanted.out, opened.problem, people, options, wanted.share)


def _job(opened: Opened, library: SharedLibrary | None, backend: Backend | None) -> BatchJob:
    wanted, options = opened.wanted, opened.wanted.options
    if backend is not None:  # it stays here
        options = {**options, "llm": backend.name}
    return BatchJob(
        make=opened.made,
        options=options if library is None else sharing(options),
        out=wanted.out.resolve(),
        columns=opened.stream.columns,
        trees=-(-(wanted.in_flight or TREES) // opened.workers),
        known=opened.known,
        memory=None if library is None else SharedEdits(library),
        steady=opened.steady,
        keep_stores=wanted.keep_stores,
    )


def _executor(opened: Opened, job: BatchJob, part_rows: int, backend: Backend | None) -> Executor:
    wanted, workers = opened.wanted, opened.workers
    if wanted.cluster == "local":
        from waysout.batch.local_executor import LocalExecutor

        return LocalExecutor(job, workers=workers, part_rows=part_rows, backend=backend)
    from waysout.batch.ray_executor import RayExecutor

    llm = wanted.options.get("llm")
    held = isinstance(llm, str) and llm.partition(":")[0] in _IN_MEMORY and opened.plan.asks_llm
    return RayExecutor(
        job, workers=workers, part_rows=part_rows, address=wanted.address,
        backend=llm if held and isinstance(llm, str) else None,
    )  # fmt: skip
