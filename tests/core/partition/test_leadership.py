"""The leader's view of its followers: what is committed, who may join, who lags, who is closest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import BrokerPut
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.partition.leadership import Leadership
from forebay.core.partition.read_replica import closest_replica

NOW_MS = 1_000_000


def state(isr: tuple[int, ...] = (1, 2, 3), replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionState:
    return PartitionState(index=0, leader=1, leader_epoch=4, isr=isr, replicas=replicas)


def leadership(isr: tuple[int, ...] = (1, 2, 3), *, end_offset: int = 10) -> Leadership:
    return Leadership(me=1, state=state(isr), end_offset=end_offset, now_ms=NOW_MS)


def fetch(leader: Leadership, node: int, offset: int, *, end: int = 20, now_ms: int = NOW_MS) -> None:
    leader.fetched(node, offset, end_offset=end, now_ms=now_ms, broker_epoch=7)


def test_nothing_is_committed_before_every_in_sync_replica_was_heard_of() -> None:
    leader = leadership()
    assert leader.high_watermark(20) == -1
    fetch(leader, 2, 20)
    assert leader.high_watermark(20) == -1
    fetch(leader, 3, 15)
    assert leader.high_watermark(20) == 15


def test_a_lone_leader_commits_by_itself() -> None:
    leader = leadership((1,))
    assert leader.alone
    assert leader.high_watermark(20) == 20


def test_it_is_followed_when_all_that_may_lead_next_have_fetched() -> None:
    leader = leadership((1, 2))
    assert not leader.is_followed
    fetch(leader, 3, 20)
    assert not leader.is_followed, "it may not lead next"
    fetch(leader, 2, 5)
    assert leader.is_followed, "what it has is the beginning of this log"
    leader.joining = (3,)
    assert leader.is_followed
    leader.update(state((1,)))
    assert leader.is_followed, "alone"
    leader.update(state((1, 2)))
    assert not leader.is_followed, "it may have been another one's follower meanwhile"
    assert not leadership((1, 2, 3)).is_followed, "in each term anew"


def test_who_joins_counts_before_the_store_has_agreed() -> None:
    leader = leadership((1,))
    fetch(leader, 2, 15)
    assert leader.may_join(2, high_watermark=12)
    leader.joining = (2,)
    assert not leader.alone
    assert leader.high_watermark(20) == 15
    leader.update(state((1, 2)))
    assert not leader.joining
    assert leader.high_watermark(20) == 15


def test_who_joins_and_comes_back_without_its_messages_has_not_caught_up() -> None:
    leader = leadership((1,))
    fetch(leader, 2, 15)
    leader.joining = (2,)
    assert leader.has_caught_up(2, high_watermark=12)
    fetch(leader, 2, 0)
    assert not leader.has_caught_up(2, high_watermark=12)


def test_who_leaves_counts_until_the_store_has_agreed() -> None:
    leader = leadership()
    fetch(leader, 2, 20)
    fetch(leader, 3, 12)
    assert leader.isr_without([3]) == (1, 2)
    assert leader.high_watermark(20) == 12
    leader.update(state((1, 2)))
    assert leader.high_watermark(20) == 20


def test_a_follower_joins_only_beyond_the_start_of_the_epoch() -> None:
    leader = leadership((1,), end_offset=10)
    fetch(leader, 2, 9)
    assert not leader.may_join(2, high_watermark=5), "it may hold the end of another leader's log"
    fetch(leader, 2, 10)
    assert leader.may_join(2, high_watermark=5)
    assert not leader.may_join(2, high_watermark=11)
    assert not leader.may_join(9, high_watermark=0), "no replica"


@pytest.mark.parametrize(("heard_of_2_ms", "late"), [(NOW_MS + 5_000, (3,)), (NOW_MS, (2, 3))])
def test_a_follower_that_stays_behind_is_late(heard_of_2_ms: int, late: tuple[int, ...]) -> None:
    """Who has everything need not fetch a quiet partition by name, but it has to be there."""
    leader = leadership()
    fetch(leader, 2, 20)
    fetch(leader, 3, 12)
    later = NOW_MS + 5_000
    fetch(leader, 3, 13, now_ms=later)
    heard = {2: heard_of_2_ms, 3: later}
    assert leader.lagging(end_offset=20, now_ms=later, lag_ms_max=4_000, heard_ms=heard) == late


@given(st.data())
def test_a_set_that_stays_has_nobody_who_may_join_or_lags(data: st.DataObject) -> None:
    """And the followers are known to be caught up since the same time, however it was found."""
    offsets, times = st.integers(0, 3), st.integers(0, 6_000)
    isr = data.draw(st.sampled_from([(1,), (1, 2), (1, 3), (2, 1, 3), (2,)]))
    fetches = data.draw(st.lists(st.tuples(st.sampled_from([2, 3]), offsets, offsets, times)))
    joining = data.draw(st.sampled_from([(), (), (2,), (3,)]))
    pair = leadership(isr, end_offset=data.draw(offsets)), leadership(isr)
    pair[1].start_offset = pair[0].start_offset
    for leader in pair:
        for node, offset, end, after_ms in fetches:
            fetch(leader, node, offset, end=end, now_ms=NOW_MS + after_ms)
        leader.joining = tuple(node for node in joining if node not in isr)
    end_offset, high_watermark = data.draw(offsets), data.draw(offsets)
    now_ms, lag_ms_max = NOW_MS + data.draw(times), 4_000
    heard_ms = {node: NOW_MS + data.draw(times) for node in (2, 3) if data.draw(st.booleans())}
    quick, thorough = pair
    stays = quick.stays(end_offset=end_offset, now_ms=now_ms, lag_ms_max=lag_ms_max, heard_ms=heard_ms)
    late = thorough.lagging(end_offset=end_offset, now_ms=now_ms, lag_ms_max=lag_ms_max, heard_ms=heard_ms)
    if stays:
        assert not late and not thorough.joining
        assert not any(thorough.may_join(node, high_watermark) for node in (2, 3))
        for node in thorough.isr:
            assert node == 1 or quick.followers[node] == thorough.followers[node]


def test_who_reaches_the_end_of_the_last_fetch_was_caught_up_then() -> None:
    leader = leadership()
    fetch(leader, 2, 12, end=15)
    fetch(leader, 2, 15, end=30, now_ms=NOW_MS + 1_000)
    assert leader.followers[2].caught_up_ms == NOW_MS
    fetch(leader, 2, 30, end=30, now_ms=NOW_MS + 2_000)
    assert leader.followers[2].caught_up_ms == NOW_MS + 2_000


def test_replicas_that_are_taken_off_are_forgotten() -> None:
    leader = leadership()
    fetch(leader, 3, 20)
    leader.update(state((1, 2), replicas=(1, 2)))
    assert set(leader.followers) == {2}
    fetch(leader, 3, 20)  # it has not heard of it yet


@given(st.lists(st.tuples(st.sampled_from([2, 3]), st.integers(0, 50)), max_size=20), st.integers(0, 50))
def test_what_is_committed_is_on_every_in_sync_replica(fetches: list[tuple[int, int]], end: int) -> None:
    leader = leadership()
    at: dict[int, int] = {}
    for node, offset in fetches:
        fetch(leader, node, offset, end=end)
        at[node] = offset
    assert leader.high_watermark(end) == min([end, at.get(2, -1), at.get(3, -1)])


def test_consumers_are_sent_to_an_in_sync_replica_in_their_rack() -> None:
    racks = {1: "a", 2: "b", 3: "c"}
    image = ClusterImage(cluster_id="c").apply(
        BrokerPut(registration=BrokerRegistration(id=node, host="h", port=1, rack=rack))
        for node, rack in racks.items()
    )
    leader = leadership((1, 2))
    fetch(leader, 2, 15)
    fetch(leader, 3, 20)

    def closest(rack: str, offset: int = 15) -> int | None:
        return closest_replica(image, state((1, 2)), rack=rack, leadership=leader, offset=offset)

    assert closest("b") == 2
    assert closest("b", offset=16) is None, "it does not have it yet"
    assert closest("a") is None, "the leader is there itself"
    assert closest("c") is None, "not in sync"
    assert closest("") is None


def test_who_has_left_joins_when_it_fetches_again() -> None:
    leader = leadership()
    fetch(leader, 3, 20)
    assert leader.update(state((1, 2)))
    assert not leader.may_join(3, high_watermark=20), "it may be about to stop"
    fetch(leader, 3, 20)
    assert leader.may_join(3, high_watermark=20)
    assert not leader.update(state((1, 2, 3)))
