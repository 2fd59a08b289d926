"""The rules of the share coordinator: who may read and write, and what is written of it."""

from __future__ import annotations

import pytest

from forebay.config import ShareCoordinatorConfig
from forebay.core.shares.coordinator.answers import failure
from forebay.core.shares.coordinator.key import coordinator_key, parse_coordinator_key
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.core.step import RequestInfo, StateRecord
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.coordinator_partition import partition_for
from forebay.wire.messages.write_share_group_state import WriteShareGroupStateRequest, WriteStateData
from forebay.wire.state.share_state import ShareSnapshotValue, ShareUpdateValue
from forebay.wire.state.versioned import unpack, version_of
from support.machines.share_coordinator import (
    KEY,
    ORDERS,
    PAYMENTS,
    ShareCoordinator,
    initialize_request,
    read_request,
    write_partition,
    write_request,
)

SNAPSHOT, UPDATE = 0, 1


def led(**options: int) -> ShareCoordinator:
    """A coordinator of one state that the leader of epoch 0 has read."""
    coordinator = ShareCoordinator(config=ShareCoordinatorConfig(**options))
    assert coordinator.initialize(start=0) == ErrorCode.NONE
    assert coordinator.read().error_code == ErrorCode.NONE
    return coordinator


def kinds(coordinator: ShareCoordinator) -> list[int]:
    return [version_of(record.key) for record in coordinator.log]


def read_ranges(coordinator: ShareCoordinator, leader: int = 0) -> list[tuple[int, int, int, int]]:
    result = coordinator.read(leader=leader)
    assert result.error_code == ErrorCode.NONE
    return [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in result.state_batches
    ]


class TestInitialize:
    def test_writes_a_snapshot_with_everything(self) -> None:
        coordinator = ShareCoordinator()
        assert coordinator.initialize(epoch=3, start=17) == ErrorCode.NONE
        (record,) = coordinator.log
        assert version_of(record.key) == SNAPSHOT
        wall_ms = coordinator.now.wall_ms
        assert unpack(ShareSnapshotValue, record.value or b"") == ShareSnapshotValue(
            snapshot_epoch=0,
            state_epoch=3,
            leader_epoch=-1,
            start_offset=17,
            delivery_complete_count=0,
            create_timestamp_ms=wall_ms,
            write_timestamp_ms=wall_ms,
        )

    def test_without_a_start_offset_nothing_is_known_to_be_complete(self) -> None:
        coordinator = ShareCoordinator()
        coordinator.initialize(start=-1)
        assert (coordinator.state().start_offset, coordinator.state().complete_count) == (-1, -1)

    def test_a_repetition_is_no_record(self) -> None:
        coordinator = ShareCoordinator()
        for _ in range(2):
            assert coordinator.initialize(epoch=3, start=17) == ErrorCode.NONE
        assert len(coordinator.log) == 1

    def test_within_an_epoch_the_first_start_counts(self) -> None:
        coordinator = ShareCoordinator()
        coordinator.initialize(epoch=3, start=17)
        assert coordinator.initialize(epoch=3, start=5) == ErrorCode.NONE
        assert (coordinator.state().start_offset, len(coordinator.log)) == (17, 1)

    def test_one_that_comes_late_does_not_undo_what_the_leader_did_since(self) -> None:
        coordinator = led()
        coordinator.write((0, 9, 2, 1), start=10)
        assert coordinator.initialize(epoch=1, start=-1) == ErrorCode.NONE
        assert coordinator.state().start_offset == 10

    def test_a_higher_epoch_begins_anew_and_merges_nothing(self) -> None:
        coordinator = led()
        coordinator.write((5, 9, 2, 1), complete=5)
        assert coordinator.initialize(epoch=2, start=3) == ErrorCode.NONE
        state = coordinator.state()
        assert (state.state_epoch, state.start_offset, state.ranges, state.complete_count) == (2, 3, (), 0)
        assert state.snapshot_epoch == 1

    def test_a_lower_epoch_is_fenced(self) -> None:
        coordinator = ShareCoordinator()
        coordinator.initialize(epoch=3)
        assert coordinator.initialize(epoch=2) == ErrorCode.FENCED_STATE_EPOCH
        assert coordinator.state().state_epoch == 3

    @pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -2)])
    def test_nonsense_is_refused(self, epoch: int, start: int) -> None:
        coordinator = ShareCoordinator()
        assert coordinator.initialize(epoch=epoch, start=start) == ErrorCode.INVALID_REQUEST
        assert coordinator.log == []


