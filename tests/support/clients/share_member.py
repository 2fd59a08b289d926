"""A member of a share group on a socket: it counts its session epochs and names its partitions.

`fetch` and `acknowledge` send one request and read its answer; `post_fetch` leaves it on its way. A test that
wants to do something wrong passes an epoch, an id or a mode of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from forebay.errors import ErrorCode
from forebay.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from forebay.wire.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from forebay.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from support.clients.config_calls import increment
from support.clients.wire_client import WireClient, values_of
from support.waiting import Patience

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
RECORD_LIMIT = 1
GROUP_RESOURCE = 32
LAST = -1
LONG_MS = 20_000

Batches = dict[int, list[AcknowledgementBatch]]


class Held(NamedTuple):
    """What a member got: offset, value, how often it was delivered."""

    offset: int
    value: bytes | None
    deliveries: int


def ack(first: int, last: int | None = None, *types: int) -> AcknowledgementBatch:
    """Of one offset or a range; accepts unless another type, or one for each offset, is given."""
    return AcknowledgementBatch(
        first_offset=first,
        last_offset=first if last is None else last,
        acknowledge_types=list(types or (ACCEPT,)),
    )


def join(client: WireClient, group: str, *topics: str, member: str | None = None) -> str:
    """Have a group know its partitions: the member's id. It has them when their states are initialized."""
    (found,) = client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 6).coordinators
    assert found.error_code == ErrorCode.NONE
    member, epoch, is_assigned = member or str(uuid4()), 0, False
    patience = Patience("the member gets partitions")
    while not is_assigned:
        patience.check(epoch)
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=list(topics)
        )
        answer = client.call(request, 1)
        assert answer.error_code == ErrorCode.NONE, answer
        epoch = answer.member_epoch
        is_assigned = answer.assignment is not None and bool(answer.assignment.topic_partitions)
    return member


def configure(client: WireClient, group: str, **settings: str) -> None:
    """Settings of a group, with _ for dots; it begins with the oldest message unless told otherwise."""
    wanted = {"share_auto_offset_reset": "earliest", **settings}
    changes = [(name.replace("_", "."), 0, value) for name, value in wanted.items()]
    answer = increment(client, GROUP_RESOURCE, group, *changes)
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def start_offset(client: WireClient, group: str) -> int:
    """Where the only partition of a group begins."""
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    answer = client.call(DescribeShareGroupOffsetsRequest(groups=[wanted]), 1)
    offset: int = answer.groups[0].topics[0].partitions[0].start_offset
    return offset


class ShareMember:
    def __init__(
        self,
        client: WireClient,
        group: str,
        topic_id: bytes,
        *,
        member: str | None = None,
        partitions: Sequence[int] = (0,),
    ) -> None:
        self.client = client
        self.group = group
        self.topic_id = topic_id
        self.member = member or str(uuid4())
        self.partitions = partitions
        self.epoch = 0

    # -- requests ----------------------------------------------------------------------------------------

    def fetch_request(
        self,
        *,
        acks: Batches | None = None,
        forget: Iterable[int] = (),
        epoch: int | None = None,
        wait_ms: int = LONG_MS,
        max_bytes: int = 1 << 20,
        records: int = 500,
        batch_size: int = 500,
        mode: int = 0,
        renew: bool = False,
        partitions: Sequence[int] | None = None,
    ) -> ShareFetchRequest:
        """Names all partitions when it opens the session, later only those with acknowledgements."""
        sent = self.next_epoch(epoch)
        if partitions is None:
            partitions = self.partitions if sent == 0 else ()
        named = dict.fromkeys([*partitions, *(acks or {})])
        return ShareFetchRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=sent,
            max_wait_ms=wait_ms,
            min_bytes=0 if renew else 1,
            max_bytes=max_bytes,
            max_records=records,
            batch_size=batch_size,
            share_acquire_mode=mode,
            is_renew_ack=renew,
            topics=[
                FetchTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        FetchPartition(partition_index=p, acknowledgement_batches=(acks or {}).get(p, []))
                        for p in named
                    ],
                )
            ]
            if named
            else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=self.topic_id, partitions=list(forget))]
            if forget
            else [],
        )

    def next_epoch(self, epoch: int | None) -> int:
        """Of the next request: the one that is due, and counted, unless another is given."""
        if epoch is not None:
            return epoch
        self.epoch += 1
        return self.epoch - 1

    def acknowledge_request(
        self, batches: Batches, *, epoch: int | None = None, renew: bool = False
    ) -> ShareAcknowledgeRequest:
        return ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.next_epoch(epoch),
            is_renew_ack=renew,
            topics=[
                AcknowledgeTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        AcknowledgePartition(partition_index=p, acknowledgement_batches=each)
                        for p, each in batches.items()
                    ],
                )
            ],
        )

    # -- calls -------------------------------------------------------------------------------------------

    def post_fetch(self, **how: Any) -> None:
        self.client.post(self.fetch_request(**how), 2)

    def fetch(self, *, version: int = 2, **how: Any) -> Any:
        return self.client.call(self.fetch_request(**how), version)

    def renewing(self, *batches: AcknowledgementBatch) -> Any:
        """A ShareFetch that only renews: it has to ask for nothing."""
        return self.fetch(acks={0: [*batches]}, renew=True, wait_ms=0, max_bytes=0, records=0, batch_size=0)

    def acknowledge(
        self, *batches: AcknowledgementBatch, partition: int = 0, version: int = 2, **how: Any
    ) -> int:
        """The error code of acknowledging something of one partition."""
        answer = self.client.call(self.acknowledge_request({partition: [*batches]}, **how), version)
        code: int = answer.error_code
        if not code:
            ((data,),) = (topic.partitions for topic in answer.responses)
            code = data.error_code
        return code

    def take(self, **how: Any) -> list[Held]:
        """What the member gets, from the first fetch that brings anything; nothing with `wait_ms=0`."""
        patience = Patience("the member gets messages")
        while True:
            patience.check()
            answer = self.fetch(**how)
            assert answer.error_code == ErrorCode.NONE, answer
            found = held(answer)
            if found or how.get("wait_ms", LONG_MS) == 0:
                return found

    def close(self) -> Any:
        return self.fetch(epoch=LAST, wait_ms=0, records=0)


def parts(answer: Any) -> dict[int, Any]:
    """What a response says of the partitions of one topic."""
    return {data.partition_index: data for topic in answer.responses for data in topic.partitions}


def held(answer: Any) -> list[Held]:
    """The acquired records of all partitions: what a client gives to its application."""
    found: list[Held] = []
    for data in parts(answer).values():
        assert data.error_code == ErrorCode.NONE, data
        values = dict(values_of(data.records))
        found += [
            Held(offset, values[offset], each.delivery_count)
            for each in data.acquired_records
            for offset in range(each.first_offset, each.last_offset + 1)
            if offset in values
        ]
    return found
