"""Share groups on a disk with damage: what is intact is delivered, what is not is given up alone."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.broker.node import Node
from forebay.errors import ErrorCode
from forebay.storage.real_disk import RealDisk, RealFile
from forebay.wire.batch import HEADER_SIZE, split
from forebay.wire.batch import records as records_of
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.share_member import REJECT, ShareMember, ack, configure, held, join, parts, start_offset
from support.clients.wire_client import WireClient, append, batch, create, read
from support.waiting import Patience

TOPIC, DEAD = "damaged", "damaged.dead"
MESSAGES = 10
PAGE = 4096
LENGTH_AT, MAGIC_AT, ATTRIBUTES_AT, COUNT_AT = 8, 16, 21, 57


class BadFile(RealFile):
    __slots__ = ("_bad",)

    def __init__(self, disk: BadDisk, path: str) -> None:
        super().__init__(disk, path)
        self._bad = disk

    def cached(self, position: int, length: int) -> bool:
        return super().cached(position, length) and not self._bad_page(position, length)

    def pread(self, length: int, position: int) -> bytes:
        page = self._bad_page(position, length)
        if page is None:
            return super().pread(length, position)
        if page * PAGE <= position:
            raise OSError(errno.EIO, "the device cannot be read", self.path)
        return super().pread(page * PAGE - position, position)

    def _bad_page(self, position: int, length: int) -> int | None:
        if f"/{TOPIC}-0/" not in self.path or not self.path.endswith(".log"):
            return None
        touched = range(position // PAGE, (position + length - 1) // PAGE + 1)
        return min((page for page in self._bad.pages if page in touched), default=None)


class BadDisk(RealDisk):
    """Some pages of the topic cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: set[int] = set()

    def open(self, path: str, *, create: bool = False, absent: bool = False) -> BadFile:
        if create:
            super().open(path, create=True)
        return BadFile(self, path)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBroker]:
    limits = {"group.share.delivery.count.limit": "2"}
    with local_broker(tmp_path / "data", limits, make_disk=BadDisk) as running:
        yield running


@pytest.fixture
def client(local: LocalBroker) -> Iterator[WireClient]:
    with WireClient(local.bootstrap) as client:
        yield client


def filled(client: WireClient, size: int = 10, **settings: str) -> ShareMember:
    """A member of a group with dead letters, and ten messages in as many batches."""
    topic_id = create(client, TOPIC)
    configure(
        client,
        TOPIC,
        errors_deadletterqueue_topic_name=DEAD,
        errors_deadletterqueue_copy_record_enable="true",
        **settings,
    )
    join(client, TOPIC, TOPIC)
    for n in range(MESSAGES):
        append(client, TOPIC, batch(b"%d" % n * size))
    return ShareMember(client, TOPIC, topic_id)


def positions(local: LocalBroker) -> list[int]:
    (segment,) = Path(local.node.data.path, f"{TOPIC}-0").glob("*.log")
    return [position for position, _ in split(memoryview(segment.read_bytes()))]


def overwrite(local: LocalBroker, position: int, data: bytes) -> None:
    """The log believes that another process wrote it, as after a start."""
    (segment,) = Path(local.node.data.path, f"{TOPIC}-0").glob("*.log")
    with segment.open("r+b") as file:
        file.seek(position)
        file.write(data)

    def distrust(node: Node) -> None:
        (segment,) = node.partitions.get(TOPIC, 0).log._segments
        segment.trusted_from = segment.size

    local.on_loop(distrust)


def work(member: ShareMember) -> list[tuple[int, int]]:
    """Accept everything: offsets and delivery counts, until nothing is left for the group."""
    done: list[tuple[int, int]] = []
    patience = Patience("the group has done with everything")
    while start_offset(member.client, TOPIC) < MESSAGES:
        patience.check(done)
        answer = member.fetch(wait_ms=100)
        assert answer.error_code == ErrorCode.NONE
        if any(each.error_code for each in parts(answer).values()):
            continue
        for each in held(answer):
            done.append((each.offset, each.deliveries))
            assert member.acknowledge(ack(each.offset)) == ErrorCode.NONE
    return done