class TestForgetLost:
    """What a leader has forgotten because its log has lost the messages."""

    def test_what_lies_behind_goes_and_the_rest_stays(self) -> None:
        coordinator = led()
        coordinator.write((2, 3, 2, 1), (4, 9, 4, 5), (12, 15, 0, 2), complete=8)
        found = coordinator.read(leader=1)
        assert (found.snapshot_epoch, found.previous_leader_epoch) == (0, 0)
        assert coordinator.forget_lost(6, found.snapshot_epoch, leader=1) == ErrorCode.NONE
        assert read_ranges(coordinator, leader=1) == [(2, 3, 2, 1), (4, 5, 4, 5)]
        assert (coordinator.state().start_offset, coordinator.state().complete_count) == (0, 4)
        assert coordinator.state().leader_epoch == 1
        assert dict(coordinator.fresh().states) == dict(coordinator.shard.states)

    def test_the_start_offset_goes_back(self) -> None:
        coordinator = led()
        coordinator.write((10, 11, 2, 1), start=10, complete=2)
        assert coordinator.forget_lost(5, coordinator.read().snapshot_epoch) == ErrorCode.NONE
        state = coordinator.state()
        assert (state.start_offset, state.ranges, state.complete_count) == (5, (), 0)

    def test_one_that_comes_twice_or_late_forgets_nothing_that_came_since(self) -> None:
        coordinator = led()
        coordinator.write(start=10)
        snapshot = coordinator.read().snapshot_epoch
        for _ in range(2):
            assert coordinator.forget_lost(5, snapshot) == ErrorCode.NONE
        coordinator.write(start=10)
        assert coordinator.forget_lost(5, snapshot) == ErrorCode.FENCED_STATE_EPOCH
        assert coordinator.state().start_offset == 10

    def test_another_leader_or_state_is_refused(self) -> None:
        coordinator = led()
        coordinator.write(start=10)
        assert coordinator.forget_lost(5, 0, leader=3) == ErrorCode.FENCED_LEADER_EPOCH
        assert coordinator.forget_lost(5, 0, epoch=2) == ErrorCode.FENCED_STATE_EPOCH
        assert coordinator.forget_lost(5, 7) == ErrorCode.FENCED_STATE_EPOCH
        assert coordinator.state().start_offset == 10

    def test_a_state_that_no_leader_has_read_says_so(self) -> None:
        coordinator = ShareCoordinator()
        coordinator.initialize(start=7)
        assert coordinator.read(leader=2).previous_leader_epoch == -1
        assert coordinator.read(leader=3).previous_leader_epoch == 2

    def test_a_leader_that_reads_again_because_the_answer_was_lost_is_told_the_same(self) -> None:
        """Else it would take the start that an administrator has chosen in its term for a loss."""
        coordinator = ShareCoordinator()
        coordinator.initialize(start=7)
        assert [coordinator.read(leader=2).previous_leader_epoch for _ in range(3)] == [-1, -1, -1]
        coordinator.write((7, 8, 2, 1), leader=2)
        assert coordinator.read(leader=2).previous_leader_epoch == 2

    def test_a_state_tells_who_wrote_it_however_many_have_read_it_since(self) -> None:
        """They may have ended before they looked whether their logs still have its messages."""
        coordinator = ShareCoordinator(config=ShareCoordinatorConfig(updates_per_snapshot=2))
        coordinator.initialize(start=7)
        assert [coordinator.read(leader=leader).written_epoch for leader in (1, 2, 2)] == [-1, -1, -1]
        coordinator.write((7, 8, 2, 1), leader=2)
        assert [coordinator.read(leader=leader).written_epoch for leader in (2, 3, 4, 5)] == [2, 2, 2, 2]
        coordinator.write((7, 8, 2, 1), leader=5)
        assert coordinator.read(leader=5).written_epoch == 2, "that was said before"
        coordinator.write(start=9, leader=5)
        assert coordinator.read(leader=6).written_epoch == 5
        assert dict(coordinator.fresh().states) == dict(coordinator.shard.states)


