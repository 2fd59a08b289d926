"""The brokers' own topics: clients may read them, not write them."""

from __future__ import annotations

import pytest

from forebay.errors import ErrorCode
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from support.brokers.broker_process import BrokerProcess
from support.clients.wire_client import WireClient, append, batch, read


@pytest.mark.parametrize(("key_type", "name"), [(0, "__consumer_offsets"), (1, "__transaction_state")])
def test_only_brokers_write_to_them(broker: BrokerProcess, key_type: int, name: str) -> None:
    with WireClient(broker.bootstrap) as client:
        client.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"]), 4)
        before = read(client, name).high_watermark
        # Again and again: a request like the one before takes a shorter way, which must not lead around it.
        for _ in range(4):
            assert append(client, name, batch(b"garbage")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        answer = read(client, name)
        assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, before)
