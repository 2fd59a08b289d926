"""What views may cost a broker: heavy ones are refused or take turns with others, and none keeps it from
stopping."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.wire.batch import build_batch, split
from forebay.wire.compression import Codec
from forebay.wire.records import Record
from support.brokers.broker_process import StartBroker
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.sasl_broker import log_in, sasl_broker
from support.clients.kafka_clients import CLIENTS
from support.clients.view_calls import documents, make_view, try_view
from support.clients.wire_client import (
    LATEST,
    WireClient,
    append,
    create,
    fetch,
    offset_at,
    only_partition,
    read,
    read_all,
    values_of,
)
from support.waiting import Patience

HEAVY = "regexp_like(value.a, 'x{1,900}y')"
"""About 1,800 steps for each byte of a text: within the default of forebay.view.pattern.size.max."""
TOO_HEAVY = "regexp_like(value.a, 'x{1,1000}y')"
NO_LIMITS = {
    "forebay.view.pattern.size.max": "100000",
    "forebay.view.record.max.steps": str(2**60),
    "forebay.view.record.max.bytes": str(2**30),
}


def texts(count: int, chars: int, **how: Codec) -> bytes:
    """A batch of documents that no pattern here matches, but the last."""
    values = [{"a": "x" * chars + ("y" if at == count - 1 else "")} for at in range(count)]
    records = [Record(at, 1_000 + at, b"k", json.dumps(value).encode()) for at, value in enumerate(values)]
    return bytes(build_batch(records, **how))


def end_of(data: bytes | memoryview | None) -> int:
    """Where the reader of an answer goes on."""
    return split(memoryview(data or b""))[-1][1].next_offset


@pytest.mark.parametrize("where", [TOO_HEAVY, "value.a LIKE '%x" + "_" * 900 + "'"])
def test_a_view_with_too_large_a_pattern_is_refused_and_told_why(
    start_broker: StartBroker, where: str
) -> None:
    with WireClient(start_broker().bootstrap) as client:
        create(client, "source")
        refused = try_view(client, "heavy", "source", where)
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert "2000 (forebay.view.pattern.size.max); repeat fewer times" in refused.error_message
        make_view(client, "light", "source", HEAVY)


def test_a_view_from_before_the_limit_is_read_as_far_as_its_texts_are_short(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(*(f"{key}={value}" for key, value in NO_LIMITS.items()))
    with WireClient(broker.bootstrap) as client:
        create(client, "source")
        make_view(client, "heavy", "source", TOO_HEAVY)
        for chars in (100, 50_000, 200):
            append(client, "source", texts(1, chars))
    broker.restart("forebay.view.cache.bytes=0")
    with WireClient(broker.bootstrap) as client:
        assert try_view(client, "another", "source", TOO_HEAVY).error_code == ErrorCode.INVALID_CONFIG
        assert [offset for offset, _ in read_all(client, "heavy")] == [0, 2], "text times pattern is too much"


def test_a_message_that_unpacks_to_a_huge_document_is_passed_over_and_counted(tmp_path: Path) -> None:
    huge = b'{"id":0,"a":[' + b"[]," * 5_000_000 + b"1]}"
    records = [Record(0, 1, b"k", b'{"id":0}'), Record(1, 1, b"k", huge), Record(2, 1, b"k", b'{"id":0}')]
    batch = bytes(build_batch(records, codec=Codec.ZSTD))
    assert len(batch) < 10_000
    with local_broker(tmp_path / "data") as broker, WireClient(broker.bootstrap) as client:
        create(client, "source")
        append(client, "source", batch)
        make_view(client, "shown", "source", "value.id = 0")
        assert [offset for offset, _ in read_all(client, "shown")] == [0, 2]
        assert broker.on_loop(lambda node: node.metrics.view_records_invalid) == 1
        make_view(client, "by-key", "source", "key = 'k'")
        assert len(read_all(client, "by-key")) == 3, "the document is not looked at"


# -- turns ---------------------------------------------------------------------------------------------------


def test_a_heavy_view_is_answered_after_a_few_messages_and_others_get_their_turn(tmp_path: Path) -> None:
    settings = {**NO_LIMITS, "forebay.view.cache.bytes": "0"}
    with local_broker(tmp_path / "data", settings) as broker, WireClient(broker.bootstrap) as client:
        create(client, "source")
        append(client, "source", texts(40, 20_000))
        create(client, "small")
        append(client, "small", documents(range(10)))
        make_view(client, "light", "small", "value.id >= 0")
        heavy = [WireClient(broker.bootstrap) for _ in range(4)]
        for number, each in enumerate(heavy):
            make_view(client, f"heavy-{number}", "source", HEAVY)
            each.post(fetch(f"heavy-{number}", max_wait_ms=60_000), 12)
        assert len(read_all(client, "light")) == 10
        for each in heavy:
            assert 0 < end_of(only_partition(each.read()).records) < 40
            each.close()


def keep_reading(broker: LocalBroker, view: str, user: str, ends: threading.Event) -> None:
    with WireClient(broker.bootstrap) as client:
        log_in(client, user=user)
        offset = 0
        while not ends.is_set():
            data = read(client, view, offset, max_wait_ms=60_000)
            offset = end_of(data.records) if data.records else 0


def test_the_heavy_views_of_one_user_do_not_hold_up_another_one(tmp_path: Path) -> None:
    """A user with a dozen readers gets no more turns than one with a single reader."""
    readers, reads = 12, 6
    with sasl_broker(tmp_path / "data", {"forebay.view.cache.bytes": "0"}) as broker:
        with WireClient(broker.bootstrap) as client:
            log_in(client, user="bob")
            create(client, "source")
            for _ in range(5):
                append(client, "source", texts(100, 3_000))
            create(client, "small")
            append(client, "small", documents(range(10)))
            make_view(client, "light", "small", "value.id >= 0")
            for number in range(readers):
                make_view(client, f"heavy-{number}", "source", HEAVY)
            ends = threading.Event()
            threads = [
                threading.Thread(target=keep_reading, args=(broker, f"heavy-{number}", "ada", ends))
                for number in range(readers)
            ]
            for thread in threads:
                thread.start()
            examined: Callable[[], int] = lambda: broker.on_loop(  # noqa: E731
                lambda node: node.metrics.view_records_examined
            )
            patience = Patience("all heavy views are read")
            while examined() < 2 * readers:
                patience.check(examined())
            before = examined()
            for _ in range(reads):
                assert len(values_of(read(client, "light", max_wait_ms=60_000).records)) == 10
            turns = examined() - before - 10 * reads
            ends.set()
            for thread in threads:
                thread.join()
        assert turns < readers * reads / 2, "each read had to wait for a turn of most other readers"


def test_what_takes_several_turns_is_shown_once_and_in_order(tmp_path: Path) -> None:
    """Batches that unpack to many messages are left in the middle. A real client goes on where it was."""
    batch = 20_000
    wanted = list(range(0, 2 * batch, 7))
    with local_broker(tmp_path / "data", {"forebay.view.turn.ms": "1"}) as broker:
        with WireClient(broker.bootstrap) as client:
            create(client, "source")
            for codec in (Codec.ZSTD, Codec.GZIP):
                append(client, "source", documents(range(batch), codec=codec))
            make_view(client, "sevenths", "source", "offset % 7 = 0")
            make_view(client, "copied", "source", "offset % 7 = 0", materialize="true")
            first = read(client, "sevenths")
            assert 0 < end_of(first.records) < batch, "a batch is examined in more than one turn"
            assert [offset for offset, _ in read_all(client, "sevenths")] == wanted
            patience = Patience("the materialized view is filled")
            while offset_at(client, "copied", LATEST) <= wanted[-1]:
                patience.check()
            assert [offset for offset, _ in read_all(client, "copied")] == wanted
        received = CLIENTS[0].consume(broker.bootstrap, "sevenths", len(wanted))
        assert [found.offset for found in received] == wanted


def test_the_answers_of_fetches_that_nobody_waits_for_are_not_worked_out(tmp_path: Path) -> None:
    settings = {**NO_LIMITS, "forebay.view.cache.bytes": "0"}
    with local_broker(tmp_path / "data", settings) as broker, WireClient(broker.bootstrap) as client:
        create(client, "source")
        append(client, "source", texts(20, 50_000))
        make_view(client, "heavy", "source", HEAVY)
        for _ in range(30):
            with WireClient(broker.bootstrap) as given_up:
                given_up.post(fetch("heavy", max_wait_ms=60_000), 12)
                assert given_up.is_silent()
        assert end_of(read(client, "heavy").records) > 0
        examined = broker.on_loop(lambda node: node.metrics.view_records_examined)
        assert examined < 30, "one message for each fetch, though all but one were given up"


# -- stopping ------------------------------------------------------------------------------------------------


def test_a_broker_stops_though_its_threads_are_busy_with_one_message(start_broker: StartBroker) -> None:
    """It would take them several minutes, more than the broker is given to stop."""
    broker = start_broker(*(f"{key}={value}" for key, value in NO_LIMITS.items()))
    with WireClient(broker.bootstrap) as client:
        create(client, "source")
        append(client, "source", texts(1, 32_000_000, codec=Codec.ZSTD))
        make_view(client, "heavy", "source", TOO_HEAVY)
        others = [WireClient(broker.bootstrap) for _ in range(3)]
        for other in others:
            other.post(fetch("heavy", max_wait_ms=60_000), 12)
        assert all(other.is_silent() for other in others)
        assert broker.stop() == 0
        for other in others:
            other.close()
    assert "left behind" in broker.log()
    broker.restart()
    with WireClient(broker.bootstrap) as client:
        assert len(read_all(client, "source")) == 1
