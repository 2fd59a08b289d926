"""Random members and administrators against a shard that crashes at any step; share coordinators that fail.

Members join, change their minds, leave, die, come back; answers get lost; topics come, grow and go; what the
group asks of share coordinators fails, is done without a report, or late, even long after the coordinator
that wanted it has died. At no time is a partition held for initialized whose state is not there, no epoch of
a state is given out twice, and no member that reports in time loses its place. Once nothing changes any more,
every partition is assigned, evenly, and no share coordinator has more than that.
"""

from __future__ import annotations

from itertools import count as count_from

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from forebay.core.groups.assigned_partitions import TopicPartition
from forebay.core.groups.shard import TopicInfo
from forebay.core.groups.share.effects import InitializeShares
from forebay.core.groups.share.offsets import ShareGroup
from forebay.core.step import Effect
from forebay.errors import ErrorCode
from forebay.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from forebay.wire.messages.delete_groups import DeleteGroupsRequest
from forebay.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from support.machines.share_runtime import SESSION_MS, ShareClient, ShareRuntime, check_targets, settle
from support.machines.walks import walks

NAMES = ["orders", "payments", "new"]
SUBSCRIPTIONS = [("orders",), ("orders", "payments"), ("payments", "missing"), ("new",)]


class Walk(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runtime = ShareRuntime()
        self.runtime.answers_at_once = False
        self.clients = [ShareClient(self.runtime, name) for name in "abcd"]
        self.late: list[Effect] = []
        """What coordinators that died have asked for, and may still be done."""
        self.strays: set[TopicPartition] = set()
        """What was made too late for anybody to know of it."""
        self.ids = count_from(1)
        self.beaten_ms: dict[str, int] = {}
        """When each member that has not left was last heard."""

    indexes = st.integers(0, 3)
    names = st.sampled_from(NAMES)

    def heard(self, client: ShareClient) -> None:
        if client.member_id in self.members():
            self.beaten_ms[client.member_id] = self.runtime.now_ms

    @rule(index=indexes, lost=st.booleans())
    def beat(self, index: int, lost: bool) -> None:
        self.clients[index].beat(lost=lost)
        self.heard(self.clients[index])

    @rule()
    def everybody_beats(self) -> None:
        for client in self.clients:
            client.beat()
            self.heard(client)

    @rule(index=indexes, chosen=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, index: int, chosen: tuple[str, ...]) -> None:
        self.clients[index].subscribe(*chosen)

    @rule(index=indexes)
    def leave(self, index: int) -> None:
        self.beaten_ms.pop(self.clients[index].member_id, None)
        self.clients[index].leave()

    @rule(index=indexes)
    def die(self, index: int) -> None:
        self.clients[index].restart()

    @rule(ms=st.sampled_from([1, 500, 1_000, 5_000, 30_000, SESSION_MS]))
    def wait(self, ms: int) -> None:
        self.runtime.advance(ms)
        self.hear()

    def hear(self) -> None:
        for client in self.clients:
            client.hear()

    # -- share coordinators --------------------------------------------------------------------------

    @rule(is_reported=st.booleans())
    def perform(self, is_reported: bool) -> None:
        self.runtime.perform(is_reported=is_reported)
        self.hear()

    @rule()
    def perform_all(self) -> None:
        for _ in range(20):
            self.runtime.perform()
        self.hear()

    @rule(index=st.integers(0, 9))
    def perform_late(self, index: int) -> None:
        if not self.late:
            return
        effect = self.late.pop(index % len(self.late))
        waiting, self.runtime.effects = self.runtime.effects, [effect]
        if isinstance(effect, InitializeShares):
            self.strays |= {(start.topic_id, start.partition) for start in effect.partitions}
        self.runtime.perform(is_reported=False, is_late=True)
        self.runtime.effects = waiting

    @rule()
    def fail(self) -> None:
        self.runtime.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.runtime.perform()
        self.runtime.error = ErrorCode.NONE
        self.hear()

    # -- topics and administrators -------------------------------------------------------------------

    @rule(count=st.integers(1, 6), name=names)
    def see_topic(self, count: int, name: str) -> None:
        """It is made, grows, or is made anew."""
        known = self.runtime.topics.get(name)
        same = known is not None and known.partitions <= count
        topic_id = known.topic_id if known is not None and same else next(self.ids).to_bytes(16, "big")
        self.runtime.see_topics({**self.runtime.topics, name: TopicInfo(topic_id, count)})

    @rule(name=names)
    def lose_topic(self, name: str) -> None:
        self.runtime.see_topics({each: info for each, info in self.runtime.topics.items() if each != name})

    @rule(name=names, offset=st.sampled_from([-1, 0, 7]))
    def alter(self, name: str, offset: int) -> None:
        asked = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
        topic = AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=[asked])
        request = AlterShareGroupOffsetsRequest(group_id="g", topics=[topic])
        self.runtime.send("alter_share_group_offsets", request, 0)

    @rule(name=names)
    def forget(self, name: str) -> None:
        topic = DeleteShareGroupOffsetsRequestTopic(topic_name=name)
        request = DeleteShareGroupOffsetsRequest(group_id="g", topics=[topic])
        self.runtime.send("delete_share_group_offsets", request, 0)

    @rule()
    def delete_group(self) -> None:
        self.runtime.send("delete_groups", DeleteGroupsRequest(groups_names=["g"]), 2)

    # -- crashes -------------------------------------------------------------------------------------

    @rule(is_finished=st.booleans())
    def crash(self, is_finished: bool) -> None:
        """What was asked of share coordinators may still be done by the process that died."""
        before = self.members()
        while is_finished and self.runtime.effects:
            self.runtime.perform(is_reported=False)
        self.late, self.runtime.effects = self.late + self.runtime.effects, []
        self.runtime.crash()
        assert self.members() == before

    @rule(index=indexes, is_written=st.booleans())
    def crash_in_a_step(self, index: int, is_written: bool) -> None:
        """The answer is never heard, whether or not the records of the step were written."""
        length, effects = len(self.runtime.log), len(self.runtime.effects)
        heard = dict(self.beaten_ms)
        self.clients[index].beat(lost=True)
        self.heard(self.clients[index])
        if not is_written:
            self.beaten_ms = heard
            self.runtime.lose_from(length)
            del self.runtime.effects[effects:]
        self.late, self.runtime.effects = self.late + self.runtime.effects, []
        self.runtime.crash()

    # -- what holds ----------------------------------------------------------------------------------

    def group(self) -> ShareGroup | None:
        group = self.runtime.shard.groups.get("g")
        return group if isinstance(group, ShareGroup) else None

    def members(self) -> set[str]:
        group = self.group()
        return set() if group is None else set(group.state.members)

    @invariant()
    def what_is_initialized_is_there(self) -> None:
        group = self.group()
        for topic_id, topic in () if group is None else group.state.topics.items():
            for index in () if topic.deleting else topic.initialized:
                assert ("g", (topic_id, index)) in self.runtime.states

    @invariant()
    def members_that_report_in_time_stay(self) -> None:
        now_ms = self.runtime.now_ms
        timely = {name for name, at_ms in self.beaten_ms.items() if now_ms - at_ms < SESSION_MS}
        assert timely <= self.members()

    def teardown(self) -> None:
        self.runtime.answers_at_once = True
        self.runtime.advance(SESSION_MS)
        for _ in range(4):
            settle(self.clients)
            self.runtime.advance(6_000)
        settle(self.clients)
        settle(self.clients)
        group = self.runtime.shares()
        assert set(group.state.members) == {client.member_id for client in self.clients}
        check_targets(group)
        wanted = {
            (info.topic_id, index)
            for name, info in self.runtime.topics.items()
            if group.is_subscribed(name)
            for index in range(info.partitions)
        }
        assert {each for client in self.clients for each in client.assigned} == wanted
        for client in self.clients:
            assert client.assigned == group.state.target(client.member_id)
        listed = {(topic, index) for topic, found in group.state.topics.items() for index in found.partitions}
        assert set(self.runtime.start_offsets()) <= listed | self.strays, "nothing is left over"
        assert {topic for topic, _ in listed} <= set(group.context.names)


TestWalk, TestManyWalks = walks(Walk, few=40, many=250, steps=40)
