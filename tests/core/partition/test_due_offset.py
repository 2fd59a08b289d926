"""When messages of a topic with a delay become visible."""

from __future__ import annotations

from forebay.core.partition.topic_due_offset import DueOffset

DELAY, NOW = 60_000, 1_000_000


def test_a_partition_is_searched_at_once_and_then_when_the_next_message_is_due() -> None:
    due = DueOffset(DELAY)
    assert due.search_in_ms(high_watermark=0, now_ms=NOW) is None
    assert due.search_in_ms(high_watermark=5, now_ms=NOW) == 0
    assert due.newest_due_ms(NOW) == NOW - DELAY
    assert due.searched(3, waiting_since=NOW - DELAY + 500, now_ms=NOW)
    assert due.offset == 3
    assert due.search_in_ms(high_watermark=5, now_ms=NOW) == 500
    assert due.search_in_ms(high_watermark=3, now_ms=NOW) is None
    assert due.search_in_ms(high_watermark=5, now_ms=NOW + 700) == 0


def test_searches_do_not_follow_each_other_at_once() -> None:
    due = DueOffset(DELAY)
    assert due.searched(3, waiting_since=NOW - DELAY + 1, now_ms=NOW)
    pause = due.search_in_ms(high_watermark=5, now_ms=NOW)
    assert pause is not None
    assert 1 < pause <= 50
    due.searched(5, None, now_ms=NOW + pause)
    assert due.search_in_ms(high_watermark=6, now_ms=NOW + pause) == pause


def test_a_clock_that_is_set_back_hides_nothing_and_delays_nothing_for_longer_than_the_delay() -> None:
    due = DueOffset(DELAY)
    due.searched(3, waiting_since=NOW - DELAY + 500, now_ms=NOW)
    earlier = NOW - 3_600_000
    assert due.search_in_ms(high_watermark=5, now_ms=earlier) == 0
    assert not due.searched(1, waiting_since=earlier, now_ms=earlier)
    assert due.offset == 3
    assert due.search_in_ms(high_watermark=5, now_ms=earlier) == DELAY
    assert due.search_in_ms(high_watermark=5, now_ms=earlier + DELAY) == 0
