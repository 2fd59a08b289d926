"""Which records a fetch acquires: modes, window, redelivery, what the log has not got."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forebay.core.shares.partition.acquired_ranges import Acquired, Demand, LogRead, throttled_size
from support.machines.share_leader import ACCEPT, RELEASE, SETTINGS, ShareLeader


def ranges(acquired: list[Acquired]) -> list[tuple[int, int]]:
    return [(first, last) for first, last, _ in acquired]


def test_the_first_delivery_is_a_batch_with_count_1() -> None:
    leader = ShareLeader()
    assert leader.shares.next_fetch_offset() == 0
    assert leader.take() == [Acquired(0, 9, 1)]
    assert leader.states() == [(0, 9, "ACQUIRED", 1)]
    assert leader.shares.next_fetch_offset() == 10


def test_members_never_get_the_same_record() -> None:
    leader = ShareLeader()
    assert leader.take("a") == [Acquired(0, 9, 1)]
    assert leader.take("b") == [Acquired(10, 19, 1)]


def test_a_batch_is_given_whole_though_fewer_records_were_asked_for() -> None:
    leader = ShareLeader()
    assert ranges(leader.take(records_max=1)) == [(0, 9)]
    assert ranges(leader.take(records_max=11)) == [(10, 29)]


def test_the_record_limit_is_never_exceeded_and_the_rest_of_the_batch_is_left() -> None:
    leader = ShareLeader()
    assert ranges(leader.take("a", 3, is_record_limit=True)) == [(0, 2)]
    assert leader.shares.next_fetch_offset() == 3
    assert ranges(leader.take("b", 12, is_record_limit=True)) == [(3, 14)]
    assert leader.shares.window.size == 15


def test_a_request_for_no_records_acquires_nothing() -> None:
    leader = ShareLeader()
    assert leader.fetch(records_max=0).ranges == []
    assert leader.states() == []


def test_ranges_are_cut_where_a_batch_begins_once_they_have_the_batch_size() -> None:
    leader = ShareLeader()
    acquired = leader.fetch(records_max=60, batch_size=25).ranges
    assert ranges(acquired) == [(0, 29), (30, 59)]


def test_many_small_batches_are_one_range() -> None:
    leader = ShareLeader(replace(SETTINGS, record_locks_max=2_000), batches=[(n, n) for n in range(1_000)])
    assert ranges(leader.fetch(records_max=500, batch_size=500).ranges) == [(0, 499)]
    assert len(leader.shares.window.spans) == 1


def test_a_full_window_acquires_nothing_new_until_its_first_records_are_finished() -> None:
    leader = ShareLeader(replace(SETTINGS, record_locks_max=25))
    assert ranges(leader.take(records_max=100)) == [(0, 29)]  # the limit, to the end of a batch
    assert leader.shares.next_fetch_offset() is None
    leader.acknowledge(10, 29, ACCEPT)
    leader.save()
    assert leader.shares.next_fetch_offset() is None  # the window is a span, not a number of records
    leader.acknowledge(0, 9, ACCEPT)
    assert leader.shares.next_fetch_offset() == 30  # though the write is pending
    leader.save()
    assert leader.shares.next_fetch_offset() == 30


def test_what_is_accepted_makes_room_at_once_and_the_persisted_window_keeps_to_the_limit() -> None:
    leader = ShareLeader(replace(SETTINGS, record_locks_max=20))
    leader.take(records_max=20)
    leader.acknowledge(0, 9, ACCEPT)
    assert leader.take(records_max=20) == [Acquired(20, 29, 1)]
    assert (leader.shares.start_offset, leader.shares.window.end) == (0, 29)
    (write,) = leader.save()
    assert (write.start_offset, write.ranges[-1].last) == (10, 29)
    assert leader.shares.next_fetch_offset() is None


def test_what_waits_for_its_write_takes_no_more_than_a_second_window() -> None:
    leader = ShareLeader(replace(SETTINGS, record_locks_max=20))
    leader.take(records_max=20)
    leader.acknowledge(0, 19, ACCEPT)
    assert leader.shares.take_write() is not None  # and the share coordinator does not answer
    leader.take(records_max=20)
    leader.acknowledge(20, 39, ACCEPT)
    assert leader.shares.next_fetch_offset() is None
    leader.shares.write_done()
    assert leader.shares.next_fetch_offset() == 40


def test_the_record_limit_keeps_to_the_window_exactly() -> None:
    leader = ShareLeader(replace(SETTINGS, record_locks_max=25))
    assert ranges(leader.take(records_max=100, is_record_limit=True)) == [(0, 24)]


def test_a_full_window_delivers_released_records_again() -> None:
    leader = ShareLeader(replace(SETTINGS, record_locks_max=20))
    leader.take(records_max=20)
    leader.acknowledge(4, 6, RELEASE)
    assert leader.shares.next_fetch_offset() == 4
    assert leader.take(records_max=100) == [Acquired(4, 6, 2)]


def test_released_and_new_records_come_in_one_fetch_in_ranges_of_one_count() -> None:
    leader = ShareLeader()
    leader.take()
    leader.acknowledge(0, 4, RELEASE)
    assert leader.take(records_max=15) == [Acquired(0, 4, 2), Acquired(10, 19, 1)]


def test_a_redelivery_in_batch_mode_ends_with_the_batch_that_has_the_last_record() -> None:
    leader = ShareLeader()
    leader.take(records_max=30)
    leader.acknowledge(0, 29, RELEASE)
    assert leader.take(records_max=11) == [Acquired(0, 19, 2)]


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [
        (2, [64, 64]),
        (3, [64, 64, 1]),
        (5, [64, 64, 64, 32, 1]),
        (10, [64, 64, 64, 64, 64, 32, 16, 8, 4, 1]),
    ],
)
def test_records_that_were_delivered_often_come_in_ever_smaller_parts(limit: int, sizes: list[int]) -> None:
    assert [throttled_size(64, count, limit) for count in range(limit)] == sizes


def test_a_small_part_is_at_least_one_record() -> None:
    assert throttled_size(3, 8, 10) == 1


def test_nothing_else_is_in_a_fetch_with_throttled_records() -> None:
    leader = ShareLeader()
    for _ in range(3):
        assert ranges(leader.take()) == [(0, 9)]
        leader.acknowledge(0, 9, RELEASE)
    assert leader.take(records_max=100) == [Acquired(0, 4, 4)]
    assert leader.take(records_max=100) == [Acquired(5, 9, 4)], "half of the batch, not of what is left"
    leader.acknowledge(0, 4, RELEASE)
    assert leader.take(records_max=100) == [Acquired(0, 0, 5)]


def fetched_as_often_as_allowed(leader: ShareLeader) -> list[tuple[int, int]]:
    """Everything that a member is given, and releases, until nothing is left."""
    given = []
    while taken := leader.take(records_max=512):
        given += ranges(taken)
        for first, last, _ in taken:
            leader.acknowledge(first, last, RELEASE)
    return given


def singles(first: int, last: int) -> list[tuple[int, int]]:
    return [(offset, offset) for offset in range(first, last + 1)]


@pytest.mark.parametrize("batch_size", [100, 50, 1])
def test_throttled_deliveries_have_the_sizes_that_they_have_in_kafka(batch_size: int) -> None:
    """As its ShareConsumerTest counts them, in however many batches the producer has sent the records."""
    batches = [(first, first + batch_size - 1) for first in range(0, 100, batch_size)]
    leader = ShareLeader(batches=batches)
    assert fetched_as_often_as_allowed(leader) == [
        *[(0, 99)] * 3,
        (0, 49),
        *singles(0, 49),
        (50, 99),
        *singles(50, 99),
    ]


def test_a_member_that_asks_for_few_throttled_records_gets_as_many() -> None:
    leader = ShareLeader(batches=[(0, 99)])
    for _ in range(3):
        assert ranges(leader.take()) == [(0, 99)]
        leader.acknowledge(0, 99, RELEASE)
    assert ranges(leader.take(records_max=20, is_record_limit=True)) == [(0, 19)]


def test_records_before_throttled_ones_come_without_them() -> None:
    leader = ShareLeader()
    leader.take(records_max=20)
    for _ in range(2):
        leader.acknowledge(10, 19, RELEASE)
        assert ranges(leader.take()) == [(10, 19)]
    leader.acknowledge(0, 19, RELEASE)
    assert leader.take(records_max=100) == [Acquired(0, 9, 2)]
    assert leader.take(records_max=100) == [Acquired(10, 14, 4)]


def test_what_the_log_lacks_inside_of_a_read_is_archived_and_not_delivered() -> None:
    leader = ShareLeader(batches=[(0, 4), (8, 9), (15, 19)])
    assert ranges(leader.take(records_max=9)) == [(0, 4), (8, 9), (15, 19)]
    assert leader.states()[1] == (5, 7, "ARCHIVED", 0)
    for first, last in [(0, 4), (8, 9), (15, 19)]:
        leader.acknowledge(first, last, ACCEPT)
    leader.save()
    assert leader.shares.start_offset == 20


def test_markers_at_the_end_of_a_read_are_not_read_again() -> None:
    leader = ShareLeader(batches=[(0, 4)], read_to=5)
    leader.take()
    assert leader.shares.next_fetch_offset() == 6


def test_an_empty_window_jumps_over_what_the_log_lacks() -> None:
    leader = ShareLeader(batches=[(5_000, 5_009)])
    assert leader.take() == [Acquired(5_000, 5_009, 1)]
    assert leader.shares.start_offset == 5_000
    (write,) = leader.save()
    assert write.start_offset == 5_000


def test_a_read_without_any_records_moves_an_empty_window() -> None:
    leader = ShareLeader(batches=[], read_to=7)
    assert leader.take() == []
    assert leader.shares.next_fetch_offset() == 8


def test_a_gap_larger_than_the_window_is_passed_in_the_end() -> None:
    leader = ShareLeader(replace(SETTINGS, record_locks_max=20), batches=[(0, 9), (500, 509)])
    assert ranges(leader.take()) == [(0, 9)]
    assert leader.take() == []
    assert leader.shares.next_fetch_offset() is None
    leader.acknowledge(0, 9, ACCEPT)
    leader.save()
    assert ranges(leader.take()) == [(500, 509)]


def test_an_old_read_gives_only_what_can_be_acquired_now() -> None:
    leader = ShareLeader()
    old = leader.read(0)
    leader.take("a", 20)
    leader.acknowledge(0, 9, ACCEPT, member="a")
    demand = Demand(10, 500)
    assert leader.shares.acquire("b", old, demand, now_ms=0).ranges == [Acquired(20, 29, 1)]


def test_a_read_that_began_too_late_leaves_no_hole() -> None:
    leader = ShareLeader()
    assert leader.shares.acquire("m", LogRead(50, 59, [(50, 59)]), Demand(10, 500), now_ms=0).ranges == []
    assert leader.shares.next_fetch_offset() == 0


def test_records_that_a_read_does_not_cover_are_not_archived() -> None:
    leader = ShareLeader()
    leader.take("a", 30)
    leader.acknowledge(20, 29, RELEASE, member="a")
    late = leader.read(20)
    leader.acknowledge(0, 9, RELEASE, member="a")
    assert leader.shares.acquire("b", late, Demand(10, 500), now_ms=0).ranges == [Acquired(20, 29, 2)]
    assert leader.take("b") == [Acquired(0, 9, 2)]


def test_available_records_below_the_log_start_are_archived() -> None:
    leader = ShareLeader()
    leader.take(records_max=20)
    leader.acknowledge(0, 19, RELEASE)
    leader.shares.log_start(15)
    assert leader.shares.start_offset == 15
    assert leader.shares.next_fetch_offset() == 15
    assert leader.save()[-1].start_offset == 15


def test_acquired_records_below_the_log_start_stay_until_they_are_given_back() -> None:
    leader = ShareLeader()
    leader.take()
    leader.shares.log_start(5)
    assert [each[2] for each in leader.states()] == ["ACQUIRED", "ACQUIRED"]
    leader.acknowledge(0, 9, RELEASE)
    assert leader.states() == [(5, 9, "AVAILABLE", 1)]
    assert leader.shares.start_offset == 5


def test_acquired_records_below_the_log_start_can_be_accepted() -> None:
    leader = ShareLeader()
    leader.take()
    leader.shares.log_start(5)
    assert leader.acknowledge(0, 9, ACCEPT) == 0
    leader.save()
    assert leader.shares.start_offset == 10


def test_an_empty_window_begins_with_the_log() -> None:
    leader = ShareLeader()
    leader.shares.log_start(30)
    assert leader.shares.start_offset == 30
    assert leader.take() == [Acquired(30, 39, 1)]


def test_the_next_read_is_never_below_the_log_start() -> None:
    leader = ShareLeader()
    leader.take()
    leader.shares.log_start(50)
    assert leader.shares.next_fetch_offset() == 50
    assert leader.take() == [Acquired(50, 59, 1)]
    assert leader.states() == [(0, 9, "ACQUIRED", 1), (10, 49, "ARCHIVED", 0), (50, 59, "ACQUIRED", 1)]


def test_a_window_that_became_too_large_by_a_setting_only_shrinks() -> None:
    leader = ShareLeader()
    leader.take(records_max=50)
    leader.shares.configure(replace(SETTINGS, record_locks_max=20))
    assert leader.shares.next_fetch_offset() is None
    leader.acknowledge(0, 39, ACCEPT)
    leader.save()
    assert leader.shares.next_fetch_offset() == 50
