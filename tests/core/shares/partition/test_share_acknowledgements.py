"""What acknowledgements do to records, and which are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from forebay.core.shares.partition.acquired_ranges import Acquired
from forebay.core.shares.partition.state_transitions import TRANSITIONS, RecordState
from forebay.errors import ErrorCode
from forebay.wire.messages.share_fetch import AcknowledgementBatch
from support.machines.share_leader import ACCEPT, GAP, REJECT, RELEASE, RENEW, SETTINGS, ShareLeader

WITH_DEAD_LETTERS = replace(SETTINGS, has_dead_letters=True)


def with_ten_acquired() -> ShareLeader:
    """Offsets 10 to 19 are acquired by m, 20 to 29 by another; those before are accepted."""
    leader = ShareLeader()
    leader.take()
    leader.acknowledge(0, 9, ACCEPT)
    leader.save()
    leader.take("m")
    leader.take("other")
    return leader


def acknowledge(
    leader: ShareLeader, *batches: tuple[int, int, Sequence[int]], renew: bool = False
) -> ErrorCode:
    made = [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
        for first, last, types in batches
    ]
    return leader.shares.acknowledge("m", made, is_renew_request=renew, now_ms=leader.now_ms).error


def test_accepted_records_are_acknowledged_and_passed_once_that_is_persisted() -> None:
    leader = ShareLeader()
    leader.take()
    assert leader.acknowledge(0, 9, ACCEPT) == ErrorCode.NONE
    assert leader.states() == [(0, 9, "ACKNOWLEDGED", 1)]
    leader.save()
    assert leader.states() == []
    assert leader.shares.start_offset == 10


def test_a_lock_holds_until_it_is_taken_away_even_if_its_time_is_over() -> None:
    """The timer of a busy broker is late; nobody else has got the records meanwhile."""
    leader = ShareLeader()
    leader.take()
    leader.now_ms += 10 * SETTINGS.lock_ms
    assert leader.acknowledge(0, 4, ACCEPT) == ErrorCode.NONE
    leader.advance(0)
    assert leader.acknowledge(5, 9, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    assert leader.states() == [(0, 4, "ACKNOWLEDGED", 1), (5, 9, "AVAILABLE", 1)]


@pytest.mark.parametrize("kind", [GAP, REJECT])
def test_gaps_and_rejected_records_are_archived(kind: int) -> None:
    leader = ShareLeader()
    leader.take()
    leader.acknowledge(2, 3, kind)
    assert leader.states()[1] == (2, 3, "ARCHIVED", 1)


def test_rejected_records_go_to_the_dead_letters_if_there_is_a_topic_for_them() -> None:
    leader = ShareLeader(WITH_DEAD_LETTERS)
    leader.take()
    leader.acknowledge(0, 1, REJECT)
    leader.acknowledge(2, 3, GAP)
    assert leader.states()[:2] == [(0, 1, "ARCHIVING", 1), (2, 3, "ARCHIVED", 1)]


def test_released_records_are_available_with_the_count_unchanged() -> None:
    leader = ShareLeader()
    leader.take()
    leader.acknowledge(0, 9, RELEASE)
    assert leader.states() == [(0, 9, "AVAILABLE", 1)]
    assert leader.take("other") == [Acquired(0, 9, 2)]


@pytest.mark.parametrize(("has_dead_letters", "state"), [(False, "ARCHIVED"), (True, "ARCHIVING")])
@pytest.mark.parametrize("event", ["release", "timeout", "session end"])
def test_a_record_that_was_delivered_as_often_as_allowed_does_not_come_again(
    event: str, has_dead_letters: bool, state: str
) -> None:
    leader = ShareLeader(replace(SETTINGS, has_dead_letters=has_dead_letters, delivery_count_limit=2))
    for count in (1, 2):
        assert leader.take() == [Acquired(0, 9, count)]
        if event == "release":
            leader.acknowledge(0, 9, RELEASE)
        elif event == "timeout":
            leader.advance(SETTINGS.lock_ms)
        else:
            leader.shares.release("m", leader.now_ms)
    assert leader.states() == [(0, 9, state, 2)]
    assert leader.shares.next_fetch_offset() == 10


def test_what_is_taken_back_was_not_delivered() -> None:
    leader = ShareLeader(replace(SETTINGS, delivery_count_limit=2))
    for count in (1, 2):
        for _ in range(3):
            taken = leader.fetch()
            assert taken.ranges == [Acquired(0, 9, count)]
            leader.save()
            leader.shares.take_back(taken.hold - 1, taken.ranges, until_ms=leader.now_ms + 50)
            assert leader.states() == [(0, 9, "ACQUIRED", count - 1)], "another acquisition"
            leader.shares.take_back(taken.hold, taken.ranges, until_ms=leader.now_ms + 50)
            assert leader.states() == [(0, 9, "AVAILABLE", count - 1)]
            assert leader.shares.next_fetch_offset() == 10, "it has to wait"
            leader.advance(50)
        assert leader.take() == [Acquired(0, 9, count)]
        leader.acknowledge(0, 9, RELEASE if count == 1 else ACCEPT)
    leader.save()
    leader.change_leader()
    assert leader.take() == [Acquired(10, 19, 1)]


def test_what_is_taken_back_and_deleted_by_then_does_not_come_again() -> None:
    leader = ShareLeader()
    taken = leader.fetch()
    leader.shares.log_start(5)
    leader.shares.take_back(taken.hold, taken.ranges)
    assert leader.states() == [(5, 9, "AVAILABLE", 0)]
    assert leader.take(records_max=5) == [Acquired(5, 9, 1)]


def test_what_is_not_sent_in_time_was_not_delivered() -> None:
    leader = ShareLeader(replace(SETTINGS, delivery_count_limit=2))
    for _ in range(3):
        assert leader.fetch().ranges == [Acquired(0, 9, 1)]
        leader.advance(SETTINGS.lock_ms)
        assert leader.states() == [(0, 9, "AVAILABLE", 0)]
    leader.fetch()
    leader.shares.release("m", leader.now_ms)
    assert leader.save() == [], "nor is there anything to write"
    assert leader.take() == [Acquired(0, 9, 1)]


def test_the_lock_begins_when_the_record_is_sent() -> None:
    leader = ShareLeader()
    taken = leader.fetch()
    leader.advance(SETTINGS.lock_ms - 1)
    leader.shares.sent(taken.hold, taken.ranges, now_ms=leader.now_ms)
    leader.advance(SETTINGS.lock_ms - 1)
    assert leader.states() == [(0, 9, "ACQUIRED", 1)]
    assert leader.acknowledge(0, 9, ACCEPT) == ErrorCode.NONE


def test_a_member_can_acknowledge_what_it_had_before_it_is_sent_again() -> None:
    leader = ShareLeader()
    leader.take()
    leader.advance(SETTINGS.lock_ms)
    again = leader.fetch()
    assert leader.acknowledge(0, 4, ACCEPT) == ErrorCode.NONE
    assert leader.acknowledge(5, 6, RELEASE) == ErrorCode.NONE
    assert leader.shares.still_held(again.hold, again.ranges) == [Acquired(7, 9, 2)]
    assert leader.states() == [
        (0, 4, "ACKNOWLEDGED", 1),
        (5, 6, "AVAILABLE", 1),
        (7, 9, "ACQUIRED", 1),
    ]


def test_an_acquisition_is_not_taken_for_a_later_one_of_the_same_member() -> None:
    leader = ShareLeader()
    slow = leader.fetch()
    leader.advance(SETTINGS.lock_ms)
    again = leader.fetch()
    assert leader.shares.still_held(slow.hold, slow.ranges) == []
    assert leader.shares.still_held(again.hold, again.ranges) == again.ranges


def test_a_lock_ends_when_its_time_is_up() -> None:
    leader = ShareLeader()
    leader.take()
    assert leader.shares.deadline_ms == SETTINGS.lock_ms
    leader.advance(SETTINGS.lock_ms - 1)
    assert leader.states() == [(0, 9, "ACQUIRED", 1)]
    leader.advance(1)
    assert leader.states() == [(0, 9, "AVAILABLE", 1)]
    assert leader.shares.deadline_ms is None
    assert leader.acknowledge(0, 9, ACCEPT) == ErrorCode.INVALID_RECORD_STATE


def test_the_deadline_is_that_of_the_locks_that_are_left() -> None:
    leader = ShareLeader()
    leader.take()
    leader.advance(300)
    leader.take()
    leader.acknowledge(0, 9, ACCEPT)
    leader.advance(700)  # a look that finds the first batch accepted
    assert leader.shares.deadline_ms == 1_300


def test_renewed_records_have_a_new_lock_and_nothing_is_written() -> None:
    leader = ShareLeader()
    leader.take()
    leader.save()
    leader.advance(900)
    assert leader.acknowledge(0, 4, RENEW, is_renew_request=True) == ErrorCode.NONE
    assert leader.save() == []
    leader.advance(100)
    assert leader.states() == [(0, 4, "ACQUIRED", 1), (5, 9, "AVAILABLE", 1)]
    leader.advance(900)
    assert leader.states() == [(0, 9, "AVAILABLE", 1)]


def test_the_end_of_a_session_releases_what_the_member_holds_and_nothing_else() -> None:
    leader = ShareLeader()
    leader.take("a")
    leader.take("b")
    leader.take("a")
    leader.shares.release("a", leader.now_ms)
    assert [each[2] for each in leader.states()] == ["AVAILABLE", "ACQUIRED", "AVAILABLE"]


def test_each_offset_can_have_its_own_type() -> None:
    leader = ShareLeader()
    leader.take()
    types = [ACCEPT, ACCEPT, RELEASE, REJECT, GAP, ACCEPT, RENEW, RENEW, RELEASE, ACCEPT]
    assert leader.acknowledge(0, 9, *types, is_renew_request=True) == ErrorCode.NONE
    assert leader.states() == [
        (0, 1, "ACKNOWLEDGED", 1),
        (2, 2, "AVAILABLE", 1),
        (3, 4, "ARCHIVED", 1),
        (5, 5, "ACKNOWLEDGED", 1),
        (6, 7, "ACQUIRED", 1),
        (8, 8, "AVAILABLE", 1),
        (9, 9, "ACKNOWLEDGED", 1),
    ]


@pytest.mark.parametrize(
    "batches",
    [
        [(12, 11, [ACCEPT])],
        [(10, 14, [ACCEPT]), (13, 15, [ACCEPT])],
        [(14, 15, [ACCEPT]), (10, 12, [ACCEPT])],
        [(10, 12, [])],
        [(10, 12, [ACCEPT, ACCEPT])],
        [(10, 12, [ACCEPT] * 4)],
        [(10, 10, [-1])],
        [(10, 10, [4])],
        [(10, 30, [ACCEPT])],
        [(30, 30, [ACCEPT])],
        [(10, 11, [ACCEPT]), (30, 30, [ACCEPT])],
        [(0, 3, [ACCEPT]), (2, 5, [ACCEPT])],  # also below the start offset
    ],
)
def test_bad_requests_are_refused_as_a_whole(batches: list[tuple[int, int, list[int]]]) -> None:
    leader = with_ten_acquired()
    before = leader.states()
    assert acknowledge(leader, *batches) == ErrorCode.INVALID_REQUEST
    assert leader.states() == before


def test_type_5_is_unknown_in_a_renewing_request_too() -> None:
    leader = with_ten_acquired()
    assert acknowledge(leader, (10, 10, [5]), renew=True) == ErrorCode.INVALID_REQUEST
    assert acknowledge(leader, (10, 10, [4]), renew=True) == ErrorCode.NONE


@pytest.mark.parametrize(
    "batches",
    [
        [(20, 29, [ACCEPT])],  # another's
        [(10, 20, [ACCEPT])],  # one of another's
        [(10, 14, [ACCEPT]), (14, 15, [ACCEPT])],  # an offset twice
        [(12, 13, [ACCEPT]), (20, 20, [RELEASE])],  # the second one is wrong: neither counts
    ],
)
def test_records_that_the_member_does_not_hold_are_refused(batches: list[tuple[int, int, list[int]]]) -> None:
    leader = with_ten_acquired()
    before = leader.states()
    assert acknowledge(leader, *batches) == ErrorCode.INVALID_RECORD_STATE
    assert leader.states() == before


@pytest.mark.parametrize("first", [ACCEPT, REJECT, GAP, RELEASE])
def test_a_second_acknowledgement_is_refused(first: int) -> None:
    leader = with_ten_acquired()
    assert leader.acknowledge(12, 13, first) == ErrorCode.NONE
    assert leader.acknowledge(13, 14, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    leader.save()
    assert leader.acknowledge(13, 14, ACCEPT) == ErrorCode.INVALID_RECORD_STATE


def test_renewing_is_refused_where_the_group_does_not_allow_it() -> None:
    leader = ShareLeader(replace(SETTINGS, may_renew=False))
    leader.take()
    assert leader.acknowledge(0, 0, RENEW, is_renew_request=True) == ErrorCode.INVALID_RECORD_STATE
    assert leader.acknowledge(0, 0, ACCEPT, is_renew_request=True) == ErrorCode.NONE


def test_below_the_start_offset_everything_succeeds_and_nothing_happens() -> None:
    leader = with_ten_acquired()
    before = leader.states()
    assert leader.acknowledge(0, 9, RELEASE) == ErrorCode.NONE
    assert leader.states() == before
    assert leader.save()[-1].start_offset == 10


def test_of_a_batch_across_the_start_offset_the_rest_counts() -> None:
    leader = with_ten_acquired()
    assert leader.acknowledge(5, 12, *[REJECT] * 5, ACCEPT, ACCEPT, RELEASE) == ErrorCode.NONE
    assert leader.states()[:2] == [(10, 11, "ACKNOWLEDGED", 1), (12, 12, "AVAILABLE", 1)]


def test_with_nothing_in_the_window_there_is_nothing_to_acknowledge() -> None:
    assert ShareLeader().acknowledge(0, 9, ACCEPT) == ErrorCode.INVALID_RECORD_STATE


def test_a_late_acknowledgement_counts_as_long_as_nobody_else_has_the_record() -> None:
    leader = ShareLeader()
    leader.take()
    leader.now_ms += 2 * SETTINGS.lock_ms
    assert leader.acknowledge(0, 9, ACCEPT) == ErrorCode.NONE


def test_finished_states_have_no_way_out() -> None:
    left = {source for transition in TRANSITIONS for source in transition.sources}
    assert left == {RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ARCHIVING}
