"""How long a broker keeps what it knows of share groups, and what happens while its disk takes long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from forebay.broker.coordinators.share_coordinator import ShareStates
from forebay.broker.node import Node
from forebay.broker.shares.live_share import LiveShare
from forebay.broker.shares.persistence.state_store import ShareStateStore
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.core.shares.partition.state_transitions import ACQUIRED
from forebay.core.shares.sessions import SessionPartition
from forebay.errors import ErrorCode
from forebay.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from forebay.wire.messages.delete_groups import DeleteGroupsRequest
from forebay.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.share_member import (
    LAST,
    REJECT,
    RELEASE,
    ShareMember,
    ack,
    configure,
    held,
    join,
    parts,
    start_offset,
)
from support.clients.wire_client import WireClient, append, batch, create
from support.faults.held_disk import HeldDisk
from support.machines.share_coordinator import delete_request

SECONDS = 120.0
LAST_OFFSET_DELTA = 23
"""Where it is in a batch."""
PATIENT = {"share.coordinator.write.timeout.ms": "60000"}


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", PATIENT, make_disk=HeldDisk) as running:
        yield running


@pytest.fixture
def client(local: LocalBroker) -> Iterator[WireClient]:
    with WireClient(local.bootstrap) as client:
        yield client


@pytest.fixture
def other(local: LocalBroker) -> Iterator[WireClient]:
    with WireClient(local.bootstrap) as client:
        yield client


def made(client: WireClient, topic: str, **settings: str) -> tuple[bytes, str]:
    """A topic, and the member that the group with its name has."""
    topic_id = create(client, topic)
    configure(client, topic, **settings)
    return topic_id, join(client, topic, topic)


def leave(client: WireClient, group: str, member: str) -> None:
    request = ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=-1)
    assert client.call(request, 1).error_code == ErrorCode.NONE


def reset(client: WireClient, group: str, offset: int) -> None:
    """The group has the name of its topic."""
    partition = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
    topic = AlterShareGroupOffsetsRequestTopic(topic_name=group, partitions=[partition])
    answer = client.call(AlterShareGroupOffsetsRequest(group_id=group, topics=[topic]), 0)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0), answer


def shares(local: LocalBroker) -> int:
    """Share partitions that the broker has in memory."""
    return local.on_loop(lambda node: len(list(node.shares.shares)))


def wait_until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < give_up, "it did not come true"
        time.sleep(0.01)


@pytest.mark.parametrize("acks", [{0: [ack(0, 1)]}, {0: [ack(0)]}, {}])
def test_a_group_that_has_gone_leaves_nothing_in_memory(
    local: LocalBroker, client: WireClient, topic: str, acks: dict[int, list[object]]
) -> None:
    topic_id, _ = made(client, topic)
    append(client, topic, batch(b"a", b"b"))
    member = ShareMember(client, topic, topic_id)
    member.take()
    assert shares(local) == 1
    member.fetch(epoch=LAST, acks=acks)
    wait_until(lambda: shares(local) == 0)


def test_a_group_that_has_gone_while_its_state_was_loaded_leaves_nothing_in_memory(
    local: LocalBroker, client: WireClient, topic: str
) -> None:
    topic_id, _ = made(client, topic)
    with WireClient(local.bootstrap) as short:
        ShareMember(short, topic, topic_id).post_fetch()
    wait_until(lambda: local.on_loop(lambda node: len(node.shares.sessions)) == 0)
    wait_until(lambda: shares(local) == 0)


def test_a_broker_that_stops_loads_no_share_partition_for_which_it_would_have_to_wait(
    local: LocalBroker, client: WireClient, topic: str
) -> None:
    topic_id, _ = made(client, topic)
    append(client, topic, batch(b"a"))
    local.on_loop(lambda node: node.shares.shares.close())
    answer = ShareMember(client, topic, topic_id).fetch(wait_ms=0)
    assert parts(answer)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert shares(local) == 0


@pytest.mark.parametrize("backoff_ms", ["0", "60000"])
def test_a_group_whose_offsets_were_reset_begins_anew(
    local: LocalBroker, client: WireClient, topic: str, backoff_ms: str
) -> None:
    """Even if the broker still has to remember for how long a message must not be delivered."""
    topic_id, joined = made(client, topic, forebay_share_retry_backoff_ms=backoff_ms)
    append(client, topic, batch(b"a", b"b"))
    member = ShareMember(client, topic, topic_id)
    member.take()
    assert member.acknowledge(ack(0), ack(1, 1, RELEASE)) == ErrorCode.NONE
    member.close()
    leave(client, topic, joined)
    reset(client, topic, 0)
    again = ShareMember(client, topic, topic_id)
    got = held(again.fetch()) or held(again.fetch())  # the first may only find out that all is different
    assert [(each.offset, each.deliveries) for each in got] == [(0, 1), (1, 1)]
    assert again.acknowledge(ack(0, 1)) == ErrorCode.NONE


def delete(client: WireClient, group: str) -> None:
    (result,) = client.call(DeleteGroupsRequest(groups_names=[group]), 2).results
    assert result.error_code == ErrorCode.NONE


def test_a_group_that_is_made_again_does_not_go_on_where_the_old_one_was(
    local: LocalBroker, client: WireClient, topic: str
) -> None:
    """Even if the broker still has to remember how long to keep a message from the old one."""
    topic_id, joined = made(client, topic, forebay_share_retry_backoff_ms="60000")
    append(client, topic, batch(b"a", b"b"))
    member = ShareMember(client, topic, topic_id)
    member.take()
    assert member.acknowledge(ack(0), ack(1, 1, RELEASE)) == ErrorCode.NONE
    member.close()
    assert shares(local) == 1
    leave(client, topic, joined)
    delete(client, topic)
    join(client, topic, topic)
    again = ShareMember(client, topic, topic_id)
    got = held(again.fetch()) or held(again.fetch())  # the first may only find out that all is different
    assert [(each.offset, each.deliveries) for each in got] == [(0, 1), (1, 1)]
    assert again.acknowledge(ack(0, 1)) == ErrorCode.NONE


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_session_that_was_left_over_does_not_keep_the_next_members_waiting(
    local: LocalBroker, client: WireClient, other: WireClient, topic: str, is_deleted: bool
) -> None:
    """Its broker knows nothing that is left to deliver, and is not told that the group begins anew."""
    topic_id, joined = made(client, topic)
    append(client, topic, batch(b"a", b"b"))
    left_over = ShareMember(client, topic, topic_id)
    left_over.take()
    assert left_over.acknowledge(ack(0, 1)) == ErrorCode.NONE
    leave(other, topic, joined)
    if is_deleted:
        delete(other, topic)
    else:
        reset(other, topic, 0)
    join(other, topic, topic)
    newcomer = ShareMember(other, topic, topic_id)
    got = held(newcomer.fetch()) or held(newcomer.fetch())  # the first may only find out
    assert [(each.offset, each.deliveries) for each in got] == [(0, 1), (1, 1)]


def test_members_that_come_all_the_time_do_not_hold_up_the_others(
    client: WireClient, other: WireClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With each of them it is asked whether the group was reset. Here the next comes while that is asked."""
    topic_id, _ = made(client, topic)
    append(client, topic, batch(b"a"))
    ask = LiveShare.persist

    async def ask_again(self: LiveShare, *args: Any) -> None:
        self.confirmation.doubt()
        await ask(self, *args)
        self.confirmation.doubt()

    monkeypatch.setattr(LiveShare, "persist", ask_again)
    assert [each.value for each in ShareMember(client, topic, topic_id).take()] == [b"a"]
    append(client, topic, batch(b"b"))
    assert [each.value for each in ShareMember(other, topic, topic_id).take()] == [b"b"]


