"""What views show of closed segments is kept, sent from there, and never shown when it is no longer true."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.broker.views import cache
from forebay.errors import ErrorCode
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.config_calls import increment
from support.clients.view_calls import counts_of, delete, document, documents, make_view
from support.clients.wire_client import WireClient, append, create, read, read_all, values_of
from support.waiting import Patience

TOPIC, SET = 2, 0
THIRD = "value.id % 3 = 0"
SEGMENT_BYTES = "4000"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def fill(client: WireClient, numbers: range = range(600)) -> None:
    """A topic of many small segments, with a few batches in each."""
    create(client, "source", segment_bytes=SEGMENT_BYTES)
    for first in range(numbers.start, numbers.stop, 10):
        append(client, "source", documents(range(first, first + 10)))


def cached_bytes(broker: LocalBroker) -> int:
    return broker.on_loop(lambda node: node.metrics.view_cached_bytes)


def cached_segments(broker: LocalBroker) -> int:
    return broker.on_loop(lambda node: len(node.filters.cache))


def test_what_was_read_once_is_sent_from_the_cache(broker: LocalBroker, client: WireClient) -> None:
    fill(client)
    make_view(client, "shown", "source", THIRD)
    expected = [(at, document(at)) for at in range(0, 600, 3)]
    assert read_all(client, "shown") == expected
    assert cached_bytes(broker) == 0
    assert cached_segments(broker) > 3
    assert read_all(client, "shown") == expected
    assert cached_bytes(broker) > 5_000


@pytest.mark.parametrize("max_bytes", [1, 700, 5_000, 1 << 20])
def test_a_reader_gets_on_from_any_offset_with_any_size(
    broker: LocalBroker, client: WireClient, max_bytes: int
) -> None:
    fill(client)
    make_view(client, "shown", "source", THIRD)
    read_all(client, "shown")
    for first in (0, 1, 99, 100, 101, 333, 599):
        offset, seen = first, []
        while offset < 600:
            answer = read(client, "shown", offset, partition_max_bytes=max_bytes)
            after = counts_of(answer.records)[-1][1] + 1
            assert after > offset, f"no way on from {offset}"
            seen += [at for at, _ in values_from(answer.records, offset)]
            offset = after
        assert seen == [at for at in range(600) if at % 3 == 0 and at >= first]
    assert cached_bytes(broker) > 0


def values_from(data: bytes, offset: int) -> list[tuple[int, bytes | None]]:
    return [(at, value) for at, value in values_of(data) if at >= offset]


def test_regions_without_a_match_are_cached_too(broker: LocalBroker, client: WireClient) -> None:
    fill(client)
    make_view(client, "shown", "source", "value.id = 599")
    for _ in range(2):
        assert read_all(client, "shown") == [(599, document(599))]
    assert cached_bytes(broker) > 0


def test_a_condition_that_changes_with_time_is_not_cached(broker: LocalBroker, client: WireClient) -> None:
    fill(client)
    make_view(client, "shown", "source", "timestamp < now()")
    for _ in range(2):
        assert len(read_all(client, "shown")) == 600
    assert cached_segments(broker) == 0


def test_fields_whose_names_sound_like_time_are_cached(broker: LocalBroker, client: WireClient) -> None:
    fill(client)
    make_view(client, "shown", "source", "value.known IS NULL OR value.current_timestamp = 'now()'")
    assert len(read_all(client, "shown")) == 600
    assert cached_segments(broker) > 3


def test_the_cache_has_a_bound(tmp_path: Path) -> None:
    bound = {"forebay.view.cache.bytes": "3000"}
    with local_broker(tmp_path / "data", bound) as broker, WireClient(broker.bootstrap) as client:
        fill(client)
        make_view(client, "shown", "source", THIRD)
        for _ in range(2):
            assert len(read_all(client, "shown")) == 200
        assert broker.on_loop(lambda node: node.filters.cache.size) <= 3_000


def test_the_cache_has_a_bound_for_its_files(
    broker: LocalBroker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "SEGMENTS_MAX", 3)
    fill(client)
    make_view(client, "shown", "source", "value.id < 0")
    for _ in range(2):
        assert read_all(client, "shown") == []
    assert 0 < cached_segments(broker) <= 3


def test_a_deleted_view_leaves_nothing_in_the_cache(broker: LocalBroker, client: WireClient) -> None:
    fill(client)
    make_view(client, "shown", "source", THIRD)
    read_all(client, "shown")
    delete(client, "shown")
    assert cached_segments(broker) == 0
    make_view(client, "shown", "source", "value.id % 2 = 0")
    for _ in range(2):
        assert [at for at, _ in read_all(client, "shown")] == list(range(0, 600, 2))


def test_compaction_takes_the_place_of_what_was_cached(tmp_path: Path) -> None:
    """Keys repeat: of each, only the last message stays."""
    eager = {"log.cleaner.backoff.ms": "20", "log.cleaner.min.cleanable.ratio": "0"}
    with local_broker(tmp_path / "data", eager) as broker, WireClient(broker.bootstrap) as client:
        create(client, "source", segment_bytes=SEGMENT_BYTES)
        for _ in range(60):
            append(client, "source", documents(range(10)))
        make_view(client, "shown", "source", THIRD)
        assert len(read_all(client, "shown")) == 240
        assert cached_segments(broker) > 3
        increment(client, TOPIC, "source", ("cleanup.policy", SET, "compact"))
        patience = Patience("the source is compacted")
        while (left := len(read_all(client, "source"))) > 200:
            patience.check(left)
            assert broker.on_loop(lambda node: node.metrics.background_failures) == 0
        for _ in range(2):
            source, shown = dict(read_all(client, "source")), dict(read_all(client, "shown"))
            # The log may have been compacted further in between, and what is gone then is in neither later.
            assert shown.items() <= source.items()
            assert [at for at in sorted(source) if at % 10 % 3 == 0][-4:] == sorted(shown)[-4:]


def test_a_restart_begins_with_an_empty_cache(tmp_path: Path) -> None:
    for _ in range(2):
        with local_broker(tmp_path / "data") as broker, WireClient(broker.bootstrap) as client:
            assert not list((tmp_path / "data").glob("view-cache/*"))
            if "source" not in broker.on_loop(lambda node: node.image.topics):
                fill(client)
                make_view(client, "shown", "source", THIRD)
            assert len(read_all(client, "shown")) == 200
            assert list((tmp_path / "data").glob("view-cache/*"))


def test_what_lies_before_a_damaged_batch_is_delivered_first(client: WireClient, tmp_path: Path) -> None:
    fill(client)
    make_view(client, "shown", "source", THIRD)
    damaged = sorted(tmp_path.glob("data/**/source-0/*.log"))[2]
    content = bytearray(damaged.read_bytes())
    content[80] ^= 1
    damaged.write_bytes(content)
    at = int(damaged.stem)
    shown, offset = list[int](), 0
    while offset < at:  # one fetch filters only so much
        answer = read(client, "shown", offset)
        assert answer.error_code == ErrorCode.NONE
        shown += [found for found, _ in values_from(answer.records, offset)]
        after = counts_of(answer.records)[-1][1] + 1
        assert after > offset, f"no way on from {offset}"
        offset = after
    assert shown == list(range(0, at, 3))
    assert read(client, "shown", at).error_code == ErrorCode.CORRUPT_MESSAGE


def test_a_large_segment_without_a_match_is_one_batch_with_a_record(
    broker: LocalBroker, client: WireClient
) -> None:
    """librdkafka takes an answer without any record for one whose message is too large."""
    create(client, "source", segment_bytes="900000")
    for first in range(0, 2000, 100):
        append(client, "source", documents(range(first, first + 100), region=b"x" * 1000))
    make_view(client, "shown", "source", "value.id < 0")
    assert read_all(client, "shown") == []
    assert cached_segments(broker) == 2
    (first_last_count,) = counts_of(read(client, "shown").records)
    assert (first_last_count[0], first_last_count[2]) == (0, 1)
    assert cached_bytes(broker) > 0
