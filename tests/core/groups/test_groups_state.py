"""What groups are made of: deadlines in one heap, records in Kafka's bytes, a load that stays fast."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.config import GroupsConfig, broker_config
from forebay.core.deadline_heap import DeadlineHeap
from forebay.core.groups.classic.members import subscribed_topics
from forebay.core.groups.group import TimerKey
from forebay.core.groups.offsets import commit_record
from forebay.core.groups.shard import GroupShard
from forebay.core.step import StateRecord
from forebay.errors import ConfigError, ProtocolError
from forebay.wire.state.consumer_protocol import ConsumerProtocolSubscription, read_subscription, read_topics
from forebay.wire.state.group_metadata import GroupMetadataValue
from forebay.wire.state.offset_commit import OffsetCommitKey, OffsetCommitValue
from forebay.wire.state.versioned import pack, unpack, version_of
from support.machines import times
from support.machines.group_runtime import Runtime, subscription

# -- timers -------------------------------------------------------------------------------------------

_names = st.sampled_from("abcde")
_moves = st.one_of(
    st.tuples(st.just("set"), _names, st.integers(0, 50)),
    st.tuples(st.just("cancel"), _names, st.just(0)),
    st.tuples(st.just("pop"), st.just(""), st.integers(0, 50)),
)


@given(st.lists(_moves, max_size=60))
def test_timers_are_a_dictionary_that_knows_its_smallest_value(moves: list[tuple[str, str, int]]) -> None:
    timers, model = DeadlineHeap[TimerKey](), dict[TimerKey, int]()
    for move, name, at in moves:
        key = TimerKey("g", name)
        if move == "set":
            timers.set(key, at)
            model[key] = at
        elif move == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            first = min(model.values(), default=None)
            due = timers.pop_due(at)
            if first is None or first > at:
                assert due is None
            else:
                assert due is not None
                assert model.pop(due) == first
        assert timers.next_ms() == min(model.values(), default=None)
        assert len(timers) == len(model)


def test_timers_come_due_in_order() -> None:
    timers = DeadlineHeap[TimerKey]()
    for at in (30, 10, 20):
        timers.set(TimerKey("g", str(at)), at)
    assert [timers.pop_due(25), timers.pop_due(25), timers.pop_due(25)] == [
        TimerKey("g", "10"),
        TimerKey("g", "20"),
        None,
    ]


def test_heartbeats_do_not_let_the_heap_grow() -> None:
    timers = DeadlineHeap[TimerKey]()
    for beat in range(1_000):
        for member in range(10):
            timers.set(TimerKey("g", "session", str(member)), beat * 3_000 + 10_000)
        timers.next_ms()
    assert len(timers.heap) == 10


def test_timers_that_come_and_go_do_not_let_the_heap_grow() -> None:
    timers = DeadlineHeap[TimerKey]()
    for number in range(10_000):
        timers.set(TimerKey("g", "session", str(number)), 1_000_000)
        timers.cancel(TimerKey("g", "session", str(number)))
    assert len(timers.heap) < 2_000


# -- records ------------------------------------------------------------------------------------------


def test_an_offset_is_written_as_kafka_writes_it() -> None:
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9)
    record = commit_record("g", "t", 3, value)
    assert record.key == bytes.fromhex("0001 0001 67 0001 74 00000003")
    assert record.value == bytes.fromhex("0003 0000000000000005 00000002 0001 6d 0000000000000009")
    assert unpack(OffsetCommitKey, record.key) == OffsetCommitKey(group="g", topic="t", partition=3)


def test_an_offset_with_the_id_of_its_topic_is_written_as_kafka_writes_it() -> None:
    value = OffsetCommitValue(
        offset=5, leader_epoch=2, metadata="m", commit_timestamp=9, topic_id=bytes(range(16))
    )
    record = commit_record("g", "t", 3, value)
    assert record.value == bytes.fromhex(
        "0004 0000000000000005 00000002 02 6d 0000000000000009 01 00 10 000102030405060708090a0b0c0d0e0f"
    )
    assert unpack(OffsetCommitValue, record.value) == value


def test_a_group_is_written_as_kafka_writes_it() -> None:
    runtime = Runtime(now_ms=0x10, wall_ahead_ms=0)
    member, _ = runtime.enter(protocols=[("r", b"\x01")], protocol_type="x")
    runtime.sync(member, 1, {member: b"\x02"}, protocol_type=None, protocol_name=None)
    (entry,) = runtime.log
    assert isinstance(entry[1], list)
    (record,) = entry[1]
    assert record.key == bytes.fromhex("0002 0001 67")
    name = bytes.fromhex("0007") + b"app-id1"
    assert record.value == b"".join(
        [
            bytes.fromhex("0003 0001 78 00000001 0001 72"),
            name,
            bytes.fromhex("0000000000000010 00000001"),
            name,
            bytes.fromhex("ffff 0003") + b"app" + bytes.fromhex("000a") + b"/127.0.0.1",
            bytes.fromhex("00007530 00002710 00000001 01 00000001 02"),
        ]
    )


@pytest.mark.parametrize("version", range(5))
def test_records_of_all_versions_are_read(version: int) -> None:
    shard = GroupShard(config=GroupsConfig(), new_id=str, topics={})
    value = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9)
    key = pack(OffsetCommitKey(group="g", topic="t", partition=3), min(version, 1))
    shard.replay(StateRecord(key, pack(value, version)))
    found = shard.offsets.get("g", "t", 3)
    assert found is not None
    assert (found.offset, found.metadata, found.leader_epoch, found.expire_timestamp) == (5, "m", -1, -1)
    group = GroupMetadataValue(protocol_type="consumer", generation=4, protocol=None, leader=None)
    shard.replay(StateRecord(bytes.fromhex("0002 0001 67"), pack(group, version)))
    assert shard.groups["g"].persisted


def test_records_about_other_things_are_passed_over() -> None:
    shard = GroupShard(config=GroupsConfig(), new_id=str, topics={})
    shard.replay(StateRecord(bytes.fromhex("7000 01"), b"anything"))
    assert shard.groups == {}


def test_a_key_that_is_none_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="only 1 bytes"):
        version_of(b"\x00")


# -- subscriptions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_of_all_versions_are_read(version: int) -> None:
    written = pack(ConsumerProtocolSubscription(topics=["a", "b"], user_data=b"x"), version)
    assert read_subscription(written).topics == read_topics(written) == ["a", "b"]


def test_a_subscription_from_the_future_is_read_as_far_as_it_is_known() -> None:
    written = pack(ConsumerProtocolSubscription(topics=["a"]), 3)
    assert read_subscription(b"\x00\x09" + written[2:] + b"more").topics == ["a"]


def test_what_a_group_subscribes_to() -> None:
    runtime = Runtime()
    runtime.enter(protocols=[("range", subscription("orders", "payments"))])
    assert runtime.group().is_subscribed("payments")
    assert not runtime.group().is_subscribed("other")
    assert subscribed_topics([], "range") == frozenset()
    with pytest.raises(ProtocolError):
        read_subscription(b"\xff\xff")


# -- settings -----------------------------------------------------------------------------------------


def test_the_settings_of_a_broker_reach_its_groups() -> None:
    assert broker_config().groups == GroupsConfig()
    groups = broker_config({"offsets.retention.minutes": "2", "group.max.size": "9"}).groups
    assert (groups.offsets_retention_ms, groups.max_size) == (120_000, 9)
    with pytest.raises(ConfigError, match="at least one"):
        broker_config({"group.consumer.assignors": ""})


# -- size ---------------------------------------------------------------------------------------------


def test_a_shard_takes_ten_thousand_groups_and_forgets_them_again() -> None:
    shard = GroupShard(config=GroupsConfig(), new_id=str, topics={})
    value = OffsetCommitValue(offset=5, metadata="", commit_timestamp=0)
    for number in range(10_000):
        shard.replay(commit_record(f"g{number}", "t", 0, value))
    now_ms = GroupsConfig().offsets_retention_ms
    step = shard.loaded(times.at(now_ms))
    assert len(shard.groups) == 10_000
    ticks = 0
    while shard.groups:
        assert step.deadline_ms is not None
        step = shard.tick(times.at(step.deadline_ms))
        assert len(step.records) <= 100
        for record in step.records:
            shard.replay(record)
        ticks += 1
    assert ticks == 100
