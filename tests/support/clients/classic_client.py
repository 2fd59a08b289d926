"""A consumer of the classic protocol that plays by its rules, in a group of either kind.

It gives everything up before it joins (eager), or keeps what it is not told to give up (cooperative). As
leader it deals partitions out in turns; in a KIP-848 group it is never asked to.
"""

from __future__ import annotations

from typing import Any

from forebay.core.groups.assigned_partitions import Partitions, by_topic
from forebay.core.groups.shard import TopicsView
from forebay.errors import ErrorCode
from forebay.wire.state.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    read_assignment,
    read_subscription,
)
from forebay.wire.state.versioned import pack
from support.machines.consumer_runtime import ConsumerRuntime

NOTHING: Partitions = frozenset()


class ClassicClient:
    def __init__(
        self,
        runtime: ConsumerRuntime,
        name: str,
        instance_id: str | None = None,
        *,
        cooperative: bool = False,
    ) -> None:
        self.runtime = runtime
        self.name = name
        self.instance_id = instance_id
        self.cooperative = cooperative
        self.topics: tuple[str, ...] = ("orders",)
        self.restart()

    def restart(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.owned = NOTHING
        self.dealt: TopicsView | None = None
        """The topics that it dealt out, if it leads: when they change it calls for a rebalance."""
        self.waits_join: int | None = None
        self.waits_sync: int | None = None

    @property
    def is_in(self) -> bool:
        return self.generation >= 0 and self.waits_sync is None

    def act(self) -> None:
        """The next thing that it does."""
        self.hear()
        if self.waits_join is not None or self.waits_sync is not None:
            return
        has_grown = self.dealt is not None and self.dealt is not self.runtime.topics
        if self.generation < 0 or has_grown:
            self.join()
        else:
            code = self.runtime.heartbeat(self.member_id, self.generation, instance_id=self.instance_id)
            if code != ErrorCode.NONE:
                self.refused(code)

    def join(self) -> None:
        if not self.cooperative:
            self.owned = NOTHING
        self.waits_join = self.runtime.join(
            self.member_id,
            instance_id=self.instance_id,
            protocols=[("range", self.subscription())],
            session_ms=10_000,
            rebalance_ms=20_000,
        )
        self.hear()

    def subscription(self) -> bytes:
        names = self.names()
        topics = [TopicPartition(topic=names[t], partitions=p) for t, p in by_topic(self.owned).items()]
        return pack(ConsumerProtocolSubscription(topics=list(self.topics), owned_partitions=topics), 1)

    def names(self) -> dict[bytes, str]:
        return {info.topic_id: name for name, info in self.runtime.topics.items()}

    def hear(self) -> None:
        answers = self.runtime.answers
        if self.waits_join is not None and self.waits_join in answers:
            answer = answers[self.waits_join]
            self.waits_join = None
            self.joined(answer)
        if self.waits_sync is not None and self.waits_sync in answers:
            answer = answers[self.waits_sync]
            self.waits_sync = None
            self.synced(answer)

    def joined(self, answer: Any) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join()
        elif answer.error_code != ErrorCode.NONE:
            self.refused(answer.error_code)
        else:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.dealt = self.runtime.topics if answer.members else None
            self.waits_sync = self.runtime.sync(
                self.member_id,
                self.generation,
                self.shares(answer.members),
                instance_id=self.instance_id,
                protocol_name=answer.protocol_name,
            )
            self.hear()

    def shares(self, members: list[Any]) -> dict[str, bytes]:
        dealt: dict[str, dict[str, list[int]]] = {member.member_id: {} for member in members}
        for name, info in sorted(self.runtime.topics.items()):
            takers = [m.member_id for m in members if name in read_subscription(bytes(m.metadata)).topics]
            for index in range(info.partitions if takers else 0):
                dealt[takers[index % len(takers)]].setdefault(name, []).append(index)
        return {
            member_id: pack(
                ConsumerProtocolAssignment(
                    assigned_partitions=[TopicPartition(topic=t, partitions=p) for t, p in topics.items()]
                ),
                1,
            )
            for member_id, topics in dealt.items()
        }

    def synced(self, answer: Any) -> None:
        if answer.error_code != ErrorCode.NONE:
            self.refused(answer.error_code)
            return
        topics = read_assignment(bytes(answer.assignment)).assigned_partitions
        told = frozenset(
            (self.runtime.topics[entry.topic].topic_id, index)
            for entry in topics
            if entry.topic in self.runtime.topics
            for index in entry.partitions
        )
        must_join = bool(self.owned - told)
        self.owned = told
        if must_join and self.cooperative:
            self.join()

    def refused(self, code: int) -> None:
        expected = (
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
        )
        assert code in expected, ErrorCode(code).name
        if code != ErrorCode.REBALANCE_IN_PROGRESS or not self.cooperative:
            self.owned = NOTHING
        self.generation = -1
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""
        if self.cooperative and code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()

    def leave(self) -> None:
        self.runtime.leave((self.member_id, self.instance_id))
        self.restart()
