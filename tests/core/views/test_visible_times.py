"""The times of what a view shows, in batches that were filtered."""

from __future__ import annotations

from forebay.core.views.filtering import Filtered
from forebay.core.views.visible_times import TimeSearch, search_on
from forebay.wire.batch import LOG_APPEND_TIME, EndTxnMarker, build_batch, build_marker
from forebay.wire.compression import MAX_OUTPUT_BYTES, Codec
from support.machines.view_records import record

LARGEST = TimeSearch(None, 0)


def filtered(*batches: bytes | bytearray, next_offset: int) -> Filtered:
    return Filtered(
        data=b"".join(batches),
        next_offset=next_offset,
        delivered=1,
        examined=1,
        invalid=0,
        whole=True,
        source_bytes=1,
        cut=None,
        begins_within=False,
    )


def batch(*timestamps: int, base_offset: int = 0, attributes: int = 0) -> bytearray:
    made = [record({}, offset=base_offset + at, timestamp=time) for at, time in enumerate(timestamps)]
    return build_batch(made, base_offset=base_offset, attributes=attributes, codec=Codec.LZ4)


def test_the_first_message_that_is_not_older_ends_a_search() -> None:
    data = filtered(batch(5, 9, 7), batch(8, 3, base_offset=3), next_offset=5)
    for timestamp, expected in ((0, (5, 0)), (6, (9, 1)), (9, (9, 1)), (10, None)):
        found = search_on(TimeSearch(timestamp, 0), data, MAX_OUTPUT_BYTES)
        assert (found.best, found.is_over) == (expected, expected is not None)
    assert search_on(TimeSearch(10, 0), data, MAX_OUTPUT_BYTES).next_offset == 5


def test_messages_before_where_a_search_begins_do_not_count() -> None:
    """A batch is shown whole, also to who begins in its middle."""
    data = filtered(batch(9, 9, 7), next_offset=3)
    assert search_on(TimeSearch(5, 2), data, MAX_OUTPUT_BYTES).best == (7, 2)
    assert search_on(TimeSearch(None, 2), data, MAX_OUTPUT_BYTES).best == (7, 2)


def test_the_largest_time_is_the_first_message_that_has_it() -> None:
    search = search_on(LARGEST, filtered(batch(5, 9, 9), next_offset=3), MAX_OUTPUT_BYTES)
    assert (search.best, search.next_offset, search.is_over) == ((9, 1), 3, False)
    search = search_on(search, filtered(batch(9, base_offset=3), next_offset=4), MAX_OUTPUT_BYTES)
    assert search.best == (9, 1)
    search = search_on(search, filtered(batch(10, base_offset=4), next_offset=5), MAX_OUTPUT_BYTES)
    assert search.best == (10, 4)


def test_all_messages_of_a_batch_that_the_broker_has_stamped_have_its_time() -> None:
    data = filtered(batch(5, 9, attributes=LOG_APPEND_TIME), next_offset=2)
    assert search_on(TimeSearch(6, 0), data, MAX_OUTPUT_BYTES).best == (9, 0)
    assert search_on(LARGEST, data, MAX_OUTPUT_BYTES).best == (9, 0)


def test_markers_and_empty_batches_are_no_messages() -> None:
    marker = build_marker(EndTxnMarker(7, 0, True, 1), timestamp=99, base_offset=0, partition_leader_epoch=0)
    for search in (TimeSearch(1, 0), LARGEST):
        assert search_on(search, filtered(marker, next_offset=1), MAX_OUTPUT_BYTES).best is None