def test_a_state_that_was_lost_is_made_again(
    local: LocalBroker, client: WireClient, other: WireClient, topic: str
) -> None:
    """The group believes that there is one, so the leader has to tell it."""
    topic_id, _ = made(client, topic)
    append(client, topic, batch(b"a"))
    lost = client.call(delete_request(ShareKey(topic, topic_id, 0)), 0)
    assert lost.results[0].partitions[0].error_code == ErrorCode.NONE
    member = ShareMember(client, topic, topic_id)
    wait_until(lambda: any(each.acquired_records for each in parts(member.fetch(wait_ms=100)).values()))
    assert member.acknowledge(ack(0)) == ErrorCode.NONE


def test_a_pause_before_the_next_delivery_outlasts_the_members(
    local: LocalBroker, client: WireClient, topic: str
) -> None:
    topic_id, _ = made(client, topic, forebay_share_retry_backoff_ms="60000")
    append(client, topic, batch(b"a"))
    member = ShareMember(client, topic, topic_id)
    member.take()
    member.close()
    append(client, topic, batch(b"b"))
    next_one = ShareMember(client, topic, topic_id)
    assert [(each.offset, each.deliveries) for each in next_one.take()] == [(1, 1)]


def test_the_start_offset_follows_the_log_without_any_delivery(
    local: LocalBroker, client: WireClient, topic: str
) -> None:
    topic_id, _ = made(client, topic)
    append(client, topic, batch(b"a", b"b"))
    member = ShareMember(client, topic, topic_id)
    member.fetch(records=0)
    member.fetch(wait_ms=1)
    member.close()
    local.on_loop(lambda node: node.partitions.get(topic, 0).log.advance_start(2))
    again = ShareMember(client, topic, topic_id)
    again.fetch(wait_ms=200)
    wait_until(lambda: start_offset(client, topic) == 2)


