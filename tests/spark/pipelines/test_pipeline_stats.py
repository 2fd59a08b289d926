"""What is in a topic or an archive, against a count by hand; and the report, which has to be a picture."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forebay.spark.pipelines import Brokers, PipelineError, Stats, archive_stats, topic_stats, write_report
from forebay.spark.pipelines.report import png, size_bins
from forebay.spark.pipelines.stats import PartitionStats, SizeStats, TimeStats, moment_of
from support.brokers.broker_process import BrokerProcess
from support.spark.archives import MINUTE_US, SIX_US, Message, make_archive
from support.spark.topics import NINE_MS, Sent, make, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark shares its cores with whatever else runs

PNG = b"\x89PNG\r\n\x1a\n"


def counted() -> list[Sent]:
    """Skewed to partition 0 and to one key; a third without a key; the last ten repeat the first."""
    messages = [
        Sent(
            value=None if n % 50 == 7 else b"x" * (n % 40) + b"%d" % n,
            key=(b"hot" if n % 2 else b"key-%d" % (n % 9)) if n % 3 else None,
            partition=0 if n % 5 else 1,
            timestamp_ms=NINE_MS + n * 1000 + (3_600_000 if n >= 150 else 0),
        )
        for n in range(200)
    ]
    return [*messages, *messages[:10]]


@pytest.fixture(scope="module")
def brokers(broker: BrokerProcess) -> Brokers:
    make(broker.bootstrap, counted=3, counted_nothing=1)
    send(broker.bootstrap, "counted", counted())
    return Brokers(bootstrap=broker.bootstrap)


@pytest.fixture(scope="module")
def stats(spark: SparkSession, brokers: Brokers) -> Stats:
    return topic_stats(spark, brokers, "counted")


def size(message: Sent) -> int:
    return len(message.key or b"") + len(message.value or b"")


def test_the_whole(stats: Stats) -> None:
    messages = counted()
    assert stats.messages == len(messages)
    assert stats.bytes == sum(map(size, messages))
    assert stats.without_key == sum(message.key is None for message in messages)
    assert stats.without_value == sum(message.value is None for message in messages)
    assert stats.stored_bytes > 0
    assert stats.compression_ratio == stats.bytes / stats.stored_bytes
    assert stats.missing_offsets == 0


def test_partitions_and_skew(stats: Stats) -> None:
    counts = Counter(message.partition for message in counted())
    assert {found.partition: found.messages for found in stats.partitions} == dict(counts)
    assert stats.skew == pytest.approx(max(counts.values()) / (sum(counts.values()) / 2))
    assert stats.partitions[0].first_offset == 0
    assert stats.partitions[0].last_offset == counts[0] - 1


def test_times_that_no_date_can_show_are_the_nearest_that_can_be_shown() -> None:
    assert [moment_of(seconds).year for seconds in (-(2**43), 0, 2**43)] == [1, 1970, 9999]


def test_keys_and_duplicates(stats: Stats) -> None:
    messages = counted()
    keys = Counter((message.key or b"").decode() for message in messages if message.key is not None)
    assert stats.keys == len(keys)
    assert {key.key: key.messages for key in stats.top_keys} == dict(keys.most_common(20))
    assert stats.top_keys[0].key == "hot"
    assert stats.top_key_share == keys["hot"] / len(messages)
    same = Counter((message.key, message.value) for message in messages if message.key is not None)
    assert stats.duplicates == sum(same.values()) - len(same) >= 6


def test_times_and_sizes(stats: Stats) -> None:
    minutes = Counter(message.timestamp_ms // 60_000 for message in counted())
    assert stats.time_unit == "minute"
    assert {int(point.at.timestamp()) // 60: point.messages for point in stats.times} == dict(minutes)
    assert stats.quiet_s == 3540
    for found in stats.sizes:
        within = [one for one in counted() if found.bytes_from <= size(one) < found.bytes_until]
        assert found.messages == len(within), found
    assert sum(found.messages for found in stats.sizes) == stats.messages


def test_everything_fits_into_json(stats: Stats) -> None:
    values = json.loads(json.dumps(stats.to_dict()))
    assert values["skew"] == stats.skew
    assert values["times"][0]["at"] == "2025-11-15T09:00:00+00:00"


def test_an_archive_with_gaps(spark: SparkSession, tmp_path: Path) -> None:
    make_archive(tmp_path, [Message(0, n * 2, SIX_US + n * MINUTE_US) for n in range(10)])
    found = archive_stats(spark, str(tmp_path))
    assert (found.messages, found.missing_offsets, found.keys) == (10, 9, 1)
    assert found.stored_bytes == sum(path.stat().st_size for path in tmp_path.glob("date=*/hour=*/*"))


def test_nothing_to_count(spark: SparkSession, brokers: Brokers, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="topic counted-nothing has no messages"):
        topic_stats(spark, brokers, "counted-nothing")
    make_archive(tmp_path)
    with pytest.raises(PipelineError, match="has no messages yet"):
        archive_stats(spark, str(tmp_path))


def test_a_report_is_a_picture_or_a_page_with_it(stats: Stats, tmp_path: Path) -> None:
    odd = replace(stats, source="topic <b>", top_keys=(replace(stats.top_keys[0], key="<script>" * 9),))
    write_report(odd, str(tmp_path / "deep" / "report.png"))
    assert (tmp_path / "deep" / "report.png").read_bytes().startswith(PNG)
    write_report(odd, str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text()
    assert "<b>" not in page.replace("&lt;b&gt;", "")
    assert "<script>" not in page
    assert "data:image/png;base64," in page
    assert f"<td>{stats.messages}</td>" in page


def test_a_report_without_keys(stats: Stats, tmp_path: Path) -> None:
    write_report(replace(stats, top_keys=(), keys=0), str(tmp_path / "report.png"))
    with pytest.raises(PipelineError, match=r"end its name with \.png or \.html"):
        write_report(stats, str(tmp_path / "report.pdf"))


@pytest.mark.parametrize("seconds", [[-(2**43)], [2**43], [-(2**43), 0, 2**43], [0, 60]])
def test_a_report_of_times_at_the_end_of_all_dates(seconds: list[int]) -> None:
    times = tuple(TimeStats(at=moment_of(each).replace(second=0), messages=1, bytes=1) for each in seconds)
    at = times[0].at
    only = PartitionStats(
        partition=0,
        messages=1,
        bytes=1,
        first_offset=0,
        last_offset=0,
        missing_offsets=0,
        first_at=at,
        last_at=at,
    )
    empty = Stats(
        source="topic",
        messages=1,
        bytes=1,
        stored_bytes=1,
        without_key=0,
        without_value=0,
        partitions=(only,),
        time_unit="day",
        times=times,
        quiet_s=0,
        sizes=(SizeStats(bytes_from=0, bytes_until=1, messages=1, bytes=1),),
        keys=0,
        top_keys=(),
        duplicates=0,
        top_duplicates=(),
    )
    assert png(empty).startswith(PNG)


def test_sizes_without_a_message_are_bins_too() -> None:
    sizes = [
        SizeStats(bytes_from=start, bytes_until=2 * start or 1, messages=3, bytes=9) for start in (0, 4, 16)
    ]
    assert size_bins(sizes) == [(0, 3), (1, 0), (2, 0), (4, 3), (8, 0), (16, 3)]
