"""A broker whose wall clock is set: nothing that waits is cut short, and nothing waits any longer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from forebay.errors import ErrorCode
from forebay.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from forebay.wire.messages.describe_transactions import DescribeTransactionsRequest
from forebay.wire.messages.end_txn import EndTxnRequest
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.heartbeat import HeartbeatRequest
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from forebay.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from forebay.wire.messages.sync_group import SyncGroupRequest
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.settable_clock import SettableClock
from support.clients.wire_client import EARLIEST, WireClient, append, batch, create, offset_at

T = TypeVar("T")

HOUR_MS = 3_600_000
SECONDS_MAX = 60.0
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def broker(tmp_path: Path, clock: SettableClock) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", SETTINGS, clock=clock) as running:
        yield running


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as connected:
        create(connected, "t")
        for key_type in (0, 1):
            connected.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"]), 4)
        yield connected


def join(client: WireClient, group: str, *, session_ms: int) -> tuple[str, int]:
    """A new member, and its generation."""

    def request(member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=session_ms,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )

    asked = client.call(request(""), 5)
    joined = client.call(request(asked.member_id), 5)
    assert joined.error_code == ErrorCode.NONE
    sync = SyncGroupRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    assert client.call(sync, 3).error_code == ErrorCode.NONE
    return joined.member_id, joined.generation_id


def begin(client: WireClient, name: str, *, timeout_ms: int) -> tuple[int, int]:
    """An open transaction; its producer's id and epoch."""
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
    given = until(lambda: client.call(request, 4), lambda answer: answer.error_code == ErrorCode.NONE)
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=given.producer_id,
        v3_and_below_producer_epoch=given.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    (topic,) = client.call(add, 3).results_by_topic_v3_and_below
    assert topic.results_by_partition[0].partition_error_code == ErrorCode.NONE
    return given.producer_id, given.producer_epoch


def state_of(client: WireClient, name: str) -> str:
    (found,) = client.call(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states
    state: str = found.transaction_state
    return state


def until(look: Callable[[], T], is_enough: Callable[[T], bool]) -> T:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_enough(found := look()):
        assert time.monotonic() < deadline, f"it stays {found}"
        time.sleep(0.02)
    return found


def test_a_clock_set_forward_expires_no_member_and_aborts_nothing(
    clock: SettableClock, client: WireClient
) -> None:
    member_id, generation = join(client, "g", session_ms=60_000)
    producer_id, epoch = begin(client, "open", timeout_ms=60_000)
    clock.step_ms = HOUR_MS
    # Others come, so that the coordinators look at their timers, and again when those have had their turn.
    for name in ("one", "two"):
        join(client, name, session_ms=60_000)
        begin(client, name, timeout_ms=60_000)
    beat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
    assert client.call(beat, 3).error_code == ErrorCode.NONE
    assert state_of(client, "open") == "Ongoing"
    end = EndTxnRequest(
        transactional_id="open", producer_id=producer_id, producer_epoch=epoch, committed=True
    )
    assert client.call(end, 3).error_code == ErrorCode.NONE


def test_a_clock_set_back_holds_up_no_rebalance_and_no_timeout(
    clock: SettableClock, client: WireClient
) -> None:
    silent, generation = join(client, "g", session_ms=3_000)
    begin(client, "left", timeout_ms=1_000)
    clock.step_ms = -HOUR_MS
    newcomer, later = join(client, "g", session_ms=30_000)
    assert later > generation
    beat = HeartbeatRequest(group_id="g", generation_id=later, member_id=silent)
    assert client.call(beat, 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (
        client.call(HeartbeatRequest(group_id="g", generation_id=later, member_id=newcomer), 3).error_code
        == ErrorCode.NONE
    )
    until(lambda: state_of(client, "left"), lambda state: state == "CompleteAbort")


def test_a_clock_set_forward_for_a_while_deletes_no_messages(tmp_path: Path, clock: SettableClock) -> None:
    settings = {**SETTINGS, "log.retention.check.interval.ms": "20"}
    with (
        local_broker(tmp_path / "data", settings, clock=clock) as broker,
        WireClient(broker.bootstrap) as client,
    ):
        create(client, "kept", segment_bytes="1000")
        create(client, "large", segment_bytes="1000", retention_bytes="2000")
        for _ in range(5):
            append(client, "kept", batch(bytes(900)))
        clock.step_ms = 365 * 24 * HOUR_MS
        for _ in range(5):
            append(client, "large", batch(bytes(900)))
        # Retention has gone over all topics, the other one first, when it has done what the size asks for.
        until(lambda: offset_at(client, "large", EARLIEST), lambda offset: offset > 0)
        assert offset_at(client, "kept", EARLIEST) == 0