# -- a share coordinator that takes long -------------------------------------------------------------------


def disk_of(local: LocalBroker) -> HeldDisk:
    disk = local.node.disk
    assert isinstance(disk, HeldDisk)
    return disk


@contextmanager
def impatient(local: LocalBroker) -> Iterator[None]:
    """Let nobody wait for the share coordinator for longer than a moment."""

    def change(write_timeout_ms: int) -> None:
        def put(node: Node) -> None:
            config = node.shares.settings.current
            quick = replace(config.share_coordinator, write_timeout_ms=write_timeout_ms)
            node.shares.settings.current = replace(config, share_coordinator=quick)

        local.on_loop(put)

    change(300)
    yield
    change(60_000)


def test_an_acknowledgement_that_takes_too_long_is_answered_with_an_error(
    local: LocalBroker, client: WireClient, topic: str
) -> None:
    topic_id, _ = made(client, topic)
    append(client, topic, batch(b"a", b"b"))
    member = ShareMember(client, topic, topic_id)
    member.take()
    with impatient(local), disk_of(local).held():
        assert member.acknowledge(ack(0)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert member.acknowledge(ack(0)) == ErrorCode.INVALID_RECORD_STATE  # the first may still count
    assert member.acknowledge(ack(1)) == ErrorCode.NONE
    assert start_offset(client, topic) == 2  # it did


def test_an_acknowledgement_with_a_fetch_that_takes_too_long_does_not_wait_for_messages(
    local: LocalBroker, client: WireClient, topic: str
) -> None:
    topic_id, _ = made(client, topic)
    append(client, topic, batch(b"a"))
    member = ShareMember(client, topic, topic_id)
    member.take()
    with impatient(local), disk_of(local).held():
        answer = member.fetch(acks={0: [ack(0)]}, wait_ms=3_600_000)
        assert parts(answer)[0].acknowledge_error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_acknowledgement_with_a_fetch_is_answered_though_no_message_comes(
    client: WireClient, topic: str
) -> None:
    topic_id, _ = made(client, topic)
    append(client, topic, batch(b"a"))
    member = ShareMember(client, topic, topic_id)
    member.take()
    answer = member.fetch(acks={0: [ack(0)]}, wait_ms=3_600_000)
    assert parts(answer)[0].acknowledge_error_code == ErrorCode.NONE
    assert start_offset(client, topic) == 1


def test_what_comes_while_an_acknowledgement_is_persisted_is_in_its_answer(
    local: LocalBroker, client: WireClient, other: WireClient, topic: str
) -> None:
    topic_id, _ = made(client, topic)
    append(client, topic, batch(b"a"))
    member = ShareMember(client, topic, topic_id)
    member.take()
    with disk_of(local).held():
        member.post_fetch(acks={0: [ack(0)]})
        assert client.is_silent()
        append(other, topic, batch(b"b"))
        wait_until(lambda: held_records(local) == 1)
        assert client.is_silent()  # what it acknowledges is not on the disk yet
    answer = client.read()
    assert parts(answer)[0].acknowledge_error_code == ErrorCode.NONE
    assert [(each.offset, each.deliveries) for each in held(answer)] == [(1, 1)]


def loaded(client: WireClient, topic: str, topic_id: bytes) -> ShareMember:
    """A member of a group that has done with all there is, and has nothing left to write."""
    member = ShareMember(client, topic, topic_id)
    append(client, topic, batch(b"before"))
    member.take()
    assert member.acknowledge(ack(0)) == ErrorCode.NONE
    return member


def test_a_redelivery_that_waits_too_long_for_the_coordinator_is_given_back_and_does_not_count(
    local: LocalBroker, client: WireClient, other: WireClient, topic: str
) -> None:
    topic_id, _ = made(client, topic)
    member = loaded(client, topic, topic_id)
    append(client, topic, batch(b"a"))
    with impatient(local), disk_of(local).held():
        member.take()
        assert member.acknowledge(ack(1, 1, RELEASE)) == ErrorCode.NONE
        for _ in range(10):
            assert held(member.fetch()) == []
    # One long poll is shorter than the lock.
    assert [each.deliveries for each in held(ShareMember(other, topic, topic_id).fetch())] == [2]


def test_a_redelivery_to_a_connection_that_the_member_has_left_is_given_back(
    local: LocalBroker, client: WireClient, other: WireClient, topic: str
) -> None:
    topic_id, _ = made(client, topic)
    member = loaded(client, topic, topic_id)
    append(client, topic, batch(b"a"))
    with disk_of(local).held(), WireClient(local.bootstrap) as lost:
        member.take()
        assert member.acknowledge(ack(1, 1, RELEASE)) == ErrorCode.NONE
        member.client = lost
        member.post_fetch()
        assert lost.is_silent()
        member.client = client
        client.post(member.acknowledge_request({}), 2)
        assert client.read().error_code == ErrorCode.NONE
    # One long poll is shorter than the lock.
    assert [each.deliveries for each in held(ShareMember(other, topic, topic_id).fetch())] == [2]


def held_records(local: LocalBroker) -> int:
    """Records that members hold."""

    def count(node: Node) -> int:
        machines = [share.machine for share in node.shares.shares if share.machine is not None]
        return sum(machine.window.totals[ACQUIRED] for machine in machines)

    return local.on_loop(count)


def test_an_answer_that_had_to_wait_has_only_what_is_still_held(local: LocalBroker, topic: str) -> None:
    """The acknowledgement in the request waits for the disk for longer than the lock of what it acquires."""
    with WireClient(local.bootstrap) as client, WireClient(local.bootstrap) as other:
        topic_id, _ = made(client, topic, share_record_lock_duration_ms="5000")
        append(client, topic, batch(b"a"))
        append(client, topic, batch(b"b"))
        member = ShareMember(client, topic, topic_id)
        member.take(records=1)
        with disk_of(local).held():
            member.post_fetch(acks={0: [ack(0)]}, records=1)
            assert client.is_silent()
            assert held_records(local) == 1
            wait_until(lambda: held_records(local) == 0)
            taker = ShareMember(other, topic, topic_id)
            taker.post_fetch()
            assert other.is_silent()
        assert held(client.read()) == []
        assert [(each.offset, each.deliveries) for each in held(other.read())] == [(1, 1)]


def test_an_answer_to_a_session_that_was_replaced_has_nothing(local: LocalBroker, topic: str) -> None:
    with (
        WireClient(local.bootstrap) as client,
        WireClient(local.bootstrap) as again,
        WireClient(local.bootstrap) as other,
    ):
        topic_id, _ = made(client, topic)
        member = loaded(client, topic, topic_id)
        append(client, topic, batch(b"a"))
        with disk_of(local).held():
            member.take()
            assert member.acknowledge(ack(1, 1, RELEASE)) == ErrorCode.NONE
            member.post_fetch()
            assert client.is_silent()
            ShareMember(again, topic, topic_id, member=member.member).fetch(wait_ms=1)
        assert held(client.read()) == []
        assert [each.deliveries for each in held(ShareMember(other, topic, topic_id).fetch())] == [2]


# -- mistakes of ours --------------------------------------------------------------------------------------


async def mistake(*_: object, **__: object) -> None:
    raise ValueError("nobody has thought of this")


def test_a_state_that_cannot_be_loaded_keeps_nobody_waiting(
    local: LocalBroker, client: WireClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id, _ = made(client, topic)
    append(client, topic, batch(b"a"))
    member = ShareMember(client, topic, topic_id)
    with monkeypatch.context() as patch:
        patch.setattr(ShareStateStore, "read", mistake)
        assert parts(member.fetch())[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [each.deliveries for each in member.take()] == [1]


def test_a_write_that_fails_keeps_nobody_waiting(
    local: LocalBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WireClient(local.bootstrap) as client:
        topic_id, _ = made(client, topic)
        append(client, topic, batch(b"a"))
        member = ShareMember(client, topic, topic_id)
        member.take()
        member.fetch(wait_ms=1)
        with monkeypatch.context() as patch:
            patch.setattr(ShareStates, "ask_coordinator", mistake)
            assert member.acknowledge(ack(0)) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert [each.offset for each in member.take()] == [0]
        assert member.acknowledge(ack(0)) == ErrorCode.NONE


# -- a leader that was elected again -----------------------------------------------------------------------


def test_a_share_partition_that_is_out_of_date_is_made_anew_once(
    local: LocalBroker, client: WireClient, other: WireClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fetches that waited for the old one look for the new one, too."""
    topic_id, _ = made(client, topic)
    members = [ShareMember(each, topic, topic_id) for each in (client, other)]
    for member in members:
        member.fetch(wait_ms=1)
        member.post_fetch()
    wait_until(lambda: local.on_loop(lambda node: len(next(iter(node.shares.shares)).waiters)) == 2)
    loads: list[LiveShare] = []
    load = LiveShare.load

    def counted(share: LiveShare) -> None:
        loads.append(share)
        load(share)

    monkeypatch.setattr(LiveShare, "load", counted)

    def look(node: Node) -> None:
        (share,) = node.shares.shares
        share.leader_epoch -= 1
        node.shares.shares.get(topic, SessionPartition(topic_id, 0))

    local.on_loop(look)
    answers = [held(member.client.read()) for member in members]
    assert answers == [[], []]
    assert local.on_loop(lambda node: list(node.shares.shares)) == loads
    append(client, topic, batch(b"a"))
    assert [each.offset for each in members[0].take()] == [0]


def test_a_damaged_batch_does_not_lead_beyond_the_log(
    local: LocalBroker, client: WireClient, topic: str
) -> None:
    topic_id, _ = made(client, topic)
    append(client, topic, batch(b"a", b"b"))
    (segment,) = Path(local.node.data.path, f"{topic}-0").glob("*.log")
    with segment.open("r+b") as file:
        file.seek(LAST_OFFSET_DELTA)
        file.write((2**31 - 1).to_bytes(4, "big"))
    member = ShareMember(client, topic, topic_id)
    wait_until(lambda: any(each.acquired_records for each in parts(member.fetch(wait_ms=1)).values()))
    assert member.acknowledge(ack(0, 1, REJECT)) == ErrorCode.NONE
    append(client, topic, batch(b"c"))
    assert [each.offset for each in held(member.fetch())] == [2]


def test_members_that_wait_for_the_same_message_get_it_one_after_the_other(
    local: LocalBroker, topic: str
) -> None:
    """Each end of a connection releases it, and wakes all others."""
    with WireClient(local.bootstrap) as client:
        topic_id, _ = made(client, topic, share_delivery_count_limit="10")
        append(client, topic, batch(b"a"))
        clients = [WireClient(local.bootstrap) for _ in range(8)]
        for each in clients:
            ShareMember(each, topic, topic_id, member=str(uuid4())).post_fetch()
        waiting, counts = dict.fromkeys(clients), []
        while waiting:
            count, lucky = _served(waiting)
            counts.append(count)
            del waiting[lucky]
            lucky.close()
        assert counts == list(range(1, 9))


def _served(waiting: dict[WireClient, None]) -> tuple[int, WireClient]:
    give_up = time.monotonic() + SECONDS
    while time.monotonic() < give_up:
        for each in waiting:
            if not each.is_silent():
                (data,) = parts(each.read()).values()
                (acquired,) = data.acquired_records
                return acquired.delivery_count, each
    raise AssertionError("nobody got the message")