class TestRead:
    def test_a_new_leader_writes_its_epoch_and_so_fences_the_one_before(self) -> None:
        coordinator = led()
        coordinator.write((5, 9, 2, 1), complete=5)
        before = len(coordinator.log)
        assert read_ranges(coordinator, leader=4) == [(5, 9, 2, 1)]
        (record,) = coordinator.log[before:]
        assert version_of(record.key) == UPDATE
        assert unpack(ShareUpdateValue, record.value or b"") == ShareUpdateValue(
            snapshot_epoch=0, leader_epoch=4, start_offset=0, delivery_complete_count=5
        )
        assert coordinator.write((5, 9, 4, 1)) == ErrorCode.FENCED_LEADER_EPOCH
        assert coordinator.read(leader=3).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert coordinator.write((5, 9, 4, 1), leader=4) == ErrorCode.NONE

    def test_the_same_leader_reads_again_without_a_record(self) -> None:
        coordinator = led()
        before = len(coordinator.log)
        result = coordinator.read()
        assert (result.state_epoch, result.start_offset, result.state_batches) == (1, 0, [])
        assert len(coordinator.log) == before

    def test_a_state_that_was_never_initialized_is_an_error(self) -> None:
        coordinator = ShareCoordinator()
        result = coordinator.read()
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert "never initialized" in result.error_message

    def test_a_negative_epoch_is_refused(self) -> None:
        assert led().read(leader=-1).error_code == ErrorCode.INVALID_REQUEST


