"""Names that are too long to be stored harm nobody: neither the group that is meant nor its neighbours."""

from __future__ import annotations

import pytest

from forebay.errors import ErrorCode
from forebay.wire.codec.layout import STRING_BYTES_MAX
from forebay.wire.fields import Request
from forebay.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from forebay.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from forebay.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from support.brokers.broker_process import BrokerProcess
from support.clients.wire_client import WireClient, batch, only_partition, produce

TOO_LONG = "x" * (STRING_BYTES_MAX + 1)
LONGEST = "x" * STRING_BYTES_MAX


def join(group: str, protocol: str = "range", member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=protocol, metadata=b"")],
    )


def enters_and_syncs(client: WireClient, group: str, protocol: str) -> bool:
    """Whether a new member comes as far as its first assignment."""
    asked = client.call(join(group, protocol), 9)
    joined = client.call(join(group, protocol, asked.member_id), 9)
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name=protocol,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
    )
    synced = client.call(sync, 5)
    return (joined.error_code, synced.error_code, synced.assignment) == (0, 0, b"all")


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (join("named", TOO_LONG), 9),
        (join(TOO_LONG), 9),
        (ConsumerGroupHeartbeatRequest(group_id="named", member_id=TOO_LONG), 1),
        (InitProducerIdRequest(transactional_id=TOO_LONG, transaction_timeout_ms=1000), 5),
    ],
    ids=["protocol", "group", "member", "transactional id"],
)
def test_a_name_that_no_record_can_hold_is_refused(
    broker: BrokerProcess, request_: Request, version: int
) -> None:
    with WireClient(broker.bootstrap) as client:
        client.post(request_, version)
        assert client.is_closed()


@pytest.mark.parametrize("version", [8, 9])
def test_a_long_name_that_is_longer_still_in_words_is_answered(broker: BrokerProcess, version: int) -> None:
    """The message shows what cannot be printed as several characters each."""
    with WireClient(broker.bootstrap) as client:
        answer = only_partition(client.call(produce("\x01" * STRING_BYTES_MAX, batch(b"x")), version))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "there is no partition 0 of topic" in answer.error_message


def test_a_group_whose_names_are_as_long_as_may_be_works(fresh_broker: BrokerProcess) -> None:
    with WireClient(fresh_broker.bootstrap) as client:
        found = client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        assert found.coordinators[0].error_code == ErrorCode.NONE
        client.post(join("g", TOO_LONG), 9)
        assert client.is_closed()
    with WireClient(fresh_broker.bootstrap) as client:
        assert enters_and_syncs(client, "g", "range"), "nothing is left of what was refused"
        assert enters_and_syncs(client, LONGEST, LONGEST)
