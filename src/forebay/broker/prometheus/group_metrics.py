"""Groups: those that this broker coordinates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from forebay.broker.prometheus.families import Page, escaped, labels
from forebay.broker.prometheus.group_lag import Committed, Lag, oldest_timestamp

if TYPE_CHECKING:
    from forebay.broker.broker_time import BrokerTime
    from forebay.broker.coordinators.groups import Groups
    from forebay.broker.prometheus.group_lag import GroupLags

_AT_ONCE = 100
_GROUP = "kafka_consumergroup"
_PER_GROUP_AND_TOPIC = 3
_PER_PARTITION = 2


class GroupMetrics:
    """Each group, and its lag by topic."""

    def __init__(self, groups: Callable[[], Groups | None], lags: GroupLags, time: BrokerTime) -> None:
        self._groups = groups
        self._lags = lags
        self._time = time

    async def prepare(self) -> None:
        await self._lags.refresh()

    def add_to(self, page: Page) -> Iterator[None]:
        yield from self._add_groups(page)
        by_topic: dict[tuple[str, str], list[Committed]] = {}
        for number, each in enumerate(self._lags.committed):
            by_topic.setdefault((each.group, each.topic), []).append(each)
            if not number % _AT_ONCE:
                yield
        for number, ((group, topic), committed) in enumerate(by_topic.items()):
            if page.has_room(_PER_GROUP_AND_TOPIC):
                self._add_topic(page, _name(group, topic), committed)
            if not number % _AT_ONCE:
                yield

    def _add_groups(self, page: Page) -> Iterator[None]:
        found, counts = self._groups(), Counter[tuple[str, str]]()
        for shard in found.coordinator.ready_shards() if found is not None else ():
            for group in list(shard.machine.groups.values()):
                counts[group.type_name.lower(), group.state_name] += 1
                name = labels(consumergroup=group.group_id)
                page.add_detail(f"{_GROUP}_members", group.member_count, name)
            yield
        for (kind, state), count in counts.items():
            page.add("forebay_groups", count, labels(type=kind, state=state))

    def _add_topic(self, page: Page, name: str, committed: list[Committed]) -> None:
        lags: list[Lag | None] = [self._lags.of(each) for each in committed]
        page.add(f"{_GROUP}_current_offset_sum", sum(each.offset for each in committed), name)
        known = [lag.messages for lag in lags if lag is not None]
        if len(known) == len(lags):
            page.add(f"{_GROUP}_lag_sum", sum(known), name)
        now_ms = self._time.now_ms()
        oldest_ms = oldest_timestamp(lags, now_ms)
        if oldest_ms is not None:
            page.add("forebay_consumergroup_lag_seconds", max(now_ms - oldest_ms, 0) / 1000, name)


class GroupPartitionMetrics:
    """The lag of each group by partition."""

    def __init__(self, lags: GroupLags) -> None:
        self._lags = lags

    async def prepare(self) -> None:
        pass

    def add_to(self, page: Page) -> Iterator[None]:
        page.left_out += self._lags.left_out * _PER_PARTITION
        for number, each in enumerate(self._lags.committed):
            if page.has_room(_PER_PARTITION):
                name = f'{_name(each.group, each.topic)},partition="{each.partition}"'
                page.add(f"{_GROUP}_current_offset", each.offset, name)
                lag = self._lags.of(each)
                if lag is not None:
                    page.add(f"{_GROUP}_lag", lag.messages, name)
            if not number % _AT_ONCE:
                yield


def _name(group: str, topic: str) -> str:
    return f'consumergroup="{escaped(group)}",topic="{escaped(topic)}"'
