"""The log of a share coordinator stays short, and nothing that is needed is deleted from it."""

from __future__ import annotations

from forebay.config import ShareCoordinatorConfig
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.errors import ErrorCode
from support.machines.share_coordinator import KEY, ORDERS, PAYMENTS, ShareCoordinator

MINUTES_5 = 300_000
HOT, COLD = KEY, ShareKey("g", ORDERS, 1)


def busy(writes: int, **options: int) -> ShareCoordinator:
    """A share partition at rest, and behind it one that was written to."""
    coordinator = ShareCoordinator(config=ShareCoordinatorConfig(**options))
    coordinator.initialize(COLD, start=7)
    coordinator.initialize(HOT, start=0)
    coordinator.read(HOT)
    write(coordinator, writes)
    return coordinator


def write(coordinator: ShareCoordinator, count: int) -> None:
    start = coordinator.state(HOT).start_offset
    for n in range(start + 1, start + count + 1):
        assert coordinator.write(key=HOT, start=n, complete=0) == ErrorCode.NONE


def test_a_share_partition_at_rest_is_written_again_and_the_records_before_it_are_deleted() -> None:
    coordinator = busy(40, updates_per_snapshot=10)
    assert coordinator.shard.redundant_before == 0
    coordinator.advance(MINUTES_5)
    assert coordinator.state(COLD).snapshot_epoch == 1
    assert coordinator.deletions == [coordinator.shard.redundant_before]
    assert len(coordinator.log) - coordinator.start_offset <= 12
    coordinator.crash()
    assert coordinator.state(COLD).start_offset == 7
    assert coordinator.state(HOT).start_offset == 40


def test_nothing_is_written_for_the_sake_of_a_few_records() -> None:
    coordinator = busy(2, updates_per_snapshot=2)
    coordinator.initialize(ShareKey("g", ORDERS, 2))
    assert (len(coordinator.log), len(coordinator.shard.states)) == (6, 3)
    length = len(coordinator.log)
    coordinator.advance(10 * MINUTES_5)
    assert len(coordinator.log) == length
    assert coordinator.deletions == []


def test_a_quiet_coordinator_writes_and_deletes_once() -> None:
    coordinator = busy(40, updates_per_snapshot=10)
    coordinator.advance(2 * MINUTES_5)
    length, deletions = len(coordinator.log), len(coordinator.deletions)
    coordinator.advance(20 * MINUTES_5)
    assert (len(coordinator.log), len(coordinator.deletions)) == (length, deletions)


def test_the_log_stays_short_for_ever() -> None:
    coordinator = busy(0, updates_per_snapshot=10)
    for _ in range(30):
        write(coordinator, 40)
        coordinator.advance(MINUTES_5)
        assert len(coordinator.log) - coordinator.start_offset <= 60
    assert coordinator.state(COLD).start_offset == 7


def test_no_record_is_deleted_before_what_replaces_it_is_committed() -> None:
    coordinator = busy(40, updates_per_snapshot=10)
    coordinator.commits_at_once = False
    committed = len(coordinator.log)
    coordinator.advance(MINUTES_5)
    assert coordinator.state(COLD).snapshot_epoch == 1
    assert coordinator.deletions == []
    coordinator.crash(committed)
    assert coordinator.state(COLD).start_offset == 7
    coordinator.commits_at_once = True
    coordinator.advance(MINUTES_5)
    assert len(coordinator.deletions) == 1


def test_a_snapshot_of_a_wrong_clock_holds_up_nothing() -> None:
    coordinator = ShareCoordinator(config=ShareCoordinatorConfig(updates_per_snapshot=10))
    coordinator.now_ms += 10**10
    coordinator.initialize(COLD, start=7)
    coordinator.now_ms -= 10**10
    coordinator.initialize(HOT, start=0)
    coordinator.read(HOT)
    write(coordinator, 40)
    coordinator.advance(MINUTES_5)
    assert coordinator.state(COLD).snapshot_epoch == 1


def test_a_log_of_deleted_states_is_emptied() -> None:
    coordinator = busy(5)
    coordinator.delete(HOT)
    coordinator.delete(COLD)
    coordinator.advance(MINUTES_5)
    assert coordinator.start_offset == len(coordinator.log)


def test_many_cold_ones_are_written_in_steps() -> None:
    coordinator = busy(0, updates_per_snapshot=0)
    for n in range(130):
        coordinator.initialize(ShareKey(f"g{n}", PAYMENTS, 0))
    write(coordinator, 600)
    length = len(coordinator.log)
    coordinator.batch_sizes.clear()
    coordinator.advance(MINUTES_5)
    assert coordinator.batch_sizes == [100, 32]
    assert coordinator.start_offset == length


def test_the_states_of_a_topic_that_nobody_saw_go_are_forgotten_in_the_next_round() -> None:
    coordinator = busy(1)
    coordinator.initialize(ShareKey("g", PAYMENTS, 0))
    coordinator.topics, coordinator.deleted = {PAYMENTS: 2}, {ORDERS}
    coordinator.crash()
    assert HOT in coordinator.shard.states
    coordinator.advance(MINUTES_5)
    assert list(coordinator.shard.states) == [ShareKey("g", PAYMENTS, 0)]


def test_a_topic_that_is_missing_and_was_not_deleted_keeps_its_states() -> None:
    coordinator = busy(1)
    coordinator.see_topics({}, are_deleted=False)
    coordinator.advance(2 * MINUTES_5)
    coordinator.crash()
    coordinator.advance(2 * MINUTES_5)
    assert coordinator.shard.states.keys() == {HOT, COLD}


def test_a_deleted_topic_that_a_restore_brings_back_in_time_keeps_its_states() -> None:
    coordinator = busy(1)
    coordinator.topics, coordinator.deleted = {}, {ORDERS}
    coordinator.crash()
    coordinator.see_topics({ORDERS: 4})
    coordinator.advance(2 * MINUTES_5)
    assert coordinator.shard.states.keys() == {HOT, COLD}
