"""The checks at the end of a story: every message, every offset, every topic and setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import partial

from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode
from forebay.lazy import dataclass
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.administrators import TOPIC_RESOURCE
from forebay.sim.actors.client import GROUP, Client, Failed, Refused, check
from forebay.sim.actors.consumers.readers import fetch_offset
from forebay.sim.actors.reading import messages
from forebay.sim.models.dead_letters import Letter
from forebay.sim.models.messages import Model
from forebay.sim.world.places import BRIEF, JOBS, LATER, LOOSE
from forebay.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from forebay.wire.messages.metadata import MetadataRequest, MetadataResponse

Content = dict[TopicPartition, dict[int, bytes]]

_DELETED = (BRIEF, LOOSE)
"""Partitions whose messages may be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    stored: Content = field(default_factory=dict)
    visible: Content = field(default_factory=dict)
    """The messages that committed readers see."""
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)
    """The dead letters of the share group."""


class LastReader(Actor):
    """Reads every partition to its end, twice: all stored messages, and those that committed readers see."""

    def __init__(
        self, client: Client, model: Model, found: Found, partitions: Sequence[TopicPartition]
    ) -> None:
        super().__init__(client, model)
        self._found = found
        self._partitions = partitions

    async def act(self) -> None:
        for at in self._partitions:
            self._found.stored[at] = await self._read(at, committed=False)
            self._found.visible[at] = await self._read(at, committed=True)

    async def _read(self, at: TopicPartition, *, committed: bool) -> dict[int, bytes]:
        content: dict[int, bytes] = {}
        offset = await self._start(at) if at in _DELETED else 0
        # Where messages are delayed, the first fetch may find fewer than there are.
        end = await self.retry(partial(self.client.latest, at)) if at == LATER else 0
        while True:
            fetch = partial(self.client.fetch, at, offset, committed=committed, max_wait_ms=10)
            try:
                found = await self.retry(fetch)
            except Refused as refused:
                if refused.code is not ErrorCode.OFFSET_OUT_OF_RANGE or not self._may_begin_later(at):
                    raise
                offset = await self._start(at)  # something was deleted this very moment
                continue
            shown, offset = messages(found, offset, committed=committed)
            content.update(shown)
            if offset >= max(found.high_watermark, end):
                return content

    def _may_begin_later(self, at: TopicPartition) -> bool:
        """An unclean election may leave a gap between the object store and the new leader's log. Then the
        history before it is given up."""
        return at in _DELETED or (at in JOBS and self.model.shares.rules.loses_records)

    async def _start(self, at: TopicPartition) -> int:
        start = await self.retry(partial(self.client.earliest, at))
        if at in _DELETED:
            self._found.starts[at] = start
        return start


class LastAuditor(Actor):
    """Checks the offsets of groups, topics and their settings, until all is as the model says."""

    async def act(self) -> None:
        for group, at in self.model.groups.places():
            forget = partial(self.client.forget_coordinator, GROUP, group)
            await self.retry(partial(fetch_offset, self, group, at), forget)
        await self.retry(self._look_at_topics)
        for topic, keys in self.model.topics.settings().items():
            await self.retry(partial(self._look_at_settings, topic, keys))

    async def _look_at_topics(self) -> None:
        found = await self.client.ask_any(MetadataRequest(topics=None), MetadataResponse)
        counts = {topic.name or "": len(topic.partitions) for topic in found.topics}
        self._insist(self.model.topics.wrong_about(counts))

    async def _look_at_settings(self, topic: str, keys: Sequence[str]) -> None:
        resource = DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=list(keys)
        )
        response = await self.client.ask_any(
            DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse
        )
        check(response.results[0].error_code)
        values = {config.name: config.value or "" for config in response.results[0].configs}
        topics = self.model.topics
        wrong = [
            f"{topic} {key}={values.get(key)}" for key in keys if not topics.may_be(topic, key, values[key])
        ]
        self._insist(wrong)

    def _insist(self, wrong: Sequence[str]) -> None:
        """A broker may get changes a little later than others. So after a wrong answer it asks again."""
        if wrong:
            self.world.remark(f"not as it was told: {wrong}")
            raise Failed("; ".join(wrong))
