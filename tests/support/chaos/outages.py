"""How long producers and consumers had to wait while something was broken, for the table of a chaos run.

Producers send to every partition all the time, and readers read all of them. So the longest time between two
acknowledges, or two messages read, of one partition is what somebody had to wait.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.table import Table

from support.chaos.cast import PLACES, PLAIN
from support.chaos.checker import no_double_write, no_lost_transaction, no_lost_write
from support.chaos.history import History, Place

_SAMPLE_SECONDS = 0.02


@dataclass(slots=True, eq=False)
class Outage:
    times: int = 0
    producers_s: float = 0.0
    consumers_s: float = 0.0
    acknowledged: int = 0


class Outages:
    """Watches a history while it is written; `with` runs it."""

    def __init__(self, history: History) -> None:
        self.by_name: dict[str, Outage] = {}
        self._history = history
        self._current: list[Outage] = []
        self._seen_acks = self._seen_reads = 0
        self._last_ack = dict.fromkeys(PLACES, time.monotonic())
        self._last_read = dict(self._last_ack)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="outages")

    def __enter__(self) -> Outages:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    @contextlib.contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Whatever is waited for in this block is counted for this fault."""
        outage = self.by_name.setdefault(name, Outage())
        outage.times += 1
        with self._lock:
            self._current.append(outage)
        before = len(self._history.acks)
        try:
            yield
        finally:
            outage.acknowledged += len(self._history.acks) - before
            with self._lock:
                self._current.remove(outage)

    def _watch(self) -> None:
        while not self._stopping.wait(_SAMPLE_SECONDS):
            now = time.monotonic()
            acks, reads = self._history.acks, self._history.reads
            ends = len(acks), len(reads)
            for ack in acks[self._seen_acks : ends[0]]:
                self._last_ack[ack.place] = now
            for read in reads[self._seen_reads : ends[1]]:
                if read.group is None:
                    self._last_read[read.place] = now
            self._seen_acks, self._seen_reads = ends
            self._note(_longest(self._last_ack, now), _longest(self._last_read, now))

    def _note(self, producers_s: float, consumers_s: float) -> None:
        with self._lock:
            for outage in self._current:
                outage.producers_s = max(outage.producers_s, producers_s)
                outage.consumers_s = max(outage.consumers_s, consumers_s)


def _longest(last: dict[Place, float], now: float) -> float:
    return max(now - at for place, at in last.items() if place[0] == PLAIN)


def show(outages: Outages, history: History, title: str) -> None:
    console = Console(width=110)
    faults = Table(title=title, title_justify="left")
    for heading in ("fault", "times", "longest wait of producers", "of readers", "acknowledged meanwhile"):
        faults.add_column(heading, justify="left" if heading == "fault" else "right")
    for name, outage in outages.by_name.items():
        waits = f"{outage.producers_s:.1f} s", f"{outage.consumers_s:.1f} s"
        faults.add_row(name, str(outage.times), *waits, f"{outage.acknowledged:,}")
    console.print(faults)
    totals = Table(show_header=False, box=None)
    for what, count in totals_of(history).items():
        totals.add_row(what, f"{count:,}")
    console.print(totals)


def totals_of(history: History) -> dict[str, int]:
    stored = {value for values in history.stored.values() for value in values.values()}
    outcomes = [transaction.outcome for transaction in history.transactions.values()]
    return {
        "acks=all: messages acknowledged": len(history.acks),
        "   of these lost": len(list(no_lost_write(history))),
        "   of idempotent producers, stored twice": len(list(no_double_write(history))),
        "acks=0 and 1: messages sent off or acknowledged": len(history.weak_acks),
        "   of these lost, as may be": sum(ack.value not in stored for ack in history.weak_acks),
        "transactions committed": outcomes.count("committed"),
        "   messages lost of these": len(list(no_lost_transaction(history))),
        "transactions aborted": outcomes.count("aborted"),
        "transactions whose producer never heard": outcomes.count("unknown"),
        "messages read": len(history.reads),
        "offsets committed": sum(commit.acknowledged is not None for commit in history.commits),
    }