class TestWrite:
    def test_is_an_update_of_what_has_changed(self) -> None:
        coordinator = led()
        assert coordinator.write((3, 4, 2, 1), (1, 2, 2, 1), start=1, complete=4) == ErrorCode.NONE
        record = coordinator.log[-1]
        assert version_of(record.key) == UPDATE
        value = unpack(ShareUpdateValue, record.value or b"")
        assert (value.snapshot_epoch, value.leader_epoch) == (0, 0)
        assert (value.start_offset, value.delivery_complete_count) == (1, 4)
        assert [(each.first_offset, each.last_offset) for each in value.state_batches] == [(1, 4)]

    def test_ranges_below_the_start_are_cut(self) -> None:
        coordinator = led()
        coordinator.write((0, 9, 2, 1))
        coordinator.write((10, 12, 0, 2), start=6)
        assert read_ranges(coordinator) == [(6, 9, 2, 1), (10, 12, 0, 2)]
        coordinator.write(start=13)
        assert read_ranges(coordinator) == []

    def test_the_start_offset_never_goes_back(self) -> None:
        coordinator = led()
        coordinator.write(start=10, complete=0)
        assert coordinator.write((5, 15, 2, 1), start=5, complete=9) == ErrorCode.NONE
        state = coordinator.state()
        assert (state.start_offset, state.complete_count) == (10, 0)
        assert read_ranges(coordinator) == [(10, 15, 2, 1)]

    def test_the_count_belongs_to_the_start_offset(self) -> None:
        coordinator = led()
        coordinator.write((5, 9, 2, 1), start=0, complete=5)
        assert coordinator.state().complete_count == 5
        coordinator.write((11, 11, 0, 1), start=0, complete=3)  # an older one of the same start
        assert coordinator.state().complete_count == 5
        coordinator.write((12, 12, 2, 1), start=-1, complete=6)  # the start is not told, so it is the same
        assert coordinator.state().complete_count == 6
        coordinator.write(start=10, complete=1)
        assert coordinator.state().complete_count == 1
        coordinator.write(start=11, version=0)  # version 0 has no count
        assert coordinator.state().complete_count == -1

    def test_a_repetition_is_no_record(self) -> None:
        coordinator = led()
        for _ in range(3):
            assert coordinator.write((5, 9, 2, 1), start=2, complete=5) == ErrorCode.NONE
        assert kinds(coordinator) == [SNAPSHOT, UPDATE, UPDATE]

    def test_a_repetition_is_answered_when_the_first_one_is_committed(self) -> None:
        coordinator = led()
        coordinator.commits_at_once = False
        request = write_request(KEY, 1, 0, 2, 5, ((5, 9, 2, 1),))
        tickets = [coordinator.send("write", request, 1) for _ in range(2)]
        assert not coordinator.answers.keys() & set(tickets)
        coordinator.commit(len(coordinator.log))
        assert coordinator.answers.keys() >= set(tickets)

    @pytest.mark.parametrize("leader", [0, 2])
    def test_only_the_leader_that_has_read_the_state_may_write(self, leader: int) -> None:
        coordinator = led()
        coordinator.read(leader=1)
        assert coordinator.write((5, 9, 2, 1), leader=leader) == ErrorCode.FENCED_LEADER_EPOCH
        assert read_ranges(coordinator, leader=1) == []

    @pytest.mark.parametrize("epoch", [0, 2])
    def test_only_to_the_state_that_was_read(self, epoch: int) -> None:
        coordinator = led()
        assert coordinator.write((5, 9, 2, 1), epoch=epoch) == ErrorCode.FENCED_STATE_EPOCH
        assert read_ranges(coordinator) == []

    def test_a_leader_of_a_deleted_group_cannot_write_to_its_namesake(self) -> None:
        coordinator = led()
        coordinator.delete()
        coordinator.initialize(epoch=2, start=0)
        assert coordinator.write((0, 9, 2, 1), start=10) == ErrorCode.FENCED_LEADER_EPOCH
        coordinator.read()
        assert coordinator.write((0, 9, 2, 1), start=10) == ErrorCode.FENCED_STATE_EPOCH
        assert coordinator.state().start_offset == 0

    def test_a_write_without_content_tells_whether_the_state_is_the_same(self) -> None:
        coordinator = led()
        coordinator.write((5, 9, 2, 1), start=3, complete=5)
        before = coordinator.state()
        assert coordinator.write() == ErrorCode.NONE
        assert coordinator.state() == before
        assert kinds(coordinator) == [SNAPSHOT, UPDATE, UPDATE]
        coordinator.initialize(epoch=2, start=0)
        assert coordinator.write() == ErrorCode.FENCED_LEADER_EPOCH

    def test_a_state_that_was_never_initialized_is_an_error(self) -> None:
        assert ShareCoordinator().write((5, 9, 2, 1)) == ErrorCode.INVALID_REQUEST

    @pytest.mark.parametrize(
        "piece", [(9, 5, 2, 1), (-1, 5, 2, 1), (5, 9, 1, 1), (5, 9, 5, 1), (5, 9, -1, 1), (5, 9, 2, -1)]
    )
    def test_ranges_that_cannot_be_are_refused(self, piece: tuple[int, int, int, int]) -> None:
        coordinator = led()
        before = len(coordinator.log)
        assert coordinator.write((1, 1, 2, 1), piece) == ErrorCode.INVALID_REQUEST
        assert len(coordinator.log) == before

    def test_negative_numbers_are_refused(self) -> None:
        coordinator = led()
        assert coordinator.write(leader=-1) == ErrorCode.INVALID_REQUEST
        assert coordinator.write(epoch=-1) == ErrorCode.INVALID_REQUEST
        assert coordinator.write(start=-2) == ErrorCode.INVALID_REQUEST
        assert coordinator.write(complete=-2) == ErrorCode.INVALID_REQUEST


