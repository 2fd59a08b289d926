"""Sending messages that wait for their time, and reading what was delivered."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from forebay.broker.node import Node
from forebay.errors import ErrorCode
from forebay.wire.batch import build_batch, records, split
from forebay.wire.messages.describe_delays import DescribeDelaysRequest, DescribeDelaysResponse
from forebay.wire.records import Header, Record
from forebay.wire.state.delay_notes import Waiting, build_note
from support.clients.wire_client import EARLIEST, LATEST, WireClient, append, offset_at, read

DEADLINE_SECONDS = 60.0
HOUR_MS = 3_600_000

Sent = tuple[bytes | None, Sequence[Header]]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def at(due_ms: int, **others: str) -> list[Header]:
    return [("forebay-deliver-at", str(due_ms).encode()), *named(**others)]


def after(delay: str, **others: str) -> list[Header]:
    return [("forebay-deliver-after", delay.encode()), *named(**others)]


def named(**headers: str) -> list[Header]:
    """`schedule_key="x"` is the header forebay-schedule-key."""
    return [(f"forebay-{name.replace('_', '-')}", value.encode()) for name, value in headers.items()]


def batch_of(*messages: Sent, key: bytes | None = b"key", **how: int) -> bytes:
    now = now_ms()
    made = [Record(number, now, key, value, headers) for number, (value, headers) in enumerate(messages)]
    return bytes(build_batch(made, **how))


def send(client: WireClient, topic: str, value: bytes | None, headers: Sequence[Header] = ()) -> int:
    """One message; its offset, which is its id."""
    answer = append(client, topic, batch_of((value, headers)), acks=-1)
    assert answer.error_code == 0, answer.error_message
    offset: int = answer.base_offset
    return offset


def append_note_alone(node: Node) -> None:
    """On the broker's loop: leave a note at the end of t-0 whose batch a crash has taken.

    The broker writes nothing after it, as it would if it lived on.
    """
    partition = node.partitions.get("t", 0)
    assert partition.delayed_messages is not None
    lost = Waiting(0, now_ms(), now_ms(), 0, None, b"lost")
    note = build_note([lost], bound=True, timestamp=now_ms(), relative=True)
    partition.delayed_messages.append_note(partition.log, note)
    partition.write()
    partition.closed = True


def delivered(client: WireClient, topic: str, *, isolation_level: int = 0) -> list[Record]:
    """All messages that consumers of the partition get: of transactions the committed ones, if so asked."""
    offset, end = offset_at(client, topic, EARLIEST), offset_at(client, topic, LATEST)
    found: list[Record] = []
    while offset < end:
        answer = read(client, topic, offset, isolation_level=isolation_level, partition_max_bytes=1 << 24)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # retention has deleted it meanwhile
            return delivered(client, topic, isolation_level=isolation_level)
        assert answer.error_code == 0, answer.error_code
        data = memoryview(answer.records or b"")
        batches = split(data)
        if not batches:
            break
        aborted = {(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()}
        for position, header in batches:
            offset = header.next_offset
            is_aborted = any(header.producer_id == pid and header.base_offset >= at for pid, at in aborted)
            if not header.is_control and header.record_count and not is_aborted:
                found += records(data[position : position + header.size])
    return found


def values(client: WireClient, topic: str, **how: int) -> list[bytes | None]:
    return [record.value for record in delivered(client, topic, **how)]


def eventually(condition: Callable[[], Any], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} in {seconds:.0f} s"
        time.sleep(0.02)


def eventually_values(client: WireClient, topic: str, expected: Sequence[bytes | None]) -> None:
    """Wait for these messages, in this order, and for no other."""
    eventually(lambda: len(values(client, topic)) >= len(expected), f"not {len(expected)} messages")
    assert values(client, topic) == list(expected)


def describe(client: WireClient, topic: str, partition: int = 0, **how: Any) -> DescribeDelaysResponse:
    answer = client.call(DescribeDelaysRequest(topic=topic, partition=partition, **how), 0)
    assert isinstance(answer, DescribeDelaysResponse)
    return answer


def pending(client: WireClient, topic: str) -> int:
    answer = describe(client, topic)
    assert answer.error_code == 0, answer.error_message
    return answer.pending
