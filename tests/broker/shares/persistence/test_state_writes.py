"""What share partitions have to persist goes to the share coordinator together, and fails one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from forebay.broker.background import Background
from forebay.broker.shares.persistence.state_writes import StateWrites
from forebay.broker.telemetry.metrics import Metrics
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.core.shares.partition.writes import StateWrite
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.write_share_group_state import (
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from support.brokers.local_cluster import eventually

TOPIC = bytes(16)


class Coordinator:
    """Answers each request as told, and with success when it was told nothing."""

    def __init__(self, *answers: dict[int, ErrorCode] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[int, int]]] = []
        """The group, and the start offset by partition."""

    async def ask_coordinator(self, request: WriteShareGroupStateRequest) -> WriteShareGroupStateResponse:
        (topic,) = request.topics
        self.asked.append(
            (request.group_id, {each.partition: each.start_offset for each in topic.partitions})
        )
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, Exception):
            raise answer
        results = [
            PartitionResult(partition=each.partition, error_code=answer.get(each.partition, ErrorCode.NONE))
            for each in topic.partitions
        ]
        return WriteShareGroupStateResponse(
            results=[WriteStateResult(topic_id=topic.topic_id, partitions=results)]
        )


class Share:
    """A share partition with something to write."""

    leader_epoch = 3

    def __init__(self, partition: int, group: str = "g") -> None:
        self.key = ShareKey(group, TOPIC, partition)
        self.is_current = True
        self.wants = True
        self.done = 0
        self.failed: ErrorCode | None = None

    def take_write(self) -> tuple[StateWrite, int] | None:
        wanted, self.wants = self.wants, False
        start_offset = 100 + self.key.partition
        return (StateWrite(1, start_offset, [], 0), 7) if wanted else None

    def write_done(self) -> None:
        self.done += 1

    def drop(self, error: KafkaError) -> None:
        self.failed = error.code


@asynccontextmanager
async def writing(coordinator: Coordinator) -> AsyncIterator[StateWrites]:
    background = Background(Metrics())
    async with asyncio.TaskGroup() as tasks:
        background.open(tasks)
        yield StateWrites(coordinator, background, asyncio.get_running_loop())  # type: ignore[arg-type]
        background.close()


async def test_what_a_turn_of_the_loop_changes_is_one_request_for_each_group() -> None:
    coordinator = Coordinator()
    shares = [Share(0), Share(1), Share(2, "other"), Share(3)]
    async with writing(coordinator) as writes:
        for share in [*shares, shares[0]]:
            writes.soon(share)
        assert coordinator.asked == []
        await eventually(lambda: all(share.done for share in shares))
    assert coordinator.asked == [("g", {0: 100, 1: 101, 3: 103}), ("other", {2: 102})]
    assert [share.done for share in shares] == [1] * 4


async def test_one_that_is_refused_does_not_stop_the_others() -> None:
    coordinator = Coordinator({1: ErrorCode.FENCED_STATE_EPOCH, 2: ErrorCode.NOT_COORDINATOR})
    shares = [Share(0), Share(1), Share(2)]
    async with writing(coordinator) as writes:
        for share in shares:
            writes.soon(share)
        await eventually(lambda: shares[2].done)
    assert [partitions for _, partitions in coordinator.asked] == [{0: 100, 1: 101, 2: 102}, {2: 102}]
    assert [(share.done, share.failed) for share in shares] == [
        (1, None),
        (0, ErrorCode.FENCED_STATE_EPOCH),
        (1, None),
    ]


async def test_a_coordinator_that_cannot_be_asked_is_asked_again_for_those_that_still_count() -> None:
    coordinator = Coordinator(KafkaError(ErrorCode.NETWORK_EXCEPTION, "no answer"))
    shares = [Share(0), Share(1)]
    async with writing(coordinator) as writes:
        for share in shares:
            writes.soon(share)
        await eventually(lambda: coordinator.asked)
        shares[0].is_current = False
        await eventually(lambda: shares[1].done)
    assert [partitions for _, partitions in coordinator.asked] == [{0: 100, 1: 101}, {1: 101}]
    assert (shares[0].done, shares[0].failed) == (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def test_a_mistake_of_ours_keeps_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    coordinator = Coordinator(ValueError("nobody has thought of this"))
    shares = [Share(0), Share(1)]
    async with writing(coordinator) as writes:
        for share in shares:
            writes.soon(share)
        await eventually(lambda: all(share.failed for share in shares))
    assert [share.failed for share in shares] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert "nobody has thought of this" in caplog.text


async def test_what_can_wait_goes_with_what_cannot_or_a_little_later() -> None:
    coordinator = Coordinator()
    first, second = Share(0), Share(1)
    async with writing(coordinator) as writes:
        writes.later(first)
        writes.later(second)
        await asyncio.sleep(0)
        assert coordinator.asked == []
        writes.soon(first)
        await eventually(lambda: second.done)
    assert coordinator.asked == [("g", {0: 100}), ("g", {1: 101})]
    assert first.done == 1


async def test_more_than_a_request_has_room_for_go_in_several() -> None:
    coordinator = Coordinator()
    shares = [Share(index) for index in range(150)]
    async with writing(coordinator) as writes:
        for share in shares:
            writes.soon(share)
        await eventually(lambda: all(share.done for share in shares))
    assert [len(partitions) for _, partitions in coordinator.asked] == [64, 64, 22]
