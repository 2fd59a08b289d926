"""Share groups on a compacted topic: what compaction has taken away is passed, also while it is held."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.broker.node import Node
from forebay.errors import ErrorCode
from forebay.wire.batch import build_batch
from forebay.wire.compression import Codec
from forebay.wire.records import Record
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.share_member import ACCEPT, GAP, RELEASE, ShareMember, ack, configure, join, parts
from support.clients.wire_client import WireClient, append, create, values_of

SECONDS = 120.0
EAGER = {"log.cleaner.backoff.ms": "20", "log.cleaner.min.cleanable.ratio": "0"}
TOPIC = "table"


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path, EAGER) as running:
        yield running


@pytest.fixture
def client(local: LocalBroker) -> Iterator[WireClient]:
    with WireClient(local.bootstrap) as client:
        yield client


@pytest.fixture
def topic_id(client: WireClient) -> bytes:
    made = create(client, TOPIC, 1, cleanup_policy="compact", file_delete_delay_ms="0", segment_bytes="60000")
    configure(client, TOPIC)
    join(client, TOPIC, TOPIC)
    return made


def put(client: WireClient, *keys: bytes, codec: int = Codec.NONE) -> None:
    now = int(time.time() * 1000)
    made = [Record(n, now, key, b"x") for n, key in enumerate(keys)]
    assert append(client, TOPIC, bytes(build_batch(made, codec=codec))).error_code == ErrorCode.NONE


def compact(local: LocalBroker) -> None:
    def roll(node: Node) -> int:
        log = node.partitions.get(TOPIC, 0).log
        log.roll()
        return log.end_offset

    end = local.on_loop(roll)
    give_up = time.monotonic() + SECONDS
    while local.on_loop(lambda node: node.data.first_dirty_offset(TOPIC, 0)) < end:
        assert time.monotonic() < give_up, "it was not compacted"
        time.sleep(0.02)


def take_all(member: ShareMember, end: int) -> list[int]:
    """Accept every message and say of every other offset that there is none, as clients do."""
    seen: list[int] = []
    while not seen or seen[-1] < end - 1:
        for data in parts(member.fetch()).values():
            here = {offset for offset, _ in values_of(data.records)}
            for each in data.acquired_records:
                offsets = range(each.first_offset, each.last_offset + 1)
                types = [ACCEPT if offset in here else GAP for offset in offsets]
                code = member.acknowledge(ack(each.first_offset, each.last_offset, *types))
                assert code == ErrorCode.NONE
                seen += [offset for offset in offsets if offset in here]
    return seen


def test_gaps_between_and_inside_of_batches_are_passed(
    local: LocalBroker, client: WireClient, topic_id: bytes
) -> None:
    for _ in range(20):
        put(client, b"a", b"b", b"c")
    put(client, b"b", b"only", b"c", b"z")
    for _ in range(5):
        put(client, b"a")
    put(client, b"c", b"z")
    compact(local)
    put(client, b"end")
    assert take_all(ShareMember(client, TOPIC, topic_id), 72) == [60, 61, 68, 69, 70, 71]


def test_messages_that_go_while_they_are_held_do_not_come_again(
    local: LocalBroker, client: WireClient, topic_id: bytes
) -> None:
    put(client, b"a", b"b")
    put(client, b"a", b"c")
    member = ShareMember(client, TOPIC, topic_id)
    assert [each.offset for each in member.take()] == [0, 1, 2, 3]
    put(client, b"a", b"b", b"c")
    compact(local)
    put(client, b"end")
    assert member.acknowledge(ack(0, 2, RELEASE), ack(3)) == ErrorCode.NONE
    assert take_all(member, 8) == [4, 5, 6, 7]


def widened(local: LocalBroker) -> tuple[int, int]:
    """The first and last offset of the first batch."""
    scan = local.on_loop(lambda node: [each for _, each in node.partitions.get(TOPIC, 0).log.files.scan(0)])
    return scan[0].base_offset, scan[0].last_offset


def acquired(member: ShareMember) -> list[tuple[int, int]]:
    ((_, data),) = parts(member.fetch()).items()
    return [(each.first_offset, each.last_offset) for each in data.acquired_records]


@pytest.mark.parametrize("added", [1, 5000])
def test_a_member_holds_nothing_of_the_offsets_that_compaction_has_added_to_a_batch(
    local: LocalBroker, client: WireClient, topic_id: bytes, added: int
) -> None:
    """The last batch with messages of a segment reaches to its end, however far that is."""
    put(client, b"first", b"a")
    put(client, *[b"b"] * added)
    local.on_loop(lambda node: node.partitions.get(TOPIC, 0).log.roll())
    put(client, *[b"b"] * 6000)
    compact(local)
    assert widened(local) == (0, added + 1)
    member = ShareMember(client, TOPIC, topic_id)
    assert acquired(member) == [(0, 1)]
    assert member.acknowledge(ack(0, 1)) == ErrorCode.NONE
    assert added + 6001 in acquired(member)[-1]


def test_a_group_goes_on_from_within_the_offsets_that_compaction_has_added_to_a_batch(
    local: LocalBroker, client: WireClient, topic_id: bytes
) -> None:
    """There are more than it may hold at once, many times over."""
    put(client, b"first", b"a")
    put(client, *[b"b"] * 1000)
    put(client, *[b"b"] * 50_000, codec=Codec.ZSTD)
    member = ShareMember(client, TOPIC, topic_id)
    assert acquired(member)[-1][-1] == 1001
    assert member.acknowledge(ack(0, 1001)) == ErrorCode.NONE
    local.on_loop(lambda node: node.partitions.get(TOPIC, 0).log.roll())
    put(client, *[b"b"] * 6000)
    compact(local)
    assert widened(local) == (0, 51_001)
    assert acquired(member) == [(51_002, 57_001)]
