"""Looks at a cluster again and again, in a thread of its own; keeps the last picture and an hour of figures.

A look costs the brokers work. So the pause between two looks is never shorter than the set one, and long
enough that looking takes no more than the set share of the time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from forebay.console.watch.history import History
from forebay.console.watch.sampling import Sampler
from forebay.console.watch.snapshot import ActivitySeen, Snapshot
from forebay.console.watch.timeline import Timeline
from forebay.errors import ForebayError
from forebay.operations.client import Client, CommandError
from forebay.operations.wire import BrokerConnections

log = logging.getLogger(__name__)

_FIRST_WAIT_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
"""A broker that takes longer counts as one that does not answer."""
_PAUSE_SECONDS_MAX = 30.0
"""Waiting for answers is not all the brokers' work: on a busy machine it says little."""
_AGAIN_SECONDS = 1.0
"""After a failed look."""
_EARLY_LOOKS = 3
"""These are taken at the set interval, whatever they cost: a page that was just opened wants rates."""
_SLOWLY_INTERVALS = 3
"""Sizes and other slow figures are asked for after that many intervals."""
_PLOTTED = ("Produce", "OffsetCommit", "FetchConsumer")


class Watcher:
    """Use `start` and `stop`. Any thread may read."""

    def __init__(self, client: Client, *, interval_s: float, share: float, history_s: float) -> None:
        self._client = client
        self._interval_s = interval_s
        self._share = share
        self._history = History(max(2, int(history_s / interval_s)))
        self._condition = threading.Condition()
        self._snapshot: Snapshot | None = None
        self._problem: str | None = None
        self._looks = 0
        """Counts successes and failures."""
        self.troubles = 0
        """Counts the looks at which something failed: connections of that time are worth nothing."""
        self.timeline = Timeline()
        self._looking = self._wanted = self._stopped = False
        self._listeners: set[Callable[[], None]] = set()
        self._thread = threading.Thread(target=self._run, name="console-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    # -- reading -------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The last picture. Raises CommandError if there is none yet, or the cluster does not answer."""
        with self._condition:
            self._condition.wait_for(lambda: self._looks or self._stopped, _FIRST_WAIT_SECONDS)
            if self._problem is not None:
                raise CommandError(self._problem)
            if self._snapshot is None:
                raise CommandError("the cluster has not answered yet: try again")
            return self._snapshot

    def last_seen(self) -> tuple[Snapshot | None, str | None]:
        """The last picture, however old, and the present problem."""
        with self._condition:
            return self._snapshot, self._problem

    def refreshed(self, wait_s: float = 3.0) -> None:
        """Look now, for a person who has just changed something; returns when the look is done."""
        with self._condition:
            awaited = self._looks + (2 if self._looking else 1)  # one that had begun before does not count
            self._wanted = True
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._looks >= awaited or self._stopped, wait_s)

    def read_history(self, names: list[str]) -> dict[str, list[float | None]]:
        with self._condition:
            return self._history.read(names)

    def complete_history(self, values: Mapping[str, float]) -> None:
        """Figures of the last look that a page has found out."""
        with self._condition:
            self._history.complete(values)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have it called after each look, by the watcher's thread. Returns the function that ends that."""
        with self._condition:
            self._listeners.add(listener)

        def end() -> None:
            with self._condition:
                self._listeners.discard(listener)

        return end

    # -- looking -------------------------------------------------------------------------------------

    def _run(self) -> None:
        connections = BrokerConnections(self._client, answer_s=_ANSWER_SECONDS)
        sampler = Sampler(connections, self.timeline, slowly_s=_SLOWLY_INTERVALS * self._interval_s)
        while not self._stopped:
            began = time.monotonic()
            succeeded = self._look(sampler)
            took_s = time.monotonic() - began
            pause_s = self._pause_s(took_s) if succeeded else _AGAIN_SECONDS
            with self._condition:
                self._condition.wait_for(lambda: self._wanted or self._stopped, pause_s)
                self._wanted = False
        sampler.close()

    def _pause_s(self, took_s: float) -> float:
        assert self._snapshot is not None
        by_cost = min(self._snapshot.took_s / self._share, _PAUSE_SECONDS_MAX)
        if self._snapshot.number < _EARLY_LOOKS:
            by_cost = 0.0
        return max(self._interval_s - took_s, by_cost, 0.0)

    def _look(self, sampler: Sampler) -> bool:
        picture, problem = None, None
        with self._condition:
            self._looking = True
        try:
            try:
                picture = sampler.look(time.time())
            except ForebayError:
                self.troubles += 1
                sampler.close()  # a connection that was lost says little: a new one says why
                picture = sampler.look(time.time())
        except ForebayError as error:
            problem = str(error)
            sampler.close()
        except Exception as error:  # a bug must not end the thread silently
            log.exception("looking at %s failed", self._client)
            problem = f"looking at the cluster failed: {error}"
            sampler.close()
        with self._condition:
            self._looks += 1
            self._looking = False
            self._problem = problem
            if picture is not None:
                self._snapshot = picture
                self._history.add(picture.time_s, _figures(picture))
            else:
                self._history.add(time.time(), {})
            listeners = list(self._listeners)
            self._condition.notify_all()
        for listener in listeners:
            listener()
        return picture is not None


def _figures(picture: Snapshot) -> dict[str, float]:
    """The series of a picture: `in`, `lag`, `bytes-in`, `bytes-out`, `topic:NAME`, `lag:GROUP`,
    `lag-of:TOPIC`, `read:GROUP` of Spark, and `median-ms:API` and `slow-ms:API` of a few requests."""
    rates = {name: topic.rate for name, topic in picture.topics.items() if topic.rate is not None}
    lags = {name: group.lag for name, group in picture.groups.items() if group.lag is not None}
    figures: dict[str, float] = {f"topic:{name}": rate for name, rate in rates.items()}
    figures |= {f"lag:{name}": lag for name, lag in lags.items()}
    figures |= {
        f"read:{name}": group.read_rate
        for name, group in picture.groups.items()
        if group.is_spark and group.read_rate is not None
    }
    figures |= {f"lag-of:{topic}": lag for topic, lag in picture.topic_lags.items()}
    if rates:
        shown = (rate for name, rate in rates.items() if not picture.topics[name].internal)
        figures["in"] = sum(shown)
    figures["lag"] = sum(lags.values())
    if picture.activity is not None:
        figures |= _activity_figures(picture.activity)
    return figures


def _activity_figures(activity: ActivitySeen) -> dict[str, float]:
    figures = {"bytes-in": activity.bytes_in, "bytes-out": activity.bytes_out}
    for name in _PLOTTED:
        seen = activity.requests.get(name)
        if seen is not None and seen.median_ms is not None and seen.slow_ms is not None:
            figures |= {f"median-ms:{name}": seen.median_ms, f"slow-ms:{name}": seen.slow_ms}
    return figures
