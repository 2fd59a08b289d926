"""Batches that come damaged from a broker that does not look: exactly their offsets are unreadable.

Forebay refuses to send what does not match its checksum. Others send it, and anything may happen on the way.
"""

from __future__ import annotations

from typing import Any

import pytest

from forebay.spark.source.decode import UNREADABLE, UnreadableBatch
from forebay.spark.source.record_batches import next_base_offset, select
from forebay.wire.batch import CONTROL, HEADER, build_batch, read_header, split
from forebay.wire.messages.fetch import FetchRequest, FetchResponse
from forebay.wire.records import Record
from support.brokers.broker_process import BrokerProcess
from support.clients.wire_client import WireClient, create
from support.spark.odd_answers import answered
from support.spark.reading import add, batch_reader, rows

BATCHES, COUNT = 12, 10
LIES: dict[str, dict[str, int]] = {
    "far": {"last_offset_delta": 5000},
    "near": {"last_offset_delta": 2},
    "before": {"last_offset_delta": -3},
    "many": {"record_count": 5000},
    "none": {"record_count": 0},
    "agreed": {"record_count": 1000, "last_offset_delta": 999},
    "marker": {"attributes": CONTROL},
    "records": {"crc": 1},
}
FIRST, MIDDLE, LAST_OF_SEGMENT, LAST = 0, 4, 8, BATCHES - 1
"""The first of two segments has nine batches."""


@pytest.fixture(scope="module")
def filled(broker: BrokerProcess) -> str:
    """A topic of two segments: an answer ends where the first one ends."""
    topic = "corrupt-batches"
    with WireClient(broker.bootstrap) as client:
        create(client, topic, 1, segment_bytes="2000")
        for first in range(0, BATCHES * COUNT, COUNT):
            add(client, topic, 0, COUNT, first)
    sizes = [len(list(split(file.read_bytes()))) for file in sorted(broker.data.glob(f"**/{topic}-0/*.log"))]
    assert sizes == [9, 3]
    return topic


def damaged(data: bytes | memoryview, number: int, lies: dict[str, int]) -> memoryview:
    """The batches, of which one has other fields in its header."""
    changed = bytearray(data)
    for position, header in split(bytes(data)):
        if header.base_offset == number * COUNT:
            HEADER.pack_into(changed, position, *header._replace(**lies))
    return memoryview(changed)


def read(
    broker: BrokerProcess, topic: str, number: int, lies: dict[str, int], **options: Any
) -> list[dict[str, Any]]:
    def damage(answer: FetchResponse) -> FetchResponse:
        (found,) = answer.responses[0].partitions
        if isinstance(found.records, memoryview):
            found.records = damaged(found.records, number, lies)
        return answer

    with answered(FetchRequest, damage):
        return rows(batch_reader(broker.bootstrap, subscribe=topic, **options))


@pytest.mark.parametrize("bytes_max", [1, 700, 1 << 20])
@pytest.mark.parametrize("number", [FIRST, MIDDLE, LAST_OF_SEGMENT, LAST])
@pytest.mark.parametrize("lie", LIES)
def test_whatever_a_damaged_header_claims_only_its_batch_is_unreadable(
    broker: BrokerProcess, filled: str, lie: str, number: int, bytes_max: int
) -> None:
    options: dict[str, Any] = {"kafka_max_partition_fetch_bytes": bytes_max}
    found = read(broker, filled, number, LIES[lie], **options, unreadableRecords="mark")
    assert [row["offset"] for row in found] == list(range(BATCHES * COUNT))
    marked = [row["offset"] for row in found if row["timestampType"] == UNREADABLE]
    assert marked == list(range(number * COUNT, (number + 1) * COUNT))
    assert all((row["value"] is None) == (row["offset"] in marked) for row in found)
    with pytest.raises(UnreadableBatch, match=f"offsets {number * COUNT} to {number * COUNT + 9} of"):
        read(broker, filled, number, LIES[lie], **options)


@pytest.mark.parametrize(("low", "high"), [(85, 87), (83, 99), (89, 90), (70, 81), (90, 99)])
@pytest.mark.parametrize("lie", ["far", "near", "agreed"])
def test_of_a_damaged_batch_only_wanted_offsets_are_rows(
    broker: BrokerProcess, filled: str, lie: str, low: int, high: int
) -> None:
    narrow: dict[str, Any] = {"minOffset": low, "maxOffset": high, "unreadableRecords": "mark"}
    found = read(broker, filled, LAST_OF_SEGMENT, LIES[lie], **narrow)
    assert [row["offset"] for row in found] == list(range(low, high + 1))
    assert [row["value"] is None for row in found] == [80 <= row["offset"] < 90 for row in found]


# -- the decisions -----------------------------------------------------------------------------------------


def log_with_gap() -> bytes:
    """Offsets 0 to 9, and 40 to 49: compaction has removed what was between."""
    records = [Record(n, 0, None, b"v") for n in range(COUNT)]
    behind = [Record(40 + n, 0, None, b"v") for n in range(COUNT)]
    return bytes(build_batch(records, base_offset=0)) + bytes(build_batch(behind, base_offset=40))


def test_a_gap_behind_a_damaged_batch_is_not_counted_where_its_header_agrees_with_itself() -> None:
    def last(lies: dict[str, int]) -> int:
        piece = select(damaged(log_with_gap(), 0, lies), start=0, end=50, keep_corrupt=True)
        assert (len(piece.batches), piece.next_offset) == (2, 50)
        return piece.batches[0].last_offset

    assert last(LIES["records"]) == 9
    assert last(LIES["far"]) == last(LIES["near"]) == last(LIES["agreed"]) == 39


def test_the_next_batch_says_where_a_damaged_one_ends_even_if_only_its_beginning_came() -> None:
    data = damaged(log_with_gap(), 0, LIES["far"])
    size = read_header(data).size
    cut = select(data[: size + 17], start=0, end=50, keep_corrupt=True)
    assert [batch.last_offset for batch in cut.batches] == [39]
    assert not cut.is_end_unknown and cut.next_offset == 40
    alone = select(data[: size + 16], start=0, end=50, keep_corrupt=True)
    assert alone.is_end_unknown and (alone.batches, alone.next_offset) == ([], 0)
    known = select(data[:size], start=0, end=50, keep_corrupt=True, behind=12)
    assert [batch.last_offset for batch in known.batches] == [11]


@pytest.mark.parametrize("is_believed", [True, False])
@pytest.mark.parametrize("bases", [[7], [7, 8], [7, 30, 31], [7, 99], [7, *range(20, 90, 3)]])
def test_the_batch_after_a_damaged_one_is_found_by_few_questions(bases: list[int], is_believed: bool) -> None:
    """Some brokers send the damaged batch for the offsets between, and some the next one."""
    asked: list[int] = []

    def base_at(offset: int) -> int | None:
        asked.append(offset)
        if offset < (bases[1] if is_believed and len(bases) > 1 else 8):
            return bases[0]
        below = [base for base in bases[1:] if base <= offset]
        return below[-1] if below else next((base for base in bases[1:] if base > offset), None)

    expected = bases[1] if len(bases) > 1 else 100
    assert next_base_offset(7, 7, 100, base_at) == expected
    assert len(asked) <= 7
