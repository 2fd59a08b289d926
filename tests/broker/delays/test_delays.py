"""Messages that wait for their time: delivered once, never early, in order; refused with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.wire.compression import Codec
from forebay.wire.messages.alter_delays import CANCEL, FIRE, AlterDelaysRequest
from forebay.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from support.brokers.broker_process import BrokerProcess
from support.clients.config_calls import increment
from support.clients.delaying import (
    HOUR_MS,
    after,
    at,
    batch_of,
    delivered,
    describe,
    eventually,
    eventually_values,
    named,
    now_ms,
    pending,
    send,
    values,
)
from support.clients.share_member import ShareMember, configure, join
from support.clients.wire_client import WireClient, append, create, offset_at
from support.waiting import Patience

TOPIC, SET = 2, 0
LATEST = -1


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


@pytest.fixture
def delaying(client: WireClient, topic: str) -> str:
    create(client, topic, forebay_delay_enable="true")
    return topic


def test_a_message_is_delivered_at_its_time_and_not_before(client: WireClient, delaying: str) -> None:
    due_ms = now_ms() + 3_000
    schedule_id = send(client, delaying, b"later", [*at(due_ms), ("trace", b"x")])
    seen = delivered(client, delaying)
    patience = Patience("the message is delivered")
    while not seen:
        patience.check()
        seen = delivered(client, delaying)
    assert now_ms() >= due_ms
    (message,) = seen
    assert (message.key, message.value, message.timestamp) == (b"key", b"later", due_ms)
    headers = dict(message.headers)
    assert headers.keys() == {"trace", "forebay-scheduled-at", "forebay-schedule-id"}
    assert headers["forebay-schedule-id"] == b"0-%d" % schedule_id
    assert due_ms - 60_000 < int(headers["forebay-scheduled-at"] or 0) <= due_ms
    eventually(lambda: pending(client, delaying) == 0, "something still waits")


def test_messages_come_in_the_order_of_their_times_and_of_their_arrival(
    client: WireClient, delaying: str
) -> None:
    base_ms = now_ms() + 5_000
    for number, later_ms in enumerate((400, 0, 200, 0, 400, 200)):
        send(client, delaying, b"%d" % number, at(base_ms + later_ms))
    assert now_ms() < base_ms, "the machine is too slow to send six messages in five seconds"
    eventually_values(client, delaying, [b"1", b"3", b"2", b"5", b"0", b"4"])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_batches_may_be_mixed_and_compressed(client: WireClient, topic: str, codec: int) -> None:
    create(client, topic, forebay_delay_enable="true")
    soon = at(now_ms() + 3_000)
    data = batch_of((b"a", ()), (b"b", soon), (b"c", [("x", b"forebay-")]), (b"d", soon), codec=codec)
    answer = append(client, topic, data, acks=-1)
    assert answer.error_code == ErrorCode.NONE
    first = delivered(client, topic)[:2]
    assert [(each.offset, each.value) for each in first] == [
        (answer.base_offset, b"a"),
        (answer.base_offset + 2, b"c"),
    ]
    eventually_values(client, topic, [b"a", b"c", b"b", b"d"])


def test_a_large_batch_waits_as_a_whole(client: WireClient, delaying: str) -> None:
    """Too many records to be looked at on the event loop."""
    due = at(now_ms() + 3_000)
    data = batch_of(*((b"%d" % number, due) for number in range(2_000)), codec=Codec.LZ4)
    assert append(client, delaying, data, acks=-1).error_code == ErrorCode.NONE
    eventually_values(client, delaying, [b"%d" % number for number in range(2_000)])


def test_a_time_in_the_past_is_now(client: WireClient, delaying: str) -> None:
    offset = send(client, delaying, b"late", at(now_ms() - 1))
    assert [(each.offset, each.value) for each in delivered(client, delaying)] == [(offset, b"late")]


def test_headers_mean_nothing_in_other_topics(client: WireClient, topic: str) -> None:
    create(client, topic)
    send(client, topic, b"now", after("1h"))
    assert values(client, topic) == [b"now"]
    assert describe(client, topic).error_code == ErrorCode.INVALID_REQUEST


def test_a_repeated_batch_is_scheduled_once(client: WireClient, delaying: str) -> None:
    producer_id = client.call(InitProducerIdRequest(transactional_id=None), 4).producer_id
    soon = at(now_ms() + 3_000)
    numbers = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    data = batch_of((b"once", soon), (b"now", ()), **numbers)
    first = append(client, delaying, data, acks=-1)
    again = append(client, delaying, data, acks=-1)
    assert (first.error_code, again.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert again.base_offset == first.base_offset
    assert (
        append(client, delaying, batch_of((b"next", ()), **{**numbers, "base_sequence": 2})).error_code == 0
    )
    eventually_values(client, delaying, [b"now", b"next", b"once"])
    eventually(lambda: pending(client, delaying) == 0, "it waits again")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([*at(now_ms() + HOUR_MS), *after("1h")], "contradict"),
        (after("soon"), "'soon'"),
        (at(now_ms() + 31 * 24 * HOUR_MS), "forebay.delay.max.ms"),
        (after("99999999999999999999d"), "forebay.delay.max.ms"),
        (named(cancel="7-1"), "send it there"),
    ],
)
def test_a_batch_is_refused_for_a_bad_record_that_is_named(
    client: WireClient, topic: str, headers: list[tuple[str, bytes]], reason: str
) -> None:
    create(client, topic, forebay_delay_enable="true")
    answer = append(client, topic, batch_of((b"good", ()), (b"bad", headers)), acks=-1)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    ((number, message),) = [
        (each.batch_index, each.batch_index_error_message) for each in answer.record_errors
    ]
    assert number == 1 and reason in message
    assert offset_at(client, topic, LATEST) == 0


def test_no_more_than_so_many_may_wait(client: WireClient, topic: str) -> None:
    create(client, topic, forebay_delay_enable="true", forebay_delay_pending_max="2")
    send(client, topic, b"a", after("1h"))
    send(client, topic, b"b", after("1h"))
    answer = append(client, topic, batch_of((b"now", ()), (b"c", after("1h"))), acks=-1)
    assert answer.error_code == ErrorCode.POLICY_VIOLATION
    assert [each.batch_index for each in answer.record_errors] == [1]
    assert "forebay.delay.pending.max" in answer.error_message
    send(client, topic, b"now")
    assert values(client, topic) == [b"now"]


def test_a_later_message_under_the_same_schedule_key_takes_the_place_of_the_first(
    client: WireClient, delaying: str
) -> None:
    send(client, delaying, b"first", after("1h", schedule_key="k"))
    due_ms = now_ms() + 500
    send(client, delaying, b"second", at(due_ms, schedule_key="k"))
    send(client, delaying, b"other", at(due_ms, schedule_key="l"))
    eventually_values(client, delaying, [b"second", b"other"])
    eventually(lambda: pending(client, delaying) == 0, "something still waits")


def test_what_is_cancelled_is_not_delivered(client: WireClient, delaying: str) -> None:
    due_ms = now_ms() + 3_000
    send(client, delaying, b"by key", at(due_ms, schedule_key="k"))
    by_id = send(client, delaying, b"by id", at(due_ms))
    send(client, delaying, b"replaced now", at(due_ms, schedule_key="m"))
    send(client, delaying, b"stays", at(due_ms))
    send(client, delaying, None, named(schedule_key="k"))
    send(client, delaying, b"cancels", named(cancel=f"0-{by_id}"))
    send(client, delaying, b"now", named(schedule_key="m"))
    eventually_values(client, delaying, [b"now", b"stays"])
    eventually(lambda: pending(client, delaying) == 0, "something still waits")


def test_a_tombstone_may_be_delayed_under_a_key(client: WireClient, delaying: str) -> None:
    send(client, delaying, None, at(now_ms() + 500, schedule_key="k"))
    eventually_values(client, delaying, [None])


def test_what_waits_is_delivered_after_the_setting_is_switched_off(client: WireClient, delaying: str) -> None:
    send(client, delaying, b"later", at(now_ms() + 3_000))
    assert increment(client, TOPIC, delaying, ("forebay.delay.enable", SET, "false")).error_code == 0
    send(client, delaying, b"now", after("1h"))
    eventually_values(client, delaying, [b"now", b"later"])


def test_what_waits_can_be_listed_cancelled_and_delivered_at_once(client: WireClient, delaying: str) -> None:
    ids = [
        send(client, delaying, b"%d" % number, [*after(f"{3 - number}h"), ("n", b"%d" % number)])
        for number in range(3)
    ]
    answer = describe(client, delaying)
    assert (answer.error_code, answer.pending, answer.more) == (ErrorCode.NONE, 3, False)
    assert [each.id for each in answer.messages] == ids[::-1]
    assert [each.value for each in answer.messages] == [None] * 3
    first = describe(client, delaying, limit=1, values=True)
    assert first.more and [each.value for each in first.messages] == [b"2"]
    (found,) = first.messages
    assert (found.key, found.value_size, found.schedule_key) == (b"key", 1, None)
    assert [(each.key, each.value) for each in found.headers] == [("n", b"2")]
    rest = describe(client, delaying, after_due_ms=found.due_ms, after_id=found.id)
    assert [each.id for each in rest.messages] == [ids[1], ids[0]]
    assert [each.id for each in describe(client, delaying, ids=[ids[1], 10**9]).messages] == [ids[1]]

    def alter(action: int, *which: int) -> list[int]:
        done = client.call(AlterDelaysRequest(topic=delaying, action=action, ids=list(which)), 0)
        assert done.error_code == ErrorCode.NONE, done.error_message
        return [each.error_code for each in done.results]

    assert alter(CANCEL, ids[0], 10**9) == [ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND]
    assert alter(CANCEL, ids[0]) == [ErrorCode.NONE], "who was not answered asks again"
    assert alter(FIRE, ids[2]) == [ErrorCode.NONE]
    assert values(client, delaying) == [b"2"]
    assert alter(FIRE, ids[2]) == [ErrorCode.RESOURCE_NOT_FOUND]
    assert alter(CANCEL, ids[2]) == [ErrorCode.RESOURCE_NOT_FOUND], "it was delivered"
    assert pending(client, delaying) == 1


def test_a_broker_that_was_killed_goes_on_where_it_was(fresh_broker: BrokerProcess, topic: str) -> None:
    with WireClient(fresh_broker.bootstrap) as client:
        create(client, topic, forebay_delay_enable="true")
        due_ms = now_ms() + 3_000
        send(client, topic, b"before", at(now_ms() + 100))
        eventually_values(client, topic, [b"before"])
        for number in range(20):
            send(client, topic, b"%d" % number, at(due_ms + number))
        send(client, topic, b"far", after("1h"))
    fresh_broker.kill()
    fresh_broker.restart()
    with WireClient(fresh_broker.bootstrap) as client:
        eventually_values(client, topic, [b"before", *(b"%d" % number for number in range(20))])
        assert pending(client, topic) == 1


@pytest.mark.parametrize("harm", ["lost", "damaged"])
def test_an_index_that_is_gone_is_made_anew_from_the_log(
    fresh_broker: BrokerProcess, tmp_path: Path, topic: str, harm: str
) -> None:
    with WireClient(fresh_broker.bootstrap) as client:
        create(client, topic, forebay_delay_enable="true")
        send(client, topic, b"done", at(now_ms() + 100))
        eventually_values(client, topic, [b"done"])
        send(client, topic, b"cancelled", after("1h", schedule_key="k"))
        send(client, topic, None, named(schedule_key="k"))
        waiting = send(client, topic, b"waits", after("1h"))
    fresh_broker.kill()
    files = list((tmp_path / "data").glob(f"{topic}-0/delays.sqlite*"))
    assert files
    for file in files:
        if harm == "lost":
            file.unlink()
        else:
            file.write_bytes(b"not a database" * 1000)
    fresh_broker.restart()
    with WireClient(fresh_broker.bootstrap) as client:
        eventually(lambda: describe(client, topic).error_code == ErrorCode.NONE, "the index is not ready")
        assert [each.id for each in describe(client, topic).messages] == [waiting]
        assert values(client, topic) == [b"done"]


@pytest.mark.parametrize("starts_with_it", [False, True])
def test_deleted_records_take_what_waits_with_them(
    client: WireClient, delaying: str, starts_with_it: bool
) -> None:
    send(client, delaying, b"gone", after("1h"))
    start = send(client, delaying, b"now")
    kept = send(client, delaying, b"kept", after("1h"))
    start = kept if starts_with_it else start
    partition = DeleteRecordsPartition(partition_index=0, offset=start)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=delaying, partitions=[partition])], timeout_ms=10_000
    )
    assert client.call(request, 2).topics[0].partitions[0].error_code == ErrorCode.NONE
    eventually(lambda: [each.id for each in describe(client, delaying).messages] == [kept], "it still waits")
    assert values(client, delaying) == ([] if starts_with_it else [b"now"])


def test_a_share_group_gets_what_waited_and_passes_over_notes(
    client: WireClient, broker: BrokerProcess, topic: str
) -> None:
    topic_id = create(client, topic, forebay_delay_enable="true")
    configure(client, topic)
    join(client, topic, topic)
    with WireClient(broker.bootstrap) as producer:
        due_ms = now_ms() + 700
        append(producer, topic, batch_of((b"now", ()), (b"later", at(due_ms))), acks=-1)
        send(producer, topic, b"last", at(due_ms + 1))
    member = ShareMember(client, topic, topic_id)
    taken: list[bytes | None] = []
    while len(taken) < 3:
        taken += [each.value for each in member.take()]
        assert b"later" not in taken or now_ms() >= due_ms
    assert taken == [b"now", b"later", b"last"]
