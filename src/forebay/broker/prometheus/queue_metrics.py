"""Share groups: the states of their messages, on the partitions that this broker leads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from forebay.broker.prometheus.families import Page, escaped
from forebay.core.shares.partition.state_transitions import ACQUIRED, ARCHIVING

if TYPE_CHECKING:
    from forebay.broker.shares.live_share import LiveShare

_AT_ONCE = 100
_PER_GROUP_AND_TOPIC = 5


class QueueMetrics:
    def __init__(self, shares: Callable[[], Iterable[LiveShare]]) -> None:
        self._shares = shares

    async def prepare(self) -> None:
        pass

    def add_to(self, page: Page) -> Iterator[None]:
        sums: dict[tuple[str, str], _Sums] = {}
        for number, share in enumerate(self._shares()):
            if share.machine is not None and share.is_current:
                sums.setdefault((share.key.group_id, share.partition.topic), _Sums()).add(share)
            if not number % _AT_ONCE:
                yield
        for number, ((group, topic), found) in enumerate(sums.items()):
            if page.has_room(_PER_GROUP_AND_TOPIC):
                found.add_to(page, f'group="{escaped(group)}",topic="{escaped(topic)}"')
            if not number % _AT_ONCE:
                yield


class _Sums:
    def __init__(self) -> None:
        self._by_state = {"available": 0, "acquired": 0, "backoff": 0, "dead_letter": 0}

    def add(self, share: LiveShare) -> None:
        machine, states = share.machine, self._by_state
        assert machine is not None
        window = machine.window
        states["available"] += window.acquirable + max(share.end_offset - (window.end + 1), 0)
        states["acquired"] += window.totals[ACQUIRED]
        states["backoff"] += window.waiting
        states["dead_letter"] += window.totals[ARCHIVING]

    def add_to(self, page: Page, name: str) -> None:
        for state, count in self._by_state.items():
            page.add("forebay_share_records", count, f'{name},state="{state}"')
        page.add("forebay_share_lag", sum(self._by_state.values()), name)
