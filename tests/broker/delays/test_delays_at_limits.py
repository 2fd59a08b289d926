"""Delays where something is at its limit, or is not there: the setting, the index, the key, the value."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.storage.delays.files import KEPT_NAME
from support.brokers.broker_process import BrokerProcess
from support.brokers.local_broker import local_broker
from support.clients.config_calls import increment
from support.clients.delaying import (
    Sent,
    after,
    at,
    batch_of,
    describe,
    eventually,
    eventually_values,
    named,
    now_ms,
    pending,
    send,
    values,
)
from support.clients.wire_client import EARLIEST, WireClient, append, create, offset_at

TOPIC, SET, DELETE = 2, 0, 1
OFTEN = {"log.retention.check.interval.ms": "50"}
SMALL = {"segment_bytes": "2000", "file_delete_delay_ms": "0", "retention_bytes": "4000"}


def take_setting_away(client: WireClient) -> None:
    increment(client, TOPIC, "t", ("forebay.delay.enable", DELETE, None))


@pytest.mark.parametrize(
    "lost", [["delays.sqlite*"], ["delays.sqlite*", KEPT_NAME, "*index", ".txn_indexed"]]
)
def test_what_waits_is_delivered_though_the_setting_and_the_index_are_gone(
    tmp_path: Path, lost: list[str]
) -> None:
    with local_broker(tmp_path, OFTEN) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, **SMALL, forebay_delay_enable="true")
        send(client, "t", b"late", after("1h"))
        send(client, "t", b"soon", at(now_ms() + 1_000))
        assert pending(client, "t") == 2
        take_setting_away(client)
    for pattern in lost:
        for path in tmp_path.glob(f"t-0/{pattern}"):
            path.unlink()
    with local_broker(tmp_path, OFTEN) as broker, WireClient(broker.bootstrap) as client:
        eventually(lambda: b"soon" in values(client, "t"), "it was not delivered")
        for _ in range(30):
            send(client, "t", b"x" * 500)
        eventually(lambda: offset_at(client, "t", EARLIEST) > 4, "retention deletes nothing")
        eventually(lambda: describe(client, "t").error_code == 0, "the index is not ready")
        assert pending(client, "t") == 1, "retention has deleted what waits"


def test_a_message_that_waits_can_be_replaced_when_as_many_wait_as_may(
    broker: BrokerProcess, topic: str
) -> None:
    with WireClient(broker.bootstrap) as client:
        create(client, topic, 1, forebay_delay_enable="true", forebay_delay_pending_max="3")
        for key in ("a", "b"):
            send(client, topic, b"first", after("1h", schedule_key=key))
        send(client, topic, b"unnamed", after("1h"))
        assert pending(client, topic) == 3
        # Also several at once, and again before the index has the last ones.
        for value in (b"second", b"third", b"last"):
            both: list[Sent] = [(value, after("1h", schedule_key=key)) for key in ("a", "b", "a")]
            answer = append(client, topic, batch_of(*both), acks=-1)
            eventually_written(client, topic, answer.error_code, both)
        assert pending(client, topic) == 3
        found = sorted(
            (each.schedule_key or b"", each.value) for each in describe(client, topic, values=True).messages
        )
        assert found == [(b"", b"unnamed"), (b"a", b"last"), (b"b", b"last")]
        refused = append(client, topic, batch_of((b"more", after("1h", schedule_key="c"))), acks=-1)
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        refused = append(client, topic, batch_of((b"more", after("1h"))), acks=-1)
        assert refused.error_code == ErrorCode.POLICY_VIOLATION


def eventually_written(client: WireClient, topic: str, code: int, messages: list[Sent]) -> None:
    """As a client does that is told to try again: the index may be behind."""

    def is_written() -> bool:
        nonlocal code
        if code == ErrorCode.REQUEST_TIMED_OUT:
            code = append(client, topic, batch_of(*messages), acks=-1).error_code
        return code != ErrorCode.REQUEST_TIMED_OUT

    eventually(is_written, "it is not written")
    assert code == ErrorCode.NONE


def test_a_compacted_topic_takes_a_cancellation_by_id_without_a_key(
    broker: BrokerProcess, topic: str
) -> None:
    with WireClient(broker.bootstrap) as client:
        create(client, topic, 1, forebay_delay_enable="true", cleanup_policy="compact")
        id_ = send(client, topic, b"value", after("1h"))
        assert pending(client, topic) == 1
        cancels = batch_of((None, named(cancel=f"0-{id_}")), key=None)
        assert append(client, topic, cancels, acks=-1).error_code == ErrorCode.NONE
        eventually(lambda: pending(client, topic) == 0, "it still waits")
        for headers in ([], after("1h"), [("x", b"forebay-cancel")]):
            answer = append(client, topic, batch_of((b"v", headers), key=None), acks=-1)
            assert answer.error_code == ErrorCode.INVALID_RECORD, "everything else needs its key"


def test_an_empty_value_is_a_value(broker: BrokerProcess, topic: str) -> None:
    """Only a message without a value cancels and is not delivered itself."""
    with WireClient(broker.bootstrap) as client:
        create(client, topic, 1, forebay_delay_enable="true")
        for _ in range(2):
            send(client, topic, b"waits", after("1h", schedule_key="k"))
            send(client, topic, b"", named(schedule_key="k"))
            eventually(lambda: pending(client, topic) == 0, "it still waits")
        send(client, topic, b"waits", after("1h", schedule_key="k"))
        send(client, topic, None, named(schedule_key="k"))
        eventually(lambda: pending(client, topic) == 0, "it still waits")
        eventually_values(client, topic, [b"", b""])