class TestSnapshots:
    def test_one_after_so_many_updates(self) -> None:
        coordinator = led(updates_per_snapshot=3)  # reading was the first update
        for n in range(8):
            coordinator.write((n * 2, n * 2, 2, 1))
        assert kinds(coordinator) == [SNAPSHOT, *[UPDATE] * 3, SNAPSHOT, *[UPDATE] * 3, SNAPSHOT, UPDATE]
        assert coordinator.state().snapshot_epoch == 2
        assert len(read_ranges(coordinator)) == 8

    def test_every_time_if_so_configured(self) -> None:
        coordinator = led(updates_per_snapshot=0)
        coordinator.write((1, 1, 2, 1))
        assert kinds(coordinator) == [SNAPSHOT] * 3

    def test_keeps_the_time_of_creation(self) -> None:
        coordinator = led(updates_per_snapshot=0)
        created_ms = coordinator.now.wall_ms
        coordinator.now_ms += 5_000
        coordinator.write((1, 1, 2, 1))
        assert (coordinator.state().created_ms, coordinator.state().written_ms) == (
            created_ms,
            created_ms + 5_000,
        )


class TestDelete:
    def test_writes_a_tombstone(self) -> None:
        coordinator = led()
        assert coordinator.delete() == ErrorCode.NONE
        assert coordinator.log[-1].value is None
        assert not coordinator.shard.states

    def test_what_is_not_there_is_deleted(self) -> None:
        coordinator = ShareCoordinator()
        assert coordinator.delete() == ErrorCode.NONE
        assert coordinator.log == []

    @pytest.mark.parametrize(("epoch", "is_deleted"), [(2, False), (3, True), (4, True)])
    def test_one_that_comes_late_leaves_alone_what_was_made_since(self, epoch: int, is_deleted: bool) -> None:
        coordinator = ShareCoordinator()
        coordinator.initialize(epoch=3)
        assert coordinator.delete(epoch=epoch) == ErrorCode.NONE
        assert (not coordinator.shard.states) == is_deleted

    def test_also_of_a_topic_that_is_gone(self) -> None:
        coordinator = led()
        coordinator.see_topics({PAYMENTS: 2})
        assert coordinator.delete() == ErrorCode.NONE
        assert not coordinator.shard.states


class TestSummary:
    def test_says_how_far_it_has_come(self) -> None:
        coordinator = led()
        coordinator.read(leader=2)
        coordinator.write((12, 14, 2, 1), leader=2, start=10, complete=3)
        result = coordinator.summary()
        assert (result.error_code, result.state_epoch, result.leader_epoch) == (ErrorCode.NONE, 1, 2)
        assert (result.start_offset, result.delivery_complete_count) == (10, 3)

    def test_of_what_was_never_initialized_is_no_error(self) -> None:
        result = ShareCoordinator().summary()
        assert (result.error_code, result.start_offset) == (ErrorCode.NONE, -1)
        assert result.delivery_complete_count == -1


class TestTopics:
    @pytest.mark.parametrize("key", [ShareKey("g", b"x" * 16, 0), ShareKey("g", ORDERS, 4)])
    def test_unknown_ones_are_refused(self, key: ShareKey) -> None:
        coordinator = ShareCoordinator()
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert coordinator.initialize(key) == unknown
        assert coordinator.read(key).error_code == unknown
        assert coordinator.write(key=key) == unknown
        assert coordinator.summary(key).error_code == unknown

    def test_negative_partitions_are_refused(self) -> None:
        coordinator, key = ShareCoordinator(), ShareKey("g", ORDERS, -1)
        assert coordinator.initialize(key) == ErrorCode.INVALID_REQUEST
        assert coordinator.delete(key) == ErrorCode.INVALID_REQUEST

    def test_the_states_of_a_deleted_topic_are_forgotten(self) -> None:
        coordinator = ShareCoordinator()
        keys = [ShareKey(f"g{n}", ORDERS, n % 4) for n in range(250)]
        for key in [*keys, ShareKey("g", PAYMENTS, 0)]:
            coordinator.initialize(key)
        coordinator.see_topics({PAYMENTS: 2})
        coordinator.advance(0)
        assert list(coordinator.shard.states) == [ShareKey("g", PAYMENTS, 0)]


