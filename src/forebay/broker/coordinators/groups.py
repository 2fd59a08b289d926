"""The group coordinator on this broker: machines on __consumer_offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from forebay.broker.coordinators.loaded_shard import Shard, Ticket
from forebay.broker.coordinators.runtime import Coordinator
from forebay.config import GroupsConfig, GroupSettings
from forebay.core.groups.failures import failure
from forebay.core.groups.shard import GroupShard, TopicInfo, TopicsView
from forebay.core.groups.share.effects import DeleteShares, InitializeShares, SummarizeShares
from forebay.core.step import Effect, Now, RequestInfo, Step
from forebay.core.views.catalog import readable_topics
from forebay.wire.fields import Request

if TYPE_CHECKING:
    from forebay.broker.coordinators.host import CoordinatorHost
    from forebay.broker.coordinators.share_group_effects import ShareGroupEffects
    from forebay.broker.live_config import LiveConfig
    from forebay.broker.net.request_context import RequestContext
    from forebay.core.cluster.image import ClusterImage
    from forebay.core.groups.group import Visibility

OFFSETS_TOPIC = "__consumer_offsets"

Q = TypeVar("Q", bound=Request)
Operation = Callable[[GroupShard, Ticket, Q, RequestInfo, Now], Step]


class Groups:
    def __init__(
        self,
        host: CoordinatorHost,
        settings: LiveConfig,
        share_effects: ShareGroupEffects,
        *,
        visibility: Visibility | None,
        entropy: Callable[[int], bytes],
    ) -> None:
        """`visibility` decides which topics members may see; without it they see all. `entropy` returns that
        many random bytes, for the ids of members."""
        self._background = host.background
        self._share_effects = share_effects
        self._time = host.time
        self._settings = settings
        self._entropy = entropy
        config = settings.current.groups
        self._topics = _topics_view(host.metadata.image)
        self._deleted: Container[bytes] = host.metadata.image.deleted
        self._common = GroupSettings.resolve(config, {})
        self._by_group = _settings_by_group(config, host.metadata.image)
        """The settings of groups that have their own."""
        self.coordinator = Coordinator(
            host,
            topic=OFFSETS_TOPIC,
            partitions=config.offsets_partitions,
            configs={
                "cleanup.policy": "compact",
                "segment.bytes": str(config.offsets_segment_bytes),
                "compression.type": "producer",
            },
            make=lambda _: GroupShard(
                config=config,
                new_id=self._new_id,
                topics=self._topics,
                deleted=self._deleted,
                settings_of=self.settings_of,
                visibility=visibility,
            ),
            failure=failure,
            perform=self._perform,
            end_transaction=GroupShard.end_transaction,
            catch_up=self._show_topics,
        )

    async def ask(self, context: RequestContext, group_id: str, request: Q, operation: Operation[Q]) -> Any:
        """The response of the shard that coordinates this group."""
        info = context.info
        return await self.coordinator.ask(
            group_id,
            request,
            info,
            lambda machine, ticket: operation(machine, ticket, request, info, self._time.now()),
        )

    async def ask_each(
        self,
        context: RequestContext,
        group_ids: Iterable[str],
        part: Callable[[list[str]], Q],
        operation: Operation[Q],
    ) -> list[Any]:
        """The responses of all shards that coordinate these groups; `part` makes the request for some of
        them. A group that is named twice is answered once."""
        by_shard: dict[int, list[str]] = {}
        for group_id in dict.fromkeys(group_ids):
            by_shard.setdefault(self.coordinator.partition_for(group_id), []).append(group_id)
        return await asyncio.gather(
            *(self.ask(context, own[0], part(own), operation) for own in by_shard.values())
        )

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        self.coordinator.follow()
        if after.group_configs is not before.group_configs:
            self._by_group = _settings_by_group(self._settings.current.groups, after)
        if after.topics is before.topics and after.views is before.views:
            return
        topics, self._deleted = _topics_view(after), after.deleted
        if after.unreadable.has_topics:
            kept = self._topics.keys() & after.unreadable.topics  # they are there, and cannot be read
            topics = {**{name: self._topics[name] for name in kept}, **topics}
        if topics == self._topics:
            return  # leaders and replicas change more often than topics do
        self._topics = topics
        for shard in self.coordinator.ready_shards():
            self.coordinator.run(shard, "seeing changed topics", self._show_topics)

    def _new_id(self) -> str:
        return str(UUID(bytes=self._entropy(16), version=4))

    def settings_of(self, group_id: str) -> GroupSettings:
        """The settings in force for a group."""
        return self._by_group.get(group_id, self._common)

    def _show_topics(self, machine: GroupShard) -> Step:
        return machine.topics_changed(self._topics, self._time.now(), deleted=self._deleted)

    # -- the state of share groups at the share coordinators -------------------------------------------

    def _perform(self, effect: Effect) -> None:
        assert isinstance(effect, InitializeShares | DeleteShares | SummarizeShares)
        doing = f"{type(effect).__name__} for the share group {effect.group_id!r}"
        shard = self.coordinator.running(self.coordinator.partition_for(effect.group_id))
        if shard is not None:
            self._background.spawn(self._carry_out(shard, effect), doing)

    async def _carry_out(
        self, shard: Shard[GroupShard], effect: InitializeShares | DeleteShares | SummarizeShares
    ) -> None:
        effects, group_id = self._share_effects, effect.group_id

        def goes_on() -> bool:
            return shard.ready and shard.in_term

        match effect:
            case InitializeShares():
                made = await effects.initialize(effect, goes_on)
                self._report(
                    shard,
                    lambda machine, now: machine.share_partitions_initialized(
                        group_id, effect.state_epoch, made, now
                    ),
                )
            case DeleteShares():
                gone = await effects.delete(effect, goes_on)
                self._report(
                    shard, lambda machine, now: machine.share_partitions_deleted(group_id, gone, now)
                )
            case SummarizeShares():
                found = await effects.summarize(effect, goes_on)
                self._report(
                    shard,
                    lambda machine, now: machine.share_partitions_summarized(
                        effect.ticket, group_id, found, now
                    ),
                )

    def _report(self, shard: Shard[GroupShard], report: Callable[[GroupShard, Now], Step]) -> None:
        """Report the result of an effect to the machine that wanted it, if its term is not over."""
        if shard.ready:
            now = self._time.now()
            self.coordinator.run(shard, "noting a share effect", lambda machine: report(machine, now))


def _topics_view(image: ClusterImage) -> TopicsView:
    """The topics and views that groups can read."""
    return {
        topic.name: TopicInfo(
            topic.topic_id,
            len(topic.partitions),
            is_view=topic.name in image.views,
            named_end=0 if (folding := topic.record.folding) is None else folding.named_end,
        )
        for topic in readable_topics(image)
    }


def _settings_by_group(config: GroupsConfig, image: ClusterImage) -> dict[str, GroupSettings]:
    return {
        group_id: GroupSettings.resolve(config, stored.overrides)
        for group_id, stored in image.group_configs.items()
    }
