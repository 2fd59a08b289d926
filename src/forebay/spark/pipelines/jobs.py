"""A running pipeline: its progress, its result and its end.

Every pipeline is a streaming query with a checkpoint, also one that ends by itself when it has caught up.
That is what makes all of them restartable in the same way.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import StreamingQueryException

from forebay.errors import ForebayError
from forebay.lazy import dataclass
from forebay.spark.metrics import distances
from forebay.spark.pipelines.brokers import LOST_METRIC, ROWS, STRETCHES, UNREADABLE_METRIC
from forebay.spark.source.data_loss import SKIP_HINT, DataLoss
from forebay.spark.source.decode import MARK_HINT, UnreadableBatch

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

POLL_SECONDS = 1
WRITTEN = "forebay_written"
"""The observed metric of Spark that counts the rows that a query yields."""
LETTERS_METRIC = "forebay_dead_letters"
"""How those begin that count its dead letters."""
READ_AGAIN_METRIC = "forebay_read_again"
"""How those begin that count the rows that Spark reads a second time, to find dead letters among them."""
_OURS = re.compile(r"^(?:forebay|pyspark)\.(?:\w+\.)*(\w+): (.+)$", re.MULTILINE)
_ANY = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)*(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
_HINTS = {
    SKIP_HINT: "--on-data-loss skip goes on with what is there",
    MARK_HINT: "--on-unreadable skip passes over them and counts them",
}
"""Advice of the data source, and the same in the words of pipelines."""
DATA_KINDS = frozenset({DataLoss.__name__, UnreadableBatch.__name__})
"""Causes that say that messages are gone, or cannot be read."""


class Cause(NamedTuple):
    """Why something failed, found in what Spark has to say about it."""

    kind: str
    """The name of the class of the error."""
    text: str


class PipelineError(ForebayError):
    """A pipeline that failed, or that cannot be started as it was asked for."""

    def __init__(self, message: str, cause: Cause | None = None) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Trigger:
    """`once`: read what is there now, then end. `every_ms`: a batch at this interval. Neither: no pause."""

    once: bool = False
    every_ms: int = 0

    def apply(self, writer: DataStreamWriter) -> DataStreamWriter:
        if self.once:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{self.every_ms} milliseconds")


ONCE = Trigger(once=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One batch, as Spark reports it."""

    batch: int
    rows: int
    rows_per_s: float
    backlog: int | None
    """Offsets that are still to be read; None when the source does not say."""
    rows_out: int | None = None
    """Rows that were written, where they are others than those that were read."""
    unreadable: int | None = None
    """Messages that were passed over since they cannot be read; None where that is an error."""
    lost: int | None = None
    """Offsets that were gone before they could be read; None where that is an error."""
    letters: int | None = None
    """Dead letters that were written with the rows; None where there is no topic for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    title: str
    facts: Mapping[str, Any]


class Job:
    """A query under way.

    `facts` adds what the pipeline itself has counted to the summary; `closed` is called once when the query
    is over. `forget` lets the same pipeline begin anew; it is called once, and only if the query came to its
    end by itself. `nothing_left` tells that of a query without a batch. `verify` raises an error if the
    result of a query that came to its end is not what it should be.
    """

    def __init__(
        self,
        title: str,
        query: StreamingQuery,
        facts: Callable[[], Mapping[str, Any]] = dict,
        *,
        ends: bool,
        closed: Callable[[], None] = lambda: None,
        forget: Callable[[], None] = lambda: None,
        nothing_left: Callable[[], bool] = lambda: True,
        verify: Callable[[], None] = lambda: None,
    ) -> None:
        self.title = title
        self.query = query
        self._facts = facts
        self._closed: Callable[[], None] | None = closed
        self._forget: Callable[[], None] | None = forget
        self._is_at_end = False
        self._nothing_left = nothing_left
        self._verify = verify
        self.ends = ends
        """True if it comes to an end by itself."""
        self._started_s = time.monotonic()
        self._last_batch = -1
        self._batches = 0
        self._rows = 0
        self._rows_out: int | None = None
        self._unreadable: int | None = None
        self._lost: int | None = None
        self._letters: int | None = None
        self.sources: Sequence[Any] = ()
        """Those of the last progress: how far the query has come."""

    def wait(
        self, report: Callable[[Progress], None] = lambda _progress: None, *, forget: bool = True
    ) -> Summary:
        """Until the query ends; PipelineError when it failed.

        Without `forget` the job is forgotten when the caller says so: a process that is killed before that
        finds nothing left to do when it is started again, and does not begin anew.
        """
        while self.advance(report):
            self.await_end(POLL_SECONDS)
        self._is_at_end = self._came_to_its_end()
        self._close()
        if self._is_at_end:
            self._verify()
        if forget:
            self.forget()
        return self.summary()

    def forget(self) -> None:
        """Let the same pipeline begin anew, if this one came to its end."""
        forget, self._forget = self._forget, None
        if forget is not None and self._is_at_end:
            forget()

    def _came_to_its_end(self) -> bool:
        """A query that somebody else has stopped ends like one that has read everything, without an error."""
        told = self.query.lastProgress
        return self._nothing_left() if told is None else not _backlog(told["sources"])

    def advance(self, report: Callable[[Progress], None] = lambda _progress: None) -> bool:
        """Report the batches since the last call; False when the query has ended."""
        active = self.query.isActive
        self._count(report)
        error = self.query.exception()
        if error is not None:
            self._close()
            cause = cause_of(error)
            raise PipelineError(f"{self.title} failed: {cause.text}", cause)
        return bool(active)

    def await_end(self, seconds: float) -> None:
        """Return when the query has ended, or after this time. A failure is for `advance` to raise."""
        with contextlib.suppress(StreamingQueryException):
            self.query.awaitTermination(max(1, round(seconds)))

    def stop(self) -> None:
        self.query.stop()
        self._count(lambda _progress: None)  # a batch may have ended since the last call
        self._close()

    def _count(self, report: Callable[[Progress], None]) -> None:
        recent = self.query.recentProgress
        if recent:
            self.sources = recent[-1]["sources"]
        for told in recent:
            progress = _progress(told)
            if progress.batch > self._last_batch and (progress.rows or progress.lost):
                self._last_batch = progress.batch
                self._batches += 1
                self._rows += progress.rows
                if progress.rows_out is not None:
                    self._rows_out = (self._rows_out or 0) + progress.rows_out
                if progress.unreadable is not None:
                    self._unreadable = (self._unreadable or 0) + progress.unreadable
                if progress.lost is not None:
                    self._lost = (self._lost or 0) + progress.lost
                if progress.letters is not None:
                    self._letters = (self._letters or 0) + progress.letters
                report(progress)

    def _close(self) -> None:
        closed, self._closed = self._closed, None
        if closed is not None:
            closed()

    def summary(self) -> Summary:
        seconds = time.monotonic() - self._started_s
        letters = {} if self._letters is None else {"dead letters": self._letters}
        counted = {**self.counts(), "seconds": round(seconds, 1), **letters}
        return Summary(title=self.title, facts={**counted, **self._facts()})

    def counts(self) -> dict[str, int]:
        """Of all batches until now."""
        counts = {"rows": self._rows}
        if self._rows_out is not None:
            counts["rows written"] = self._rows_out
        counts["batches"] = self._batches
        if self._unreadable is not None:
            counts["unreadable"] = self._unreadable
        if self._lost is not None:
            counts["lost"] = self._lost
        return counts


def query_name(what: str, checkpoint: str) -> str:
    """A name that no other query of a session has: no two of them share a checkpoint."""
    return f"{what}, {checkpoint}"


def explain(error: BaseException) -> str:
    return cause_of(error).text


def cause_of(error: BaseException) -> Cause:
    """The innermost error of Forebay or PySpark in the text, else of any kind, else the first line."""
    if isinstance(error, PipelineError) and error.cause is not None:
        return error.cause
    text = str(error)
    for pattern in (_OURS, _ANY):
        if causes := pattern.findall(text):
            kind, told = causes[-1]
            for hint, own in _HINTS.items():
                told = told.replace(hint, own)
            return Cause(kind, told)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return Cause(type(error).__name__, lines[0] if lines else type(error).__name__)


def _progress(told: Any) -> Progress:
    rate = told["processedRowsPerSecond"]
    lost = _observed(told, LOST_METRIC, ROWS)
    # A row that stands for lost offsets is none, and one that is read twice is one.
    rows = int(told["numInputRows"]) - (_observed(told, READ_AGAIN_METRIC, ROWS) or 0)
    rows -= _observed(told, LOST_METRIC, STRETCHES) or 0
    return Progress(
        batch=int(told["batchId"]),
        rows=rows,
        rows_per_s=float(rate) if rate == rate else 0.0,
        backlog=_backlog(told["sources"]),
        rows_out=_rows_out(told),
        unreadable=_observed(told, UNREADABLE_METRIC, ROWS),
        lost=lost,
        letters=_observed(told, LETTERS_METRIC, ROWS),
    )


def _backlog(sources: Any) -> int | None:
    known = [distance for one in sources for distance in distances(one["endOffset"], one["latestOffset"])]
    return sum(known) if known else None


def _observed(told: Any, prefix: str, field: str) -> int | None:
    """The sum of the metrics whose names begin so; None without such a metric."""
    observed = (told.get("observedMetrics") or {}).items()
    counts = [int(found[field]) for name, found in observed if name.startswith(prefix)]
    return sum(counts) if counts else None


def _rows_out(told: Any) -> int | None:
    found = (told.get("observedMetrics") or {}).get(WRITTEN)
    return None if found is None else int(found[ROWS])