class TestRequests:
    def test_several_share_partitions_at_once(self) -> None:
        coordinator = led()
        other = KEY._replace(partition=1)
        request = WriteShareGroupStateRequest(
            group_id="g",
            topics=[
                WriteStateData(
                    topic_id=ORDERS,
                    partitions=[
                        write_partition(KEY, 1, 0, -1, -1, ((5, 6, 2, 1),)),
                        write_partition(other, 1, 0, -1, -1, ((5, 6, 2, 1),)),
                    ],
                ),
                WriteStateData(
                    topic_id=ORDERS,
                    partitions=[write_partition(KEY, 1, 0, -1, -1, ((6, 7, 0, 2),))],
                ),
            ],
        )
        response = coordinator.answers[coordinator.send("write", request, 1)]
        codes = [[each.error_code for each in topic.partitions] for topic in response.results]
        assert codes == [[ErrorCode.NONE, ErrorCode.INVALID_REQUEST], [ErrorCode.NONE]]
        assert read_ranges(coordinator) == [(5, 5, 2, 1), (6, 7, 0, 2)]

    def test_what_one_step_says_twice_is_counted_twice(self) -> None:
        """The second decision of a step sees the first one, up to the snapshot that is due."""
        coordinator = led(updates_per_snapshot=2)
        partitions = [write_partition(KEY, 1, 0, -1, -1, ((n, n, 2, 1),)) for n in (1, 3, 5)]
        topic = WriteStateData(topic_id=ORDERS, partitions=partitions)
        coordinator.send("write", WriteShareGroupStateRequest(group_id="g", topics=[topic]), 1)
        assert kinds(coordinator)[-3:] == [UPDATE, SNAPSHOT, UPDATE]
        assert read_ranges(coordinator) == [(1, 1, 2, 1), (3, 3, 2, 1), (5, 5, 2, 1)]

    def test_a_group_has_a_name(self) -> None:
        coordinator = ShareCoordinator()
        assert coordinator.initialize(KEY._replace(group_id="")) == ErrorCode.INVALID_GROUP_ID

    def test_a_request_that_no_machine_took_fails_for_each_share_partition(self) -> None:
        for request in (initialize_request(KEY, 1, 0), read_request(KEY, 0)):
            response = failure(request, RequestInfo(0), ErrorCode.NOT_COORDINATOR)
            (topic,) = response.results  # type: ignore[attr-defined]
            (partition,) = topic.partitions
            assert (topic.topic_id, partition.partition) == (ORDERS, 0)
            assert (partition.error_code, partition.error_message) == (ErrorCode.NOT_COORDINATOR, None)

    def test_records_of_other_kinds_are_passed_over(self) -> None:
        coordinator = led()
        coordinator.log.append(StateRecord(b"\0\x63what", b"ever", len(coordinator.log)))
        coordinator.crash()
        assert coordinator.state().state_epoch == 1


class TestCoordinatorKey:
    def test_is_as_kafka_writes_it(self) -> None:
        key = ShareKey("a:b", bytes(range(16)), 12)
        assert coordinator_key(key) == "a:b:AAECAwQFBgcICQoLDA0ODw:12"
        assert parse_coordinator_key("a:b:AAECAwQFBgcICQoLDA0ODw:12") == key
        assert 0 <= partition_for(coordinator_key(key), 50) < 50

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "g",
            "g:AAECAwQFBgcICQoLDA0ODw",
            ":AAECAwQFBgcICQoLDA0ODw:1",
            "g:AAECAwQFBgcICQoLDA0ODw:-1",
            "g:AAECAwQFBgcICQoLDA0ODw:",
            "g:AAECAwQFBgcICQoLDA0ODw:01",
            "g:AAECAwQFBgcICQoLDA0OD!:1",
            "g:AAECAwQFBgcICQoLDA0OD:1",
        ],
    )
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(KafkaError) as raised:
            parse_coordinator_key(text)
        assert raised.value.code == ErrorCode.INVALID_REQUEST
