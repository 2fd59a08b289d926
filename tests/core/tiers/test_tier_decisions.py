"""What is copied, what may be deleted, and which history counts."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from forebay.core.partition.retention import RetentionPolicy
from forebay.core.tiers import manifest_changes as changes
from forebay.core.tiers.claiming import lacks_segments, lists_too_little, own_history
from forebay.core.tiers.lineage import end_of_epoch, lost_from
from forebay.core.tiers.planning import Copy, copy_lag, local_deletion, retained_from, segments_to_copy
from forebay.core.tiers.rebuilt_manifest import FoundSegment, listed_segments, runs_of_segments
from forebay.wire.tiers.manifest import LOSS_ACCEPTED, REBUILT, Manifest, RemoteSegment

TOPIC_ID = bytes(16)


class Local(NamedTuple):
    base_offset: int
    next_offset: int
    size: int = 100
    largest_timestamp: int = 0


def remote(base: int, end: int, *epochs: tuple[int, int]) -> RemoteSegment:
    return RemoteSegment(f"{base}-{end}", base, end, 100, 120, 0, epochs or ((0, base),), 0, "", 0)


def manifest(*segments: RemoteSegment, **fields: int | str) -> Manifest:
    return Manifest("t", TOPIC_ID, 0, segments=segments)._replace(**fields)  # type: ignore[arg-type]


LOCAL = [Local(0, 10), Local(10, 20), Local(20, 30), Local(30, 40)]


@pytest.mark.parametrize(
    ("remote_end", "stable", "copies"),
    [
        (0, 40, [Copy(0, 10), Copy(10, 20), Copy(20, 30)]),
        (10, 40, [Copy(10, 20), Copy(20, 30)]),
        (13, 40, [Copy(13, 20), Copy(20, 30)]),
        (0, 19, [Copy(0, 10)]),
        (30, 40, []),
        (0, 9, []),
    ],
)
def test_closed_segments_are_copied_below_the_stable_offset(
    remote_end: int, stable: int, copies: list[Copy]
) -> None:
    assert segments_to_copy(LOCAL[:-1], remote_end, stable_offset=stable, count_max=9) == copies
    assert segments_to_copy(LOCAL[:-1], remote_end, stable_offset=stable, count_max=1) == copies[:1]


def test_the_lag_is_what_is_closed_and_not_copied() -> None:
    assert copy_lag(LOCAL, -1) == (3, 300)
    assert copy_lag(LOCAL, 20) == (1, 100)
    assert copy_lag(LOCAL, 30) == (0, 0)


@pytest.mark.parametrize(("copied_to", "count"), [(-1, 0), (9, 0), (10, 1), (25, 2), (40, 3)])
def test_no_local_segment_goes_that_the_manifest_does_not_have(copied_to: int, count: int) -> None:
    policy = RetentionPolicy(retention_bytes=50)
    plan = local_deletion(LOCAL, policy, now_ms=0, copied_to=copied_to, log_start_offset=0, high_watermark=40)
    assert plan.segments == count


@pytest.mark.parametrize(("copied_to", "next_at"), [(9, None), (10, 430), (40, 430)])
def test_it_is_known_how_large_the_log_is_when_the_next_segment_may_go(
    copied_to: int, next_at: int | None
) -> None:
    policy = RetentionPolicy(retention_bytes=330)
    plan = local_deletion(LOCAL, policy, now_ms=0, copied_to=copied_to, log_start_offset=0, high_watermark=40)
    assert plan == (0, False, next_at)


def test_a_new_leader_deletes_nothing_beyond_its_high_watermark() -> None:
    policy = RetentionPolicy(retention_bytes=50)
    plan = local_deletion(LOCAL, policy, now_ms=0, copied_to=40, log_start_offset=0, high_watermark=15)
    assert plan.segments == 1


def test_an_old_active_segment_is_closed_so_that_it_can_be_copied() -> None:
    policy = RetentionPolicy(retention_ms=1000)
    plan = local_deletion(LOCAL, policy, now_ms=5000, copied_to=40, log_start_offset=0, high_watermark=40)
    assert plan == (3, True, None)


def test_retention_counts_both_parts() -> None:
    both = manifest(remote(0, 10), remote(10, 20), remote(20, 30))

    def start(retention_bytes: int = -1, retention_ms: int = -1) -> int:
        kept = retained_from(
            both,
            LOCAL[2:],
            RetentionPolicy(retention_bytes=retention_bytes, retention_ms=retention_ms),
            now_ms=10_000,
            start_offset=0,
            high_watermark=40,
        )
        return kept.start_offset

    assert start(retention_bytes=400) == 0
    assert start(retention_bytes=299) == 10
    assert start(retention_bytes=100) == 30
    assert start(retention_ms=20_000) == 0
    assert start(retention_ms=5_000) == 40


@pytest.mark.parametrize(
    ("segments", "epochs", "log_start", "log_end", "expected"),
    [
        # One leader after the other, without loss.
        ([remote(0, 10, (0, 0))], [(0, 0), (1, 10)], 0, 20, None),
        ([remote(0, 10, (0, 0)), remote(10, 20, (0, 10), (1, 15))], [(1, 15)], 20, 30, None),
        # The leader's log has fewer messages of the epoch than were copied.
        ([remote(0, 10, (0, 0))], [(0, 0), (1, 7)], 0, 20, 7),
        ([remote(0, 10, (0, 0))], [(0, 0)], 0, 7, 7),
        # An epoch that the leader has never heard of.
        ([remote(0, 10, (0, 0)), remote(10, 20, (2, 10))], [(0, 0), (3, 10)], 0, 30, 10),
        # The local log begins later: what lies below cannot be compared, but for epochs that go back.
        ([remote(0, 50, (4, 0)), remote(50, 60, (5, 50))], [(5, 50)], 55, 70, None),
        ([remote(0, 50, (4, 0)), remote(50, 60, (7, 50))], [(5, 50)], 55, 70, 50),
        # An empty log proves nothing beyond its beginning.
        ([remote(0, 10, (0, 0))], [], 0, 0, 0),
        ([remote(0, 10, (0, 0))], [], 10, 10, None),
    ],
)
def test_messages_of_a_lost_history_are_found_by_their_epochs(
    segments: list[RemoteSegment],
    epochs: list[tuple[int, int]],
    log_start: int,
    log_end: int,
    expected: int | None,
) -> None:
    assert lost_from(manifest(*segments), epochs, log_start, log_end) == expected


@pytest.mark.parametrize(
    ("writer_epoch", "epochs", "log_end", "expected"),
    [
        (3, [(3, 0), (5, 120)], 150, None),
        (3, [(5, 100)], 150, None),
        (5, [(5, 0)], 100, None),
        # The leader has an older log, or none, and takes messages at offsets that the one before had deleted.
        (3, [(2, 0), (5, 50)], 150, 50),
        (3, [(5, 0)], 150, 0),
        (5, [(5, 0)], 90, 90),
    ],
)
def test_what_was_deleted_in_a_lost_history_is_not_deleted_in_the_leaders(
    writer_epoch: int, epochs: list[tuple[int, int]], log_end: int, expected: int | None
) -> None:
    deleted = manifest(start_offset=100, leader_epoch=writer_epoch)
    assert lost_from(deleted, epochs, epochs[0][1], log_end) == expected
    if expected is not None:
        expired = deleted._replace(segments=(remote(90, 110, (3, 90)),))
        assert lost_from(expired, epochs, epochs[0][1], log_end) == expected
        after = changes.cut_off(expired, expected, 0)
        assert (after.start_offset, after.first_offset, after.next_offset) == (expected,) * 3


@pytest.mark.parametrize(
    ("epoch", "end"),
    [(0, (0, 5)), (1, (0, 5)), (2, (2, 15)), (3, (2, 15)), (4, (4, 25)), (5, None), (9, None)],
)
def test_the_end_of_an_epoch_is_where_the_next_begins(epoch: int, end: tuple[int, int] | None) -> None:
    segments = (
        remote(0, 10, (0, 0), (2, 5)),
        remote(10, 20, (2, 5), (4, 15)),
        remote(20, 30, (4, 15), (5, 25)),
    )
    assert end_of_epoch(manifest(*segments), epoch) == end


def test_what_came_before_the_object_store_begins_ended_there() -> None:
    assert end_of_epoch(manifest(remote(10, 20, (2, 5))), 1) == (1, 10)
    assert end_of_epoch(manifest(), 1) is None


def test_a_lost_history_is_cut_off_and_its_objects_stay_for_a_while() -> None:
    before = manifest(remote(0, 10), remote(10, 20, (0, 10), (1, 15)), remote(20, 30))
    after = changes.cut_off(before, 15, 99)
    assert [(s.base_offset, s.next_offset) for s in after.segments] == [(0, 10), (10, 15)]
    assert after.segments[-1].epochs == ((0, 10),)
    assert [(doomed.key, doomed.delete_at_ms) for doomed in after.doomed] == [("20-30", 99)]
    assert after.version == before.version + 1


def test_an_object_has_an_owner_from_before_it_exists_until_it_is_deleted() -> None:
    first = changes.with_pending(changes.claimed(manifest(), 1, "a", 0), ["0-10", "10-20"])
    assert first.pending == ("0-10", "10-20")
    copied = changes.with_copied(first, [remote(0, 10)])
    assert (copied.pending, copied.next_offset) == (("10-20",), 10)
    taken_over = changes.claimed(copied, 2, "b", 50)
    assert taken_over.pending == () and [doomed.key for doomed in taken_over.doomed] == ["10-20"]
    expired = changes.started_at(taken_over, 10, 60)
    assert expired.segments == () and expired.next_offset == 10
    assert changes.due_for_deletion(expired, 55, 9) == ["10-20"]
    assert changes.due_for_deletion(expired, 60, 9) == ["10-20", "0-10"]
    assert changes.without_doomed(expired, {"10-20", "0-10"}).doomed == ()


def test_a_leader_that_was_replaced_cannot_claim() -> None:
    with pytest.raises(AssertionError):
        changes.claimed(manifest(leader_epoch=3), 2, "a", 0)


def test_segments_that_were_deleted_while_they_were_copied_are_not_entered() -> None:
    copied = [remote(10, 20), remote(20, 30)]
    pending = changes.with_pending(manifest(remote(0, 10)), ["10-20", "20-30"])
    assert changes.fitting(pending, copied) == copied
    assert changes.fitting(changes.started_at(pending, 5, 0), copied) == copied
    assert changes.fitting(changes.started_at(pending, 20, 0), copied) == copied[1:]
    assert changes.fitting(changes.started_at(pending, 25, 0), copied) == copied[1:]
    assert changes.fitting(changes.started_at(pending, 30, 0), copied) == []
    assert changes.fitting(changes.started_at(pending, 15, 0), copied) == copied


def test_the_epoch_that_a_log_begins_with_may_have_begun_before() -> None:
    """Its replica began there after it had fallen behind, and may know of an epoch from before that."""
    copied = manifest(remote(0, 15, (0, 0), (1, 11)), leader_epoch=1)
    assert lost_from(copied, [(0, 0), (1, 15), (2, 21)], 15, 30) is None
    assert lost_from(copied, [(0, 0), (1, 15), (2, 21)], 14, 30) == 11


# -- a manifest that is made anew ----------------------------------------------------------------------------


def found(epoch: int, base: int, end: int, *epochs: tuple[int, int]) -> FoundSegment:
    return FoundSegment(epoch, remote(base, end, *(epochs or ((epoch, base),))))


def spans(*segments: FoundSegment) -> list[tuple[int, int, str]]:
    listed = listed_segments(segments)
    assert listed == listed_segments(segments[::-1]), "the order of a listing does not matter"
    return [(each.base_offset, each.next_offset, each.key) for each in listed]


def test_segments_of_one_leader_after_the_other_are_listed() -> None:
    assert spans(found(1, 0, 10), found(1, 10, 20), found(3, 20, 25)) == [
        (0, 10, "0-10"),
        (10, 20, "10-20"),
        (20, 25, "20-25"),
    ]
    assert listed_segments([]) == ()


def test_what_an_earlier_leader_has_copied_behind_the_last_segment_of_the_last_is_listed() -> None:
    """The last one had to copy again what its log had, and the manifest that was lost did not list."""
    again = FoundSegment(3, remote(0, 20, (1, 0)))
    assert spans(again, found(1, 20, 30), found(2, 30, 40), found(2, 45, 50)) == [
        (0, 20, "0-20"),
        (20, 30, "20-30"),
        (30, 40, "30-40"),
    ]
    of_an_older_history = FoundSegment(2, remote(20, 30, (0, 20)))
    assert spans(again, of_an_older_history) == [(0, 20, "0-20")]


def test_before_a_gap_nothing_is_listed() -> None:
    assert spans(found(1, 0, 10), found(1, 11, 20)) == [(11, 20, "11-20")]


def test_what_a_later_leader_has_copied_counts_and_what_others_have_before_that() -> None:
    lost = found(1, 10, 20), found(1, 20, 30), found(1, 30, 90)
    assert spans(found(1, 0, 10), *lost, found(2, 15, 26)) == [
        (0, 10, "0-10"),
        (10, 15, "10-20"),
        (15, 26, "15-26"),
    ]


def test_epochs_do_not_go_back_in_what_is_listed() -> None:
    """The last leader has copied messages of epoch 1; those of epoch 2 before them are lost."""
    assert spans(found(2, 5, 12, (1, 5), (2, 8)), found(3, 10, 20, (1, 10), (3, 15))) == [(10, 20, "10-20")]
    assert spans(found(2, 5, 12, (1, 5), (2, 11)), found(3, 10, 20, (1, 10), (3, 15)))[0] == (5, 10, "5-12")


def test_of_several_attempts_of_a_leader_the_longest_is_listed() -> None:
    again = FoundSegment(1, remote(5, 20, (1, 5)))
    assert spans(found(1, 0, 20), again, found(1, 20, 30)) == [(0, 20, "0-20"), (20, 30, "20-30")]


# -- the manifest that a leader finds ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log_start", "known_end", "lacks"),
    [(20, -1, False), (25, -1, True), (0, 20, False), (0, 25, True), (20, 20, False)],
)
def test_an_older_manifest_ends_before_the_log_begins_or_before_the_one_known(
    log_start: int, known_end: int, lacks: bool
) -> None:
    found = manifest(remote(0, 10), remote(10, 20), leader_epoch=0)
    assert lacks_segments(found, [(0, 0)], log_start, 40, known_end=known_end) is lacks


def test_whoever_accepts_a_loss_is_believed() -> None:
    found = manifest(remote(0, 10), writer=LOSS_ACCEPTED)
    assert not lacks_segments(found, [(0, 0)], 20, 40, known_end=30)
    own = own_history(found, [(0, 20)], 20, 40, 99)
    assert (own.manifest.start_offset, own.manifest.segments) == (20, ()) and own.losses


def test_without_segments_nothing_is_missing_and_neither_is_what_a_lost_history_had() -> None:
    assert not lacks_segments(manifest(), [(0, 30)], 30, 40)
    of_another = manifest(remote(0, 10, (1, 0)), remote(10, 20, (3, 10)), leader_epoch=3)
    assert not lacks_segments(of_another, [(1, 0), (4, 8)], 30, 40), "it is cut off at 8"


def test_what_a_manifest_made_anew_does_not_list_was_not_deleted() -> None:
    log = ([(0, 5)], 5, 40, 99)
    anew = own_history(manifest(remote(10, 20), writer=REBUILT), *log).manifest
    assert (anew.start_offset, anew.segments, anew.doomed) == (5, (), ()), "another replica may need them"
    whole = own_history(manifest(remote(0, 10), remote(10, 20), writer=REBUILT), *log)
    assert [each.key for each in whole.manifest.segments] == ["0-10", "10-20"] and not whole.losses


def test_what_was_made_anew_twice_is_whole_the_third_time() -> None:
    """Leader 5 had copied again what leader 1 had copied in the middle; the next one went on behind both."""
    middle = FoundSegment(5, remote(20, 30, (1, 0)))
    ends = found(1, 0, 20), found(1, 30, 40)
    assert [key for _, _, key in spans(*ends, middle, found(6, 40, 50))] == [
        "0-20",
        "20-30",
        "30-40",
        "40-50",
    ]


def test_a_lost_history_before_a_gap_does_not_hide_the_gap() -> None:
    """What the leader has copied instead of it is missing, as far as its log."""
    listed = (remote(0, 20, (2, 0)), remote(20, 35, (2, 20)), remote(35, 40, (3, 35)))
    log = ([(5, 35)], 80, 100)
    assert lacks_segments(manifest(*listed, writer=REBUILT, leader_epoch=3), *log)
    assert not lacks_segments(manifest(*listed, writer=REBUILT, leader_epoch=3), [(5, 35)], 35, 100)


def test_gaps_cut_what_was_found_into_runs() -> None:
    segments = [found(1, 0, 10), found(1, 12, 20), found(2, 20, 30), found(3, 31, 40)]
    runs = [[each.key for each in run] for run in runs_of_segments(segments)]
    assert runs == [["31-40"], ["12-20", "20-30"], ["0-10"]]
    of_a_lost_history = found(2, 0, 10)
    assert len(runs_of_segments([of_a_lost_history, found(3, 11, 20, (1, 11), (3, 15))])) == 1


def test_one_without_segments_lists_too_little_if_it_begins_before_the_log() -> None:
    log = ([(0, 30)], 30, 40)
    assert lists_too_little(manifest(), *log)
    assert not lists_too_little(manifest(start_offset=30), *log)
    assert not lists_too_little(manifest(writer=LOSS_ACCEPTED), *log)
    assert not lists_too_little(manifest(remote(0, 10)), *log), "it is an older one"