def letters(client: WireClient) -> list[dict[str, bytes | None]]:
    data = memoryview(read(client, DEAD).records or b"")
    found = [
        record.headers
        for position, header in split(data)
        for record in records_of(data[position : position + header.size])
    ]
    return [dict(each) for each in found]


@pytest.mark.parametrize(
    ("place", "data"),
    [
        (HEADER_SIZE + 2, b"\xff"),
        (COUNT_AT, bytes(4)),
        (ATTRIBUTES_AT + 1, b"\x20"),
        (MAGIC_AT, b"\x00"),
        (LENGTH_AT, b"\x00\x00\x01\x00"),
        (LENGTH_AT, b"\x7f\xff\xff\xff"),
    ],
    ids=["record", "count", "control", "magic", "length", "long"],
)
def test_a_damaged_batch_is_given_up_alone_with_its_letter(
    local: LocalBroker, client: WireClient, place: int, data: bytes
) -> None:
    member = filled(client)
    overwrite(local, positions(local)[4] + place, data)
    done = work(member)
    assert sorted(done) == [(offset, 1) for offset in range(MESSAGES) if offset != 4]
    (letter,) = letters(client)
    assert letter["__dlq.errors.offset"] == b"4"
    assert letter["__dlq.errors.delivery.count"] == b"0"
    assert letter["__dlq.errors.message"] == (
        b"Offset could not be read from the disk of the partition's leader."
        b" The record cannot be copied: its batch is damaged."
    )


def test_what_lies_on_an_unreadable_page_is_given_up_alone_with_its_letters(
    local: LocalBroker, client: WireClient
) -> None:
    member = filled(client, size=3000, forebay_share_unreadable_timeout_ms="1500")
    disk = local.node.disk
    assert isinstance(disk, BadDisk)
    starts = [*positions(local), 1 << 20]
    disk.pages.add(2)
    hit = [n for n in range(MESSAGES) if starts[n] < 3 * PAGE and starts[n + 1] > 2 * PAGE]
    assert 1 < len(hit) < 4
    done = work(member)
    assert sorted(done) == [(offset, 1) for offset in range(MESSAGES) if offset not in hit]
    assert [int(each["__dlq.errors.offset"] or b"") for each in letters(client)] == hit


def test_a_rejected_message_on_a_page_that_cannot_be_read_any_more_has_a_letter_without_it(
    local: LocalBroker, client: WireClient
) -> None:
    """It does not hold up the letters of its neighbours for ever."""
    member = filled(client, size=3000, forebay_share_unreadable_timeout_ms="1500")
    disk = local.node.disk
    assert isinstance(disk, BadDisk)
    found = member.take(records=MESSAGES)
    assert len(found) == MESSAGES
    starts = [*positions(local), 1 << 20]
    disk.pages.add(2)
    hit = [n for n in range(MESSAGES) if starts[n] < 3 * PAGE and starts[n + 1] > 2 * PAGE]
    assert member.acknowledge(ack(0, MESSAGES - 1, REJECT)) == ErrorCode.NONE
    patience = Patience("all letters are there")
    while start_offset(client, TOPIC) < MESSAGES:
        patience.check(letters(client))
    assert [int(each["__dlq.errors.offset"] or b"") for each in letters(client)] == [*range(MESSAGES)]
    without = [
        n for n, each in enumerate(letters(client)) if b"damaged" in (each["__dlq.errors.message"] or b"")
    ]
    assert without == hit


def test_a_page_that_can_be_read_again_is_delivered(local: LocalBroker, client: WireClient) -> None:
    member = filled(client, size=3000)
    disk = local.node.disk
    assert isinstance(disk, BadDisk)
    disk.pages.add(2)
    codes: set[int] = set()
    patience = Patience("the member gets all the others")
    found: list[int] = []
    while ErrorCode.KAFKA_STORAGE_ERROR not in codes or MESSAGES - 1 not in found:
        patience.check((codes, found))
        for data in parts(member.fetch(wait_ms=100)).values():
            codes.add(data.error_code)
            for each in data.acquired_records:
                found += range(each.first_offset, each.last_offset + 1)
    assert len(found) < MESSAGES
    disk.pages.clear()
    while len(found) < MESSAGES:
        found += [each.offset for each in member.take()]
    assert sorted(found) == [*range(MESSAGES)]
