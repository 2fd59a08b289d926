"""Elections after the store was put back: by what the replicas hold, when all have said it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from forebay.coordination.store import StoreIdentity
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import BrokerPut, PartitionPut, TopicDeleted, TopicPut
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.partition_state import NO_LEADER, PartitionState
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.replicas.requested_elections import LastClaimBook, elect
from forebay.core.cluster.replicas.restored_partitions import (
    doubt,
    settle_unsettled,
    unsettled_partitions,
)
from forebay.core.cluster.restore_detection import signs_of_restore
from forebay.core.cluster.restore_image import (
    EPOCHS_SKIPPED,
    UNKNOWN,
    Claim,
    ClaimsPart,
    ClaimsPut,
    NodePut,
    Restore,
    RestorePut,
)
from forebay.core.cluster.stored.image_text import decode_partition, encode_partition
from forebay.core.cluster.stored.restore_text import decode_claims, encode_claims
from forebay.core.cluster.topics.topic_requests import create_partitions
from forebay.errors import KafkaError
from forebay.storage.store_evidence import StoreEvidence

TOPIC_ID = bytes(16)
KEY = (TOPIC_ID, 0)
EMPTY = Claim(-1, 0, -1)
RESTORE = Restore(generation=1, id="r")
EPOCH = 5
"""The broker epoch of all."""


def image(
    claims: Mapping[int, Claim | None],
    *,
    replicas: tuple[int, ...] = (1, 2, 3),
    alive: tuple[int, ...] = (1, 2, 3),
    nodes: tuple[int, ...] = (1, 2, 3),
    restore: Restore = RESTORE,
) -> ClusterImage:
    """After a restore. A broker with None has reported, and has no log."""
    record = TopicRecord(name="t", topic_id=TOPIC_ID, assignment=(replicas,))
    return ClusterImage(cluster_id="c").apply(
        [
            TopicPut(record=record),
            *(BrokerPut(registration=registration(node)) for node in alive),
            *(NodePut(id=node) for node in nodes),
            RestorePut(restore=restore),
            *(
                ClaimsPut(
                    part=ClaimsPart(
                        node=node,
                        number=0,
                        parts=1,
                        generation=restore.generation,
                        broker_epoch=EPOCH,
                        claims={} if claim is None else {KEY: claim},
                    )
                )
                for node, claim in claims.items()
            ),
        ],
        7,
    )


def registration(node: int, epoch: int = EPOCH) -> BrokerRegistration:
    return BrokerRegistration(id=node, host="h", port=1, epoch=epoch)


def elected(seen: ClusterImage) -> PartitionState | None:
    changes, _ = settle_unsettled(seen)
    return changes[0].state if changes else None


def test_what_was_decided_before_a_restore_is_not_believed() -> None:
    (state,) = image({}).topics["t"].partitions
    assert (state.leader, state.isr, state.unsettled) == (NO_LEADER, (), True)


def test_unsettled_partitions_come_in_the_order_of_their_names_however_strings_hash() -> None:
    names = [f"t{number:02}" for number in range(40)]
    puts = [
        TopicPut(record=TopicRecord(name=name, topic_id=name.encode().ljust(16), assignment=((1,),)))
        for name in reversed(names)
    ]
    seen = ClusterImage(cluster_id="c").apply([*puts, RestorePut(restore=RESTORE)], 7)
    assert [topic.name for topic, _ in unsettled_partitions(seen)] == names


def test_the_latest_epoch_leads_and_then_the_largest_end() -> None:
    later = elected(image({1: Claim(3, 900, 3), 2: Claim(4, 500, 4), 3: Claim(4, 499, 6)}))
    assert later is not None
    assert (later.leader, later.isr, later.leader_epoch) == (2, (2,), 2 * EPOCHS_SKIPPED)
    assert (later.restored, later.unsettled) == (1, False)
    again = decode_partition(0, encode_partition(later), 9).as_of(Restore(generation=1))
    assert again.leader == 2
    alike = elected(image({1: Claim(4, 500, 4), 2: Claim(4, 500, 4), 3: Claim(4, 500, 4)}))
    assert alike is not None
    assert alike.leader == 1


def test_messages_that_a_later_leader_committed_without_writing_any_are_kept() -> None:
    """Leader 1 wrote 24 to 34 in epoch 1 and was cut off; 2 and 3 then committed what 2 had from epoch 0."""
    cut_off = Claim(1, 35, 1, 23, ((0, 0), (1, 24)))
    committed = Claim(0, 32, 2, 32, ((0, 0),))
    after = elected(image({1: cut_off, 2: committed, 3: Claim(0, 32, 0, 30, ((0, 0),))}))
    assert after is not None
    assert after.leader == 2
    unknown = elected(image({1: cut_off, 2: committed._replace(high_watermark=24), 3: EMPTY}))
    assert unknown is not None
    assert unknown.leader == 1, "nobody knows that more was committed"


def test_a_log_whose_beginning_is_not_known_may_have_all_that_was_committed() -> None:
    longer = Claim(5, 90, 5, 10, ((5, 80),))
    after = elected(image({1: Claim(2, 50, 2, 50, ((2, 0),)), 2: longer, 3: EMPTY}))
    assert after is not None
    assert after.leader == 2


def test_where_committed_messages_contradict_each_other_the_longest_history_leads() -> None:
    """As after an unclean election, of which the first replica has not heard."""
    lost, current = Claim(1, 50, 1, 50, ((0, 0), (1, 40))), Claim(2, 45, 2, 45, ((0, 0), (2, 40)))
    after = elected(image({1: lost, 2: current, 3: current}))
    assert after is not None
    assert after.leader == 2


@pytest.mark.parametrize("alive", [(1, 2, 3), (1, 2)])
def test_a_replica_that_has_not_reported_is_waited_for(alive: tuple[int, ...]) -> None:
    seen = image({1: Claim(3, 9, 3), 2: Claim(3, 9, 3)}, alive=alive)
    assert settle_unsettled(seen) == ([], {3: 1})
    (change,) = elect(seen, "t", 0, unclean=True)
    assert change.state.leader == 1


def test_without_any_report_not_even_an_unclean_election_is_possible() -> None:
    with pytest.raises(KafkaError, match="no broker has reported"):
        elect(image({}), "t", 0, unclean=True)


def test_a_log_that_was_moved_since_leads_and_moves_to_where_the_store_has_it() -> None:
    claims = {1: EMPTY, 2: Claim(3, 500, 3)}
    waits = image(claims, replicas=(1,))
    assert settle_unsettled(waits) == ([], {3: 1})
    after = elected(image({**claims, 3: None}, replicas=(1,)))
    assert after is not None
    assert (after.leader, after.replicas, after.target) == (2, (2, 1), (1,))


def test_a_partition_alone_is_doubted_and_elected_anew() -> None:
    seen = image({1: EMPTY, 2: EMPTY, 3: EMPTY})
    state = elected(seen)
    assert state is not None
    settled = seen.apply([PartitionPut(topic_id=TOPIC_ID, state=replace(state, partition_epoch=8))], 8)
    assert settle_unsettled(settled) == ([], {})
    (change,) = doubt(settled, {KEY})
    doubted = decode_partition(0, encode_partition(change.state), 9)
    again = settled.apply([PartitionPut(topic_id=TOPIC_ID, state=doubted)], 9)
    assert again.topics["t"].partitions[0].unsettled
    assert doubt(again, {KEY}) == []


def test_a_report_in_several_keys_counts_when_all_are_there() -> None:
    many = {(TOPIC_ID, index): Claim(1, index, 1, index // 2, ((1, 0),)) for index in range(9_000)}
    parts = [decode_claims(2, number, value) for number, value in enumerate(encode_claims(many, 1, EPOCH))]
    assert len(parts) == 3
    assert {key: claim for part in parts for key, claim in part.claims.items()} == many
    waiting = image({1: Claim(1, 5, 1), 3: Claim(1, 5, 1)})
    some = waiting.apply([ClaimsPut(part=part) for part in parts[:2]], 8)
    assert settle_unsettled(some) == ([], {2: 1})
    assert settle_unsettled(some.apply([ClaimsPut(part=parts[2])], 9))[0]


def test_a_report_of_a_process_before_does_not_count() -> None:
    """The keys of a broker that has come back since live on for the rest of their lease."""
    told = image({1: Claim(3, 9, 3), 2: Claim(4, 9, 4), 3: Claim(3, 9, 3)})
    back = told.apply([BrokerPut(registration=registration(2, EPOCH + 1))], 8)
    assert settle_unsettled(back) == ([], {2: 1})
    (change,) = elect(back, "t", 0, unclean=True)
    assert change.state.leader == 1


def test_a_log_elsewhere_that_cannot_be_read_is_waited_for() -> None:
    claims = {1: EMPTY, 2: UNKNOWN, 3: None}
    assert settle_unsettled(image(claims, replicas=(1,))) == ([], {2: 1})
    (change,) = elect(image(claims, replicas=(1,)), "t", 0, unclean=True)
    assert change.state.leader == 1


def test_a_registered_broker_is_waited_for_though_no_replica_is_empty() -> None:
    """The partition was moved to it while the replicas that the store names were away."""
    stale = {1: Claim(3, 9, 3), 2: Claim(3, 9, 3)}
    assert settle_unsettled(image(stale, replicas=(1, 2))) == ([], {3: 1})
    after = elected(image({**stale, 3: Claim(4, 20, 4)}, replicas=(1, 2)))
    assert after is not None
    assert after.leader == 3


def test_nothing_is_believed_nor_decided_while_the_marker_cannot_be_read() -> None:
    claims = {node: Claim(3, 9, 3) for node in (1, 2, 3)}
    seen = image(claims, restore=Restore(is_readable=False))
    assert seen.topics["t"].partitions[0].unsettled
    assert settle_unsettled(seen) == ([], {})
    with pytest.raises(KafkaError, match="cannot be read"):
        elect(seen, "t", 0, unclean=True)


def test_the_image_knows_which_topics_have_unsettled_partitions() -> None:
    seen = image({node: Claim(3, 9, 3) for node in (1, 2, 3)})
    assert seen.unsettled == {"t"}
    state = elected(seen)
    assert state is not None
    settled = seen.apply([PartitionPut(topic_id=TOPIC_ID, state=state)], 8)
    assert settled.unsettled == frozenset()
    doubted = settled.apply([PartitionPut(topic_id=TOPIC_ID, state=replace(state, doubted=True))], 9)
    assert doubted.unsettled == {"t"}
    assert doubted.apply([TopicDeleted(name="t")], 10).unsettled == frozenset()


def test_partitions_that_are_added_after_a_restore_begin_above_forgotten_epochs() -> None:
    """A broker that was away may have a log of the same number, from before the restore."""
    seen = image({node: Claim(3, 9, 3) for node in (1, 2, 3)})
    state = elected(seen)
    assert state is not None
    settled = seen.apply([PartitionPut(topic_id=TOPIC_ID, state=state)], 8)
    grown = settled.apply(create_partitions(settled, "t", 2, None), 9)
    _, added = grown.topics["t"].partitions
    assert (added.leader_epoch, added.unsettled) == (EPOCHS_SKIPPED, False)


def test_many_elections_look_at_the_claims_once() -> None:
    books = LastClaimBook()
    seen = image({node: Claim(3, 9, 3) for node in (1, 2, 3)})
    assert books(seen) is books(seen)
    assert books(seen.apply([], 8)) is not books(seen)


BEFORE = StoreEvidence(cluster="c", revision=100, index=50, nonces=("new", "old"))


@pytest.mark.parametrize(
    ("now", "nonce", "count"),
    [
        (StoreIdentity(cluster="c", revision=100, index=50), "new", 0),
        (StoreIdentity(cluster="c", revision=300, index=70), "old", 0),
        (StoreIdentity(cluster="c", revision=300, index=70), None, 0),
        (StoreIdentity(cluster="d", revision=300, index=70), "new", 1),
        (StoreIdentity(cluster="c", revision=99, index=70), "new", 1),
        (StoreIdentity(cluster="c", revision=300, index=3), "new", 1),
        (StoreIdentity(cluster="c", revision=300, index=70), "", 1),
        (StoreIdentity(cluster="c", revision=300, index=70), "other", 1),
    ],
)
def test_signs_that_the_store_has_gone_back(now: StoreIdentity, nonce: str | None, count: int) -> None:
    assert len(signs_of_restore(BEFORE, now, nonce)) == count
