"""What members of a share group get, hold and give back: the rules of deliveries, over a socket."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from forebay.errors import ErrorCode
from forebay.wire.batch import TRANSACTIONAL
from forebay.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from forebay.wire.messages.end_txn import EndTxnRequest
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from support.brokers.broker_process import BrokerProcess
from support.clients.share_member import (
    ACCEPT,
    GAP,
    LAST,
    RECORD_LIMIT,
    REJECT,
    RELEASE,
    RENEW,
    ShareMember,
    ack,
    configure,
    held,
    join,
    parts,
    start_offset,
)
from support.clients.wire_client import WireClient, append, batch, create, only_partition, produce
from support.waiting import Patience


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


@pytest.fixture
def other(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def made(client: WireClient, topic: str, partitions: int = 1, **settings: str) -> bytes:
    """A topic whose share group has its name."""
    topic_id = create(client, topic, partitions)
    configure(client, topic, **settings)
    join(client, topic, topic)
    return topic_id


def offsets(found: list[Any]) -> list[tuple[int, int]]:
    return [(each.offset, each.deliveries) for each in found]


# -- acquiring ---------------------------------------------------------------------------------------------


def test_two_members_share_the_messages(client: WireClient, other: WireClient, topic: str) -> None:
    topic_id = made(client, topic)
    for _ in range(4):
        append(client, topic, batch(*[b"x"] * 5))
    first, second = (ShareMember(each, topic, topic_id) for each in (client, other))
    assert offsets(first.take(records=10)) == [(n, 1) for n in range(10)]
    assert offsets(second.take(records=10)) == [(n, 1) for n in range(10, 20)]


def test_batches_are_given_whole_unless_the_member_says_otherwise(
    client: WireClient, other: WireClient, topic: str
) -> None:
    topic_id = made(client, topic)
    append(client, topic, batch(*[b"x"] * 10))
    strict, loose = (ShareMember(each, topic, topic_id) for each in (client, other))
    assert offsets(strict.take(records=3, mode=RECORD_LIMIT)) == [(0, 1), (1, 1), (2, 1)]
    assert offsets(loose.take(records=3)) == [(n, 1) for n in range(3, 10)]


def test_ranges_are_cut_by_batch_size(client: WireClient, topic: str) -> None:
    topic_id = made(client, topic)
    for _ in range(6):
        append(client, topic, batch(b"a", b"b"))
    member = ShareMember(client, topic, topic_id)
    patience = Patience("records are acquired")
    while not (data := parts(member.fetch(batch_size=4)))[0].acquired_records:
        patience.check(data)
    ranges = [(each.first_offset, each.last_offset) for each in data[0].acquired_records]
    assert ranges == [(0, 3), (4, 7), (8, 11)]


def test_a_fetch_of_few_bytes_brings_a_batch_all_the_same(client: WireClient, topic: str) -> None:
    topic_id = made(client, topic, 2)
    append(client, topic, batch(b"x" * 1000))
    member = ShareMember(client, topic, topic_id, partitions=(0, 1))
    assert offsets(member.take(max_bytes=1)) == [(0, 1)]


def test_what_the_member_does_not_want_is_not_acquired(
    client: WireClient, other: WireClient, topic: str
) -> None:
    topic_id = made(client, topic)
    append(client, topic, batch(b"x"))
    ShareMember(client, topic, topic_id).fetch(records=0)
    assert offsets(ShareMember(other, topic, topic_id).take()) == [(0, 1)]


def test_an_append_wakes_one_of_the_members_that_wait(
    broker: BrokerProcess, client: WireClient, other: WireClient, topic: str
) -> None:
    topic_id = made(client, topic)
    with WireClient(broker.bootstrap) as third:
        waiting = [client, other, third]
        members = [ShareMember(each, topic, topic_id) for each in waiting]
        for member in members:
            member.fetch(wait_ms=1)
            member.post_fetch()
        with WireClient(broker.bootstrap) as sender:
            append(sender, topic, batch(b"x"))
        patience = Patience("a member gets the message")
        while not (answered := [each for each in waiting if not each.is_silent()]):
            patience.check()
        assert [offsets(held(each.read())) for each in answered] == [[(0, 1)]]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_batches_are_taken_in_parts(
    client: WireClient, other: WireClient, topic: str, codec: int
) -> None:
    topic_id = made(client, topic)
    append(client, topic, batch(*[b"%d" % n for n in range(10)], codec=codec))
    first, second = (ShareMember(each, topic, topic_id) for each in (client, other))
    got = first.take(records=4, mode=RECORD_LIMIT)
    assert [each.value for each in got] == [b"0", b"1", b"2", b"3"]
    assert [each.value for each in second.take()] == [b"%d" % n for n in range(4, 10)]


def test_the_window_is_as_wide_as_the_setting_says(client: WireClient, topic: str) -> None:
    topic_id = made(client, topic, share_partition_max_record_locks="100")
    for _ in range(30):
        append(client, topic, batch(*[b"x"] * 5))
    member = ShareMember(client, topic, topic_id)
    assert len(member.take()) == 100
    assert member.take(wait_ms=0) == []
    assert member.acknowledge(ack(1, 99)) == ErrorCode.NONE
    assert member.take(wait_ms=0) == []  # the first one holds the window
    assert member.acknowledge(ack(0)) == ErrorCode.NONE
    assert len(member.take()) == 50


def test_a_group_begins_at_the_end_unless_told_otherwise(client: WireClient, topic: str) -> None:
    topic_id = create(client, topic)
    join(client, topic, topic)
    append(client, topic, batch(b"before"))
    member = ShareMember(client, topic, topic_id)
    member.fetch(wait_ms=1)
    patience = Patience("the group begins at the end")
    while (found := start_offset(client, topic)) != 1:
        patience.check(found)
    append(client, topic, batch(b"after"))
    assert [each.value for each in member.take()] == [b"after"]


# -- acknowledging -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batches", "code"),
    [
        ([ack(1, 0)], ErrorCode.INVALID_REQUEST),
        ([ack(2, 3), ack(0, 1)], ErrorCode.INVALID_REQUEST),
        ([ack(0, 3, ACCEPT, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([ack(0, 0, -1)], ErrorCode.INVALID_REQUEST),
        ([ack(0, 0, RENEW)], ErrorCode.INVALID_REQUEST),
        ([ack(0, 0, 5)], ErrorCode.INVALID_REQUEST),
        ([ack(0, 10)], ErrorCode.INVALID_REQUEST),
        ([ack(0, 2**62)], ErrorCode.INVALID_REQUEST),
        ([ack(-5, -3)], ErrorCode.INVALID_REQUEST),
        ([ack(0, 1), ack(1, 2)], ErrorCode.INVALID_RECORD_STATE),
    ],
)
def test_acknowledgements_that_make_no_sense_are_refused_as_a_whole(
    client: WireClient, topic: str, batches: list[Any], code: ErrorCode
) -> None:
    topic_id = made(client, topic)
    append(client, topic, batch(*[b"x"] * 5))
    member = ShareMember(client, topic, topic_id)
    member.take()
    assert member.acknowledge(*batches) == code
    assert member.acknowledge(ack(0, 4)) == ErrorCode.NONE


def test_empty_types_are_refused(client: WireClient, topic: str) -> None:
    topic_id = made(client, topic)
    append(client, topic, batch(b"x"))
    member = ShareMember(client, topic, topic_id)
    member.take()
    empty = ack(0)
    empty.acknowledge_types = []
    assert member.acknowledge(empty) == ErrorCode.INVALID_REQUEST
    assert member.acknowledge(ack(0)) == ErrorCode.NONE


def test_only_the_holder_acknowledges_and_only_once(
    client: WireClient, other: WireClient, topic: str
) -> None:
    topic_id = made(client, topic)
    append(client, topic, batch(b"a", b"b"))
    holder, stranger = (ShareMember(each, topic, topic_id) for each in (client, other))
    holder.take()
    stranger.fetch(wait_ms=1)
    assert stranger.acknowledge(ack(0)) == ErrorCode.INVALID_RECORD_STATE
    assert holder.acknowledge(ack(1)) == ErrorCode.NONE
    assert holder.acknowledge(ack(1)) == ErrorCode.INVALID_RECORD_STATE
    assert holder.acknowledge(ack(0)) == ErrorCode.NONE
    assert holder.acknowledge(ack(0, 1)) == ErrorCode.NONE  # below the start offset nothing is checked


def test_each_offset_can_have_its_own_fate(client: WireClient, other: WireClient, topic: str) -> None:
    topic_id = made(client, topic)
    append(client, topic, batch(*[b"x"] * 5))
    first, second = (ShareMember(each, topic, topic_id) for each in (client, other))
    first.take()
    assert first.acknowledge(ack(0, 4, ACCEPT, RELEASE, REJECT, GAP, RELEASE)) == ErrorCode.NONE
    assert offsets(second.take()) == [(1, 2), (4, 2)]


def test_acknowledgements_ride_along_with_a_fetch(client: WireClient, topic: str) -> None:
    topic_id = made(client, topic)
    append(client, topic, batch(b"a"))
    append(client, topic, batch(b"b"))
    member = ShareMember(client, topic, topic_id)
    member.take(records=1)
    answer = member.fetch(acks={0: [ack(0)]}, records=1)
    assert parts(answer)[0].acknowledge_error_code == ErrorCode.NONE
    assert offsets(held(answer)) == [(1, 1)]


def test_a_request_can_acknowledge_without_asking_for_more(
    client: WireClient, other: WireClient, topic: str
) -> None:
    topic_id = made(client, topic)
    append(client, topic, batch(b"a"))
    append(client, topic, batch(b"b"))
    member = ShareMember(client, topic, topic_id)
    member.take(records=1)
    answer = member.fetch(acks={0: [ack(0)]}, wait_ms=0, max_bytes=0, records=0, batch_size=0)
    assert parts(answer)[0].acknowledge_error_code == ErrorCode.NONE
    assert held(answer) == []
    assert offsets(ShareMember(other, topic, topic_id).take()) == [(1, 1)]


def test_acknowledgements_of_what_is_not_there(client: WireClient, topic: str) -> None:
    topic_id = made(client, topic)
    member = ShareMember(client, topic, topic_id)
    member.fetch(wait_ms=1)
    member.fetch(wait_ms=200)
    assert member.acknowledge(ack(0)) == ErrorCode.INVALID_RECORD_STATE
    assert member.acknowledge(ack(0), partition=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    member.topic_id = b"\x07" * 16
    assert member.acknowledge(ack(0)) == ErrorCode.UNKNOWN_TOPIC_ID


# -- locks -------------------------------------------------------------------------------------------------


def test_what_is_not_acknowledged_in_time_comes_again(
    client: WireClient, other: WireClient, topic: str
) -> None:
    topic_id = made(client, topic, share_record_lock_duration_ms="3000")
    append(client, topic, batch(b"a", b"b"))
    slow, next_one = (ShareMember(each, topic, topic_id) for each in (client, other))
    slow.take()
    assert offsets(next_one.take()) == [(0, 2), (1, 2)]
    assert slow.acknowledge(ack(0)) == ErrorCode.INVALID_RECORD_STATE


def test_a_lock_can_be_renewed(client: WireClient, other: WireClient, topic: str) -> None:
    topic_id = made(client, topic, share_record_lock_duration_ms="3000")
    append(client, topic, batch(b"a"))
    holder, waiting = (ShareMember(each, topic, topic_id) for each in (client, other))
    holder.take()
    began = time.monotonic()
    while time.monotonic() < began + 4.0:  # longer than the lock
        assert waiting.take(wait_ms=0) == []
        waiting.fetch(wait_ms=50)
        answer = parts(holder.renewing(ack(0, 0, RENEW)))
        assert answer[0].acknowledge_error_code == ErrorCode.NONE
    assert holder.acknowledge(ack(0, 0, RENEW), renew=True) == ErrorCode.NONE
    assert holder.acknowledge(ack(0)) == ErrorCode.NONE


def test_a_request_that_renews_fetches_nothing(client: WireClient, topic: str) -> None:
    topic_id = made(client, topic)
    append(client, topic, batch(b"a"))
    member = ShareMember(client, topic, topic_id)
    member.take()
    refused = member.fetch(acks={0: [ack(0, 0, RENEW)]}, renew=True, epoch=member.epoch)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    append(client, topic, batch(b"b"))
    assert held(member.renewing(ack(0, 0, RENEW))) == []


def test_renewing_can_be_forbidden(client: WireClient, topic: str) -> None:
    topic_id = made(client, topic, share_renew_acknowledge_enable="false")
    append(client, topic, batch(b"a"))
    member = ShareMember(client, topic, topic_id)
    member.take()
    refused = parts(member.renewing(ack(0, 0, RENEW)))
    assert refused[0].acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE


def test_members_learn_how_long_they_may_hold_a_message(client: WireClient, topic: str) -> None:
    topic_id = made(client, topic, share_record_lock_duration_ms="1234")
    member = ShareMember(client, topic, topic_id)
    assert member.fetch(wait_ms=1).acquisition_lock_timeout_ms == 1234
    answer = client.call(member.acknowledge_request({}), 2)
    assert answer.acquisition_lock_timeout_ms == 1234


# -- redelivery --------------------------------------------------------------------------------------------


def test_a_message_is_delivered_as_often_as_the_limit_says(client: WireClient, topic: str) -> None:
    topic_id = made(client, topic, share_delivery_count_limit="3")
    append(client, topic, batch(b"poison"))
    append(client, topic, batch(b"good"))
    member = ShareMember(client, topic, topic_id)
    for count in (1, 2, 3):
        assert offsets(member.take(records=1)) == [(0, count)]
        assert member.acknowledge(ack(0, 0, RELEASE)) == ErrorCode.NONE
    assert offsets(member.take(records=1)) == [(1, 1)]


def test_released_messages_come_after_a_pause(client: WireClient, topic: str) -> None:
    topic_id = made(client, topic, forebay_share_retry_backoff_ms="3000")
    append(client, topic, batch(b"a"))
    member = ShareMember(client, topic, topic_id)
    member.take()
    assert member.acknowledge(ack(0, 0, RELEASE)) == ErrorCode.NONE
    assert member.take(wait_ms=0) == []
    assert offsets(held(member.fetch(wait_ms=10_000))) == [(0, 2)]  # one long poll outlasts the pause


def test_settings_are_followed_while_members_fetch(client: WireClient, topic: str) -> None:
    topic_id = made(client, topic)
    append(client, topic, batch(b"a"))
    member = ShareMember(client, topic, topic_id)
    for count in (1, 2):
        assert offsets(member.take()) == [(0, count)]
        assert member.acknowledge(ack(0, 0, RELEASE)) == ErrorCode.NONE
    configure(client, topic, share_delivery_count_limit="2")
    append(client, topic, batch(b"b"))
    assert offsets(member.take()) == [(1, 1)]


# -- what the log lacks ------------------------------------------------------------------------------------


class Transactional:
    """A transactional producer, one message at a time."""

    def __init__(self, client: WireClient, topic: str) -> None:
        self.client, self.topic, self.id, self.sequence = client, topic, f"{topic}-txn", 0
        found = client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[self.id]), 6)
        assert found.coordinators[0].error_code == ErrorCode.NONE
        request = InitProducerIdRequest(transactional_id=self.id, transaction_timeout_ms=60_000)
        answer = client.call(request, 4)
        assert answer.error_code == ErrorCode.NONE
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def send(self, value: bytes) -> None:
        data = batch(
            value,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            attributes=TRANSACTIONAL,
        )
        request = produce(self.topic, data, acks=-1, transactional_id=self.id)
        ended_soon = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS)
        patience = Patience("the transaction before is over everywhere")
        while (code := only_partition(self.client.call(request, 12)).error_code) in ended_soon:
            patience.check(code)
        assert code == ErrorCode.NONE
        self.sequence += 1

    def end(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = self.client.call(request, 5)
        assert answer.error_code == ErrorCode.NONE
        self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0


def test_readers_of_committed_messages_get_nothing_else(
    client: WireClient, other: WireClient, topic: str
) -> None:
    topic_id = made(client, topic, share_isolation_level="read_committed")
    member, sender = ShareMember(other, topic, topic_id), Transactional(client, topic)
    sender.send(b"aborted")
    member.fetch(wait_ms=1)
    assert member.take(wait_ms=0) == []
    sender.end(commit=False)
    sender.send(b"committed")
    append(client, topic, batch(b"plain"))
    assert member.take(wait_ms=0) == []
    member.post_fetch()
    assert other.is_silent()
    sender.end(commit=True)
    got = held(other.read())
    if len(got) == 1:  # it was woken between the two
        got += member.take()
    assert [each.value for each in got] == [b"committed", b"plain"]
    for each in got:
        assert member.acknowledge(ack(each.offset)) == ErrorCode.NONE
    append(client, topic, batch(b"later"))
    assert [each.value for each in member.take()] == [b"later"]


def test_one_fetch_passes_a_long_stretch_without_messages_behind_one_that_is_held(
    client: WireClient, other: WireClient, topic: str
) -> None:
    topic_id = made(client, topic, share_isolation_level="read_committed")
    append(client, topic, batch(b"first"))
    sender = Transactional(client, topic)
    for _ in range(50):
        sender.send(b"aborted")
    sender.end(commit=False)
    append(client, topic, batch(b"plain"))
    member = ShareMember(other, topic, topic_id)
    assert offsets(member.take(records=1)) == [(0, 1)]
    assert member.acknowledge(ack(0, 0, RELEASE)) == ErrorCode.NONE
    assert offsets(member.take(records=1)) == [(0, 2)]  # and this is written: nothing else is under way
    assert [each.value for each in held(member.fetch(records=1))] == [b"plain"]


def test_other_readers_get_what_is_open_and_what_was_aborted(
    client: WireClient, other: WireClient, topic: str
) -> None:
    topic_id = made(client, topic)
    member, sender = ShareMember(other, topic, topic_id), Transactional(client, topic)
    sender.send(b"open")
    assert [each.value for each in member.take()] == [b"open"]
    sender.end(commit=False)
    append(client, topic, batch(b"plain"))
    assert [each.value for each in member.take()] == [b"plain"]


def delete_records(client: WireClient, topic: str, before: int) -> None:
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=before)]
            )
        ],
        timeout_ms=10_000,
    )
    assert client.call(request, 2).topics[0].partitions[0].error_code == ErrorCode.NONE


def test_deleted_messages_are_passed(client: WireClient, other: WireClient, topic: str) -> None:
    topic_id = made(client, topic)
    for _ in range(4):
        append(client, topic, batch(b"a", b"b"))
    member = ShareMember(client, topic, topic_id)
    member.take(records=2)
    delete_records(client, topic, 4)
    assert offsets(member.take(records=2)) == [(4, 1), (5, 1)]
    assert member.acknowledge(ack(0, 0, RELEASE), ack(1), ack(4, 5)) == ErrorCode.NONE
    member.close()
    assert offsets(ShareMember(other, topic, topic_id).take()) == [(6, 1), (7, 1)]


def test_a_log_that_was_emptied_is_gone_on_with(client: WireClient, topic: str) -> None:
    topic_id = made(client, topic)
    append(client, topic, batch(b"a", b"b"))
    member = ShareMember(client, topic, topic_id)
    delete_records(client, topic, 2)
    member.fetch(wait_ms=100)
    append(client, topic, batch(b"c"))
    assert offsets(member.take()) == [(2, 1)]


def test_a_topic_that_is_deleted_ends_the_wait(client: WireClient, other: WireClient, topic: str) -> None:
    topic_id = made(client, topic)
    append(client, topic, batch(b"a"))
    member = ShareMember(other, topic, topic_id)
    member.take()
    member.post_fetch()
    assert other.is_silent()
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000)
    assert client.call(request, 6).responses[0].error_code == ErrorCode.NONE
    assert parts(other.read())[0].error_code in (
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    assert parts(member.fetch())[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert member.acknowledge(ack(0)) == ErrorCode.UNKNOWN_TOPIC_ID


def test_unknown_topics_and_partitions(client: WireClient, topic: str) -> None:
    topic_id = made(client, topic)
    unknown = ShareMember(client, topic, b"\x07" * 16)
    assert parts(unknown.fetch())[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    beyond = ShareMember(client, topic, topic_id, partitions=(5,))
    assert parts(beyond.fetch())[5].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_group_that_does_not_have_the_partition_is_told(client: WireClient, topic: str) -> None:
    """Nobody has joined it with this topic, so there is no state to begin with."""
    topic_id = create(client, topic)
    append(client, topic, batch(b"a"))
    stranger = ShareMember(client, topic, topic_id)
    for _ in range(3):
        assert parts(stranger.fetch())[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    configure(client, topic)
    join(client, topic, topic)
    assert offsets(stranger.take()) == [(0, 1)]


# -- the broker ends ---------------------------------------------------------------------------------------


def test_counts_and_acknowledgements_survive_the_broker(fresh_broker: BrokerProcess, topic: str) -> None:
    with WireClient(fresh_broker.bootstrap) as client:
        topic_id = made(client, topic)
        append(client, topic, batch(*[b"x"] * 6))
        member = ShareMember(client, topic, topic_id)
        member.take()
        assert member.acknowledge(ack(0), ack(1, 5, RELEASE)) == ErrorCode.NONE
        assert offsets(member.take()) == [(n, 2) for n in range(1, 6)]
        assert member.acknowledge(ack(3), ack(4, 4, REJECT)) == ErrorCode.NONE
        fresh_broker.kill()
    fresh_broker.restart()
    with WireClient(fresh_broker.bootstrap) as client:
        member = ShareMember(client, topic, topic_id)
        assert offsets(member.take()) == [(1, 3), (2, 3), (5, 3)]
        assert member.fetch(epoch=LAST, acks={0: [ack(1, 2), ack(5)]}).error_code == ErrorCode.NONE
    fresh_broker.restart()
    with WireClient(fresh_broker.bootstrap) as client:
        assert ShareMember(client, topic, topic_id).take(wait_ms=0) == []
        append(client, topic, batch(b"new"))
        assert offsets(ShareMember(client, topic, topic_id).take()) == [(6, 1)]


@pytest.mark.parametrize("partition", [-1, -(2**31), 2**31 - 1])
def test_partitions_that_cannot_be(client: WireClient, topic: str, partition: int) -> None:
    topic_id = made(client, topic)
    append(client, topic, batch(b"x"))
    member = ShareMember(client, topic, topic_id, partitions=(partition,))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert parts(member.fetch())[partition].error_code == unknown
    assert member.acknowledge(ack(0), partition=partition) == unknown


@pytest.mark.parametrize(
    "how",
    [
        {"records": -1},
        {"max_bytes": -1},
        {"records": -(2**31), "max_bytes": -(2**31), "wait_ms": -(2**31), "batch_size": -(2**31)},
    ],
)
def test_a_member_that_wants_less_than_nothing_gets_nothing(
    client: WireClient, topic: str, how: dict[str, int]
) -> None:
    topic_id = made(client, topic)
    append(client, topic, batch(b"x"))
    member = ShareMember(client, topic, topic_id)
    assert held(member.fetch(**how)) == []
    assert offsets(member.take(records=2**31 - 1, max_bytes=2**31 - 1, batch_size=-1, mode=77)) == [(0, 1)]


def test_a_request_may_name_a_partition_twice(client: WireClient, topic: str) -> None:
    topic_id = made(client, topic)
    append(client, topic, batch(b"a", b"b"))
    member = ShareMember(client, topic, topic_id)
    member.take()
    request = member.acknowledge_request({0: [ack(0)]})
    request.topics += member.acknowledge_request({0: [ack(1)]}, epoch=1).topics
    answer = client.call(request, 2)
    assert {each.error_code for each in parts(answer).values()} == {ErrorCode.NONE}
    assert member.acknowledge(ack(0, 1)) == ErrorCode.NONE  # both are done
