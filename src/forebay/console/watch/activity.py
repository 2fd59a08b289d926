"""Asks brokers for the bytes and requests that they have served, how long these took, and for their events.

Brokers count since their start. The differences between two looks are what happened in between; those of a
broker that was restarted begin anew. Times of all brokers are put together by their histograms, since
quantiles cannot be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from forebay.console.watch.questions import Asking
from forebay.console.watch.snapshot import ActivitySeen, RequestsSeen
from forebay.console.watch.timeline import Timeline
from forebay.wire.messages.describe_activity import DescribeActivityRequest, DescribeActivityResponse

_SECONDS_MIN = 0.5


class ActivityWatch:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._before: dict[int, DescribeActivityResponse] = {}
        self._before_s = 0.0
        self._last: ActivitySeen | None = None
        self.refused = False

    def look(self, asking: Asking, now_s: float) -> ActivitySeen | None:
        now: dict[int, DescribeActivityResponse] = {}
        self.refused = False
        for node in asking.brokers:
            if not asking.serves(node, DescribeActivityRequest):
                continue
            request = DescribeActivityRequest(events_after=self._timeline.last_id(node))
            answer = asking.ask(node, request, DescribeActivityResponse)
            if answer is None:
                continue
            if answer.error_code:
                self.refused = True
                continue
            self._timeline.add(node, answer.events)
            now[node] = answer
        seconds = now_s - self._before_s
        if self._before and seconds < _SECONDS_MIN:
            return self._last
        before, self._before, self._before_s = self._before, now, now_s
        self._last = _between(before, now, seconds)
        return self._last


def _between(
    before: Mapping[int, DescribeActivityResponse],
    now: Mapping[int, DescribeActivityResponse],
    seconds: float,
) -> ActivitySeen | None:
    pairs = [(before[node], now[node]) for node in now if node in before]
    if not pairs:
        return None
    by_broker = {node: _counts(before[node], now[node]) for node in now if node in before}
    together: dict[str, list[int]] = {}
    for counts in by_broker.values():
        for name, own in counts.items():
            together[name] = _sum(together.get(name, ()), own)
    bounds = pairs[0][1].bounds_ms
    return ActivitySeen(
        bytes_in=sum(_grown(old.bytes_in, new.bytes_in) for old, new in pairs) / seconds,
        bytes_out=sum(_grown(old.bytes_out, new.bytes_out) for old, new in pairs) / seconds,
        connections=sum(new.connections for _, new in pairs),
        requests=_seen(together, bounds, seconds),
        by_broker={node: _seen(counts, bounds, seconds) for node, counts in by_broker.items()},
    )


def _counts(before: DescribeActivityResponse, now: DescribeActivityResponse) -> dict[str, list[int]]:
    old: dict[str, list[int]] = defaultdict(list, {each.name: each.counts for each in before.times})
    found = {}
    for each in now.times:
        was = old[each.name] or [0] * len(each.counts)
        grown = [new - previous for new, previous in zip(each.counts, was, strict=True)]
        found[each.name] = each.counts if min(grown, default=0) < 0 else grown
    return found


def _seen(
    counts: Mapping[str, Sequence[int]], bounds: Sequence[float], seconds: float
) -> dict[str, RequestsSeen]:
    return {
        name: RequestsSeen(
            name=name,
            rate=sum(own) / seconds,
            median_ms=quantile(own, bounds, 0.5),
            slow_ms=quantile(own, bounds, 0.99),
        )
        for name, own in counts.items()
        if sum(own)
    }


def quantile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """The time that this share of requests stayed below, as Prometheus reckons it: evenly within a bucket."""
    wanted = share * sum(counts)
    if not wanted:
        return None
    below, low = 0, 0.0
    for count, bound in zip(counts, bounds, strict=False):
        if below + count >= wanted:
            return low + (bound - low) * (wanted - below) / count
        below, low = below + count, bound
    return low


def _grown(before: int, now: int) -> int:
    return now - before if now >= before else now


def _sum(first: Sequence[int], second: Sequence[int]) -> list[int]:
    return [one + other for one, other in zip(first, second, strict=True)] if first else list(second)
