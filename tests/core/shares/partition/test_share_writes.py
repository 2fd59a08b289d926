"""What is persisted and when, what waits for it, and what a new leader makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forebay.core.shares.partition.acquired_ranges import Acquired
from forebay.core.shares.partition.description import Holder
from forebay.core.shares.partition.settings import ShareSettings
from forebay.core.shares.partition.share_partition import DeadLetters, SharePartition
from forebay.core.shares.partition.state_transitions import DeadLetterCause, RecordState
from forebay.core.shares.partition.writes import StateRange
from forebay.errors import KafkaError
from forebay.wire.messages.share_fetch import AcknowledgementBatch
from support.machines.share_leader import ACCEPT, GAP, REJECT, RELEASE, SETTINGS, ShareLeader

AVAILABLE = RecordState.AVAILABLE
ACKNOWLEDGED = RecordState.ACKNOWLEDGED
ARCHIVING = RecordState.ARCHIVING
ARCHIVED = RecordState.ARCHIVED

WITH_DEAD_LETTERS = replace(SETTINGS, has_dead_letters=True)


def acknowledged(leader: ShareLeader, first: int, last: int, kind: int) -> int:
    """Number of the write that the reply waits for."""
    batch = AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
    return leader.shares.acknowledge("m", [batch], is_renew_request=False, now_ms=leader.now_ms).write


def test_a_batch_that_is_acquired_and_accepted_whole_is_one_range_and_then_none() -> None:
    leader = ShareLeader()
    leader.take()
    (write,) = leader.save()
    assert write.ranges == [StateRange(0, 9, AVAILABLE, 1)]
    leader.acknowledge(0, 9, ACCEPT)
    (write,) = leader.save()
    assert (write.start_offset, write.ranges, write.delivery_complete_count) == (10, [], 0)


def test_the_first_delivery_waits_for_nothing_and_a_redelivery_for_a_write_of_those_before() -> None:
    leader = ShareLeader()
    assert leader.fetch().write == 0
    leader.shares.release("m", leader.now_ms)
    leader.take()
    leader.acknowledge(0, 9, RELEASE)
    again = leader.fetch()
    assert again.ranges == [Acquired(0, 9, 2)]
    assert again.write > leader.shares.written
    leader.save()
    assert again.write <= leader.shares.written
    assert leader.stored.ranges()[0] == StateRange(0, 0, AVAILABLE, 1)
    leader.shares.sent(again.hold, again.ranges, now_ms=leader.now_ms)
    leader.acknowledge(0, 9, RELEASE)
    leader.save()
    third = leader.fetch()
    assert third.write > leader.shares.written, "though all is persisted: another may have taken over"
    (write,) = leader.save()
    assert write.ranges == []


def test_what_was_not_sent_is_not_counted_by_the_next_leader_either() -> None:
    leader = ShareLeader(replace(SETTINGS, delivery_count_limit=2))
    leader.take()
    leader.acknowledge(0, 9, RELEASE)
    for _ in range(5):
        again = leader.fetch()
        assert again.ranges == [Acquired(0, 9, 2)]
        leader.save()
        leader.shares.take_back(again.hold, again.ranges)
        leader.fetch()
        leader.save()
        leader.change_leader()
    assert leader.take() == [Acquired(0, 9, 2)]


@pytest.mark.parametrize("kind", [ACCEPT, GAP, REJECT])
def test_the_reply_to_an_acknowledgement_waits_for_its_write(kind: int) -> None:
    leader = ShareLeader()
    leader.take()
    leader.save()
    write = acknowledged(leader, 0, 9, kind)
    assert write > leader.shares.written
    leader.save()
    assert write <= leader.shares.written


def test_a_release_needs_no_write_and_survives_a_change_of_the_leader() -> None:
    leader = ShareLeader()
    leader.take()
    leader.save()
    assert acknowledged(leader, 0, 4, RELEASE) == 0
    leader.shares.release("m", leader.now_ms)
    assert leader.save() == []
    leader.change_leader()
    assert leader.take() == [Acquired(0, 9, 2)]


def test_the_count_of_a_held_record_survives_a_change_of_the_leader() -> None:
    leader = ShareLeader()
    for count in (1, 2, 3):
        assert leader.take() == [Acquired(0, 9, count)]
        leader.save()
        leader.change_leader()


def test_a_delivery_that_was_not_written_is_forgotten() -> None:
    leader = ShareLeader()
    leader.take()
    leader.change_leader()
    assert leader.take() == [Acquired(0, 9, 1)]
    leader.save()
    leader.acknowledge(0, 9, RELEASE)
    assert leader.take() == [Acquired(0, 9, 2)]
    leader.change_leader()
    assert leader.take() == [Acquired(0, 9, 2)]


def test_the_write_of_a_first_delivery_waits_for_the_next_one() -> None:
    leader = ShareLeader()
    leader.take(records_max=20)
    assert not leader.shares.is_write_due
    acknowledged(leader, 0, 4, RELEASE)
    assert not leader.shares.is_write_due
    acknowledged(leader, 5, 9, ACCEPT)
    assert leader.shares.is_write_due
    (write,) = leader.save()
    assert write.ranges == [
        StateRange(0, 4, AVAILABLE, 1),
        StateRange(5, 9, ACKNOWLEDGED, 1),
        StateRange(10, 19, AVAILABLE, 1),
    ]
    assert not leader.shares.is_write_due


def test_a_write_is_due_when_a_redelivery_waits_for_it() -> None:
    leader = ShareLeader()
    leader.take()
    leader.acknowledge(0, 9, RELEASE)
    assert not leader.shares.is_write_due
    again = leader.fetch()
    assert leader.shares.is_write_due
    leader.save()
    leader.shares.sent(again.hold, again.ranges, now_ms=leader.now_ms)
    assert leader.shares.is_write_due, "a second delivery is written at once"


@pytest.mark.parametrize("settings", [SETTINGS, WITH_DEAD_LETTERS])
def test_what_is_given_up_at_the_limit_is_due_at_once(settings: ShareSettings) -> None:
    leader = ShareLeader(replace(settings, delivery_count_limit=1))
    leader.take()
    assert not leader.shares.is_write_due
    leader.shares.release("m", leader.now_ms)
    assert leader.shares.is_write_due


def test_a_start_offset_that_moved_by_itself_is_due_at_once() -> None:
    leader = ShareLeader()
    leader.shares.log_start(50)
    assert leader.shares.is_write_due


def test_one_write_is_in_flight_and_what_changes_meanwhile_is_in_the_next() -> None:
    leader = ShareLeader()
    leader.take(records_max=20)
    leader.save()
    early = acknowledged(leader, 0, 4, ACCEPT)
    first = leader.shares.take_write()
    assert first is not None
    late = acknowledged(leader, 5, 7, ACCEPT)
    later = acknowledged(leader, 12, 12, REJECT)
    assert leader.shares.take_write() is None
    leader.shares.write_done()
    assert early <= leader.shares.written < late == later
    assert leader.shares.start_offset == 5
    second = leader.shares.take_write()
    assert second is not None
    assert second.start_offset == 8
    assert second.ranges == [StateRange(12, 12, ARCHIVED, 1)]
    assert second.delivery_complete_count == 1


def test_what_happens_to_a_record_before_its_write_is_taken_is_one_range() -> None:
    leader = ShareLeader()
    leader.take(records_max=20)
    leader.acknowledge(10, 19, RELEASE)
    leader.take()
    leader.acknowledge(10, 14, ACCEPT)
    (write,) = leader.save()
    assert write.ranges == [
        StateRange(0, 9, AVAILABLE, 1),
        StateRange(10, 14, ACKNOWLEDGED, 2),
        StateRange(15, 19, AVAILABLE, 2),
    ]
    assert write.delivery_complete_count == 5


def test_a_record_with_a_pending_acknowledgement_is_in_nobodys_hands() -> None:
    leader = ShareLeader()
    leader.take()
    leader.acknowledge(0, 9, ACCEPT)
    assert leader.shares.take_write() is not None
    leader.advance(SETTINGS.lock_ms)
    leader.shares.release("m", leader.now_ms)
    assert leader.states() == [(0, 9, "ACKNOWLEDGED", 1)]
    assert leader.take() == [Acquired(10, 19, 1)]
    assert leader.shares.start_offset == 0


def test_a_write_holds_only_what_has_changed() -> None:
    leader = ShareLeader()
    leader.take(records_max=30)
    leader.save()
    leader.acknowledge(5, 6, ACCEPT)
    leader.acknowledge(20, 29, REJECT)
    (write,) = leader.save()
    assert write.ranges == [StateRange(5, 6, ACKNOWLEDGED, 1), StateRange(20, 29, ARCHIVED, 1)]
    assert (write.start_offset, write.delivery_complete_count) == (0, 12)


def test_a_delivery_that_waits_for_its_write_too_long_is_not_sent() -> None:
    leader = ShareLeader()
    leader.take("a")
    leader.advance(SETTINGS.lock_ms)
    late = leader.fetch("a")
    assert leader.shares.still_held(late.hold, late.ranges) == late.ranges
    leader.advance(SETTINGS.lock_ms)
    leader.take("b")
    leader.save()
    assert leader.shares.still_held(late.hold, late.ranges) == []


def test_of_a_delivery_that_waits_only_what_is_still_held_is_sent() -> None:
    leader = ShareLeader()
    acquired = leader.fetch()
    leader.acknowledge(0, 2, ACCEPT)
    leader.acknowledge(8, 9, RELEASE)
    leader.save()
    assert leader.shares.still_held(acquired.hold, acquired.ranges) == [Acquired(3, 7, 1)]


def test_released_records_come_after_a_pause_that_doubles() -> None:
    leader = ShareLeader(replace(SETTINGS, backoff_ms=10, backoff_ms_max=35))
    for pause_ms in (10, 20, 35):
        assert leader.take() != []
        leader.acknowledge(0, 9, RELEASE)
        description = leader.shares.describe(leader.now_ms)
        assert (description.available, description.waiting) == (0, 10)
        leader.advance(pause_ms - 1)
        assert leader.shares.next_fetch_offset() == 10  # not what waits
        leader.advance(1)
        assert leader.shares.next_fetch_offset() == 0


def test_the_pause_is_the_same_after_a_lock_timeout_and_the_end_of_a_session() -> None:
    leader = ShareLeader(replace(SETTINGS, backoff_ms=10))
    leader.take(records_max=1)
    leader.advance(SETTINGS.lock_ms)
    assert leader.shares.deadline_ms == leader.now_ms + 10
    leader.take("n", 1)
    leader.shares.release("n", leader.now_ms)
    assert leader.shares.describe(leader.now_ms).waiting == 20


def test_a_new_leader_delivers_at_once() -> None:
    leader = ShareLeader(replace(SETTINGS, backoff_ms=10))
    leader.take()
    leader.save()
    leader.acknowledge(0, 9, RELEASE)
    leader.change_leader()
    assert leader.take() == [Acquired(0, 9, 2)]


def test_dead_letters_are_handed_out_once_they_are_persisted_until_they_are_in_their_topic() -> None:
    leader = ShareLeader(WITH_DEAD_LETTERS)
    leader.take()
    leader.acknowledge(0, 3, REJECT)
    assert leader.shares.dead_letters() == []
    leader.save()
    assert leader.shares.dead_letters() == [DeadLetters(0, 3, 1, DeadLetterCause.REJECTED)]
    assert leader.shares.start_offset == 0
    leader.shares.dead_lettered([(0, 1)])
    assert leader.shares.dead_letters() == [DeadLetters(2, 3, 1, DeadLetterCause.REJECTED)]
    (write,) = leader.save()
    assert (write.start_offset, write.ranges) == (2, [])
    leader.shares.dead_lettered([(2, 3)])
    leader.save()
    assert leader.shares.start_offset == 4


def test_records_that_wait_for_the_dead_letter_topic_are_not_complete() -> None:
    leader = ShareLeader(WITH_DEAD_LETTERS)
    leader.take()
    leader.acknowledge(2, 3, REJECT)
    (write,) = leader.save()
    assert write.delivery_complete_count == 0
    assert leader.shares.describe(0).archiving == 2


def test_neighbours_with_different_causes_are_different_dead_letters() -> None:
    leader = ShareLeader(replace(WITH_DEAD_LETTERS, delivery_count_limit=1))
    leader.take()
    leader.acknowledge(0, 4, REJECT)
    leader.acknowledge(5, 9, RELEASE)
    leader.save()
    assert leader.shares.dead_letters() == [
        DeadLetters(0, 4, 1, DeadLetterCause.REJECTED),
        DeadLetters(5, 9, 1, DeadLetterCause.DELIVERY_LIMIT),
    ]


def test_a_new_leader_goes_on_with_dead_letters_and_concludes_their_cause() -> None:
    leader = ShareLeader(replace(WITH_DEAD_LETTERS, delivery_count_limit=2))
    leader.take()
    leader.acknowledge(0, 1, REJECT)
    leader.acknowledge(2, 3, RELEASE)
    leader.take()
    leader.acknowledge(2, 3, RELEASE)
    leader.save()
    leader.change_leader()
    assert [(each.first, each.last, each.cause) for each in leader.shares.dead_letters()] == [
        (0, 1, DeadLetterCause.REJECTED),
        (2, 3, DeadLetterCause.DELIVERY_LIMIT),
    ]


def test_a_new_leader_gives_up_what_was_delivered_as_often_as_allowed() -> None:
    leader = ShareLeader(replace(SETTINGS, delivery_count_limit=2))
    for _ in range(2):
        leader.take()
        leader.save()
        leader.change_leader()
    assert leader.states() == [(0, 9, "ARCHIVED", 2)]
    leader.save()
    assert leader.shares.start_offset == 10


@pytest.mark.parametrize("settings", [SETTINGS, WITH_DEAD_LETTERS])
def test_what_the_disk_does_not_give_is_tried_again_and_given_up_alone(settings: ShareSettings) -> None:
    leader = ShareLeader(settings)
    leader.take()
    failing = dict[str, int](patience_ms=100, retry_ms=50)
    for _ in range(2):
        assert leader.shares.next_fetch_offset() == 10
        assert leader.shares.unreadable(10, 12, **failing, now_ms=leader.now_ms) == 0
        assert leader.shares.next_fetch_offset() == 13, "others are not held up"
        leader.advance(50)
    assert leader.shares.unreadable(10, 12, **failing, now_ms=leader.now_ms) == 3
    leader.save()
    if settings.has_dead_letters:
        unreadable = [DeadLetters(10, 12, 0, DeadLetterCause.UNREADABLE)]
        assert leader.shares.dead_letters() == unreadable
        leader.change_leader()
        assert leader.shares.dead_letters() == unreadable, "no member can have rejected it"
    else:
        assert leader.states()[1] == (10, 12, "ARCHIVED", 0)
    leader.change_leader()
    assert leader.take() == [Acquired(0, 9, 2)]
    assert leader.take(records_max=7) == [Acquired(13, 19, 1)]


def test_a_disk_that_gives_nothing_is_waited_for() -> None:
    leader = ShareLeader()
    for _ in range(20):
        assert leader.shares.unreadable(0, 500, patience_ms=None, retry_ms=50, now_ms=leader.now_ms) == 0
        assert leader.shares.next_fetch_offset() is None, "the window is full"
        leader.advance(50)
    assert leader.take() == [Acquired(0, 9, 1)]


def test_time_begins_anew_when_what_failed_can_be_read_again() -> None:
    leader = ShareLeader()
    leader.shares.unreadable(0, 9, patience_ms=100, retry_ms=50, now_ms=leader.now_ms)
    leader.advance(50)
    leader.take()
    leader.advance(SETTINGS.lock_ms)
    assert leader.shares.unreadable(0, 9, patience_ms=100, retry_ms=50, now_ms=leader.now_ms) == 0


def test_time_begins_anew_for_what_could_be_read_and_was_not_wanted() -> None:
    leader = ShareLeader()
    leader.shares.unreadable(0, 9, patience_ms=100, retry_ms=50, now_ms=leader.now_ms)
    leader.advance(50)
    assert leader.take(records_max=4, is_record_limit=True) == [Acquired(0, 3, 1)]
    leader.advance(100)
    assert leader.shares.next_fetch_offset() == 4
    assert leader.shares.unreadable(4, 9, patience_ms=100, retry_ms=50, now_ms=leader.now_ms) == 0


def test_the_time_of_a_disk_that_gives_nothing_does_not_count() -> None:
    leader = ShareLeader()
    leader.shares.unreadable(0, 9, patience_ms=None, retry_ms=50, now_ms=leader.now_ms)
    leader.advance(1_000)
    assert leader.shares.unreadable(0, 9, patience_ms=100, retry_ms=50, now_ms=leader.now_ms) == 0


def test_who_holds_records_is_known() -> None:
    leader = ShareLeader()
    leader.take()
    assert leader.shares.window.held == {"m": 10}
    leader.acknowledge(0, 3, RELEASE)
    leader.acknowledge(4, 4, ACCEPT)
    assert leader.shares.window.held == {"m": 5}
    assert leader.shares.holds("m")
    leader.shares.release("m", leader.now_ms)
    assert not leader.shares.holds("m")
    assert leader.shares.window.held == {}


def test_a_lower_limit_gives_up_available_records_and_leaves_those_that_are_held() -> None:
    leader = ShareLeader()
    leader.take(records_max=20)
    leader.acknowledge(0, 19, RELEASE)
    leader.take()
    leader.acknowledge(0, 4, RELEASE)
    leader.shares.configure(replace(SETTINGS, delivery_count_limit=2))
    assert leader.states() == [(0, 4, "ARCHIVED", 2), (5, 9, "ACQUIRED", 2), (10, 19, "AVAILABLE", 1)]


def test_what_no_persisted_range_covers_was_never_delivered() -> None:
    leader = ShareLeader()
    leader.stored.states = {25: (1, ACKNOWLEDGED), 3: (2, AVAILABLE)}
    leader.change_leader()
    assert leader.states() == [
        (0, 2, "AVAILABLE", 0),
        (3, 3, "AVAILABLE", 2),
        (4, 24, "AVAILABLE", 0),
        (25, 25, "ACKNOWLEDGED", 1),
    ]
    assert leader.take(records_max=100)[:3] == [Acquired(0, 2, 1), Acquired(3, 3, 3), Acquired(4, 24, 1)]


def test_a_new_leader_begins_after_what_is_finished_and_persists_that() -> None:
    leader = ShareLeader()
    leader.stored.states = dict.fromkeys(range(5), (1, ACKNOWLEDGED))
    leader.change_leader()
    assert leader.shares.start_offset == 5
    (write,) = leader.save()
    assert (write.start_offset, write.ranges) == (5, [])


@pytest.mark.parametrize(
    "ranges",
    [
        [StateRange(3, 9, ACKNOWLEDGED, 1)],
        [StateRange(10, 9, ACKNOWLEDGED, 1)],
        [StateRange(5, 9, ACKNOWLEDGED, 1), StateRange(9, 12, ARCHIVED, 1)],
        [StateRange(5, 9, RecordState.ACQUIRED, 1)],
    ],
)
def test_a_persisted_state_that_cannot_be_is_refused(ranges: list[StateRange]) -> None:
    with pytest.raises(KafkaError, match="bad range"):
        SharePartition(SETTINGS, start_offset=5, ranges=ranges, leader_epoch=1, state_epoch=1)


def test_the_description_tells_who_holds_how_much_for_how_long() -> None:
    leader = ShareLeader()
    leader.take("a")
    leader.advance(100)
    leader.take("b", 20)
    leader.advance(100)
    leader.take("a")
    leader.acknowledge(10, 14, ACCEPT, member="b")
    leader.acknowledge(15, 19, RELEASE, member="b")
    description = leader.shares.describe(leader.now_ms)
    assert description.holders == [Holder("a", 20, 200), Holder("b", 10, 100)]
    assert (description.window_size, description.window_max) == (40, 100)
    assert (description.available, description.acquired, description.finished) == (5, 30, 5)


def test_a_window_of_single_offsets_becomes_few_ranges_again() -> None:
    leader = ShareLeader()
    leader.take(records_max=100)
    leader.save()
    for offset in [*range(1, 100, 2), *range(2, 100, 2)]:
        leader.acknowledge(offset, offset, ACCEPT)
        leader.save()
    assert leader.states() == [(0, 0, "ACQUIRED", 1), (1, 99, "ACKNOWLEDGED", 1)]
