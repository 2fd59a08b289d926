"""A log is deleted only because the store says positively that it is not needed."""

from __future__ import annotations

import pytest

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import PartitionPut, TopicDeleted, TopicPut
from forebay.core.cluster.images.deleted_topics import DeletedTopic, TombstonePut
from forebay.core.cluster.images.topic_folds import Fold, Folding, Gone
from forebay.core.cluster.images.topic_image import TopicRecord as Record
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.replicas.log_fate import EPOCH_MAX, Fate, Verdict, decide_fate
from forebay.core.cluster.restore_image import EPOCHS_SKIPPED

ID = bytes(range(16))
EMPTY = ClusterImage(cluster_id="c")
TOPIC = EMPTY.apply([TopicPut(record=Record(name="t", topic_id=ID, assignment=((1, 2), (1, 2))))])
ME = 1


def moved(*, leader_epoch: int) -> ClusterImage:
    state = PartitionState(index=0, leader=2, leader_epoch=leader_epoch, isr=(2, 3), replicas=(2, 3))
    return TOPIC.apply([PartitionPut(topic_id=ID, state=state)])


def folded(*, gone: bool, last_epoch: int = 4) -> ClusterImage:
    folding = Folding(
        folds=(Fold(1, 2, 1),), closed_ms=5, last_epoch=last_epoch, gone=(Gone(1, 77),) if gone else ()
    )
    return EMPTY.apply(
        [TopicPut(record=Record(name="t", topic_id=ID, assignment=((1, 2),), folding=folding))]
    )


def fate(image: ClusterImage, index: int = 0, last_epoch: int = 4, *, store_behind: bool = False) -> Verdict:
    return decide_fate(image, ME, ID, index, last_epoch, store_behind=store_behind)


def test_what_belongs_to_the_broker_is_used_however_old_the_store_is() -> None:
    assert fate(TOPIC, last_epoch=99, store_behind=True).fate is Fate.USED


def test_a_deletion_that_was_seen_deletes() -> None:
    assert fate(TOPIC.apply([TopicDeleted(name="t")])).fate is Fate.DELETED


def test_a_tombstone_deletes_also_in_a_store_that_went_back() -> None:
    tombstone = TombstonePut(topic=DeletedTopic(topic_id=ID, name="t", deleted_ms=5))
    assert fate(EMPTY.apply([tombstone]), store_behind=True).fate is Fate.DELETED


def test_a_topic_that_is_there_is_not_deleted_whatever_a_tombstone_says() -> None:
    tombstone = TombstonePut(topic=DeletedTopic(topic_id=ID, name="t", deleted_ms=5))
    assert fate(TOPIC.apply([tombstone])).fate is Fate.USED


def test_absence_deletes_nothing() -> None:
    verdict = fate(EMPTY)
    assert (verdict.fate, verdict.is_unknown) == (Fate.PUT_ASIDE, True)
    assert fate(TOPIC, index=2).fate is Fate.PUT_ASIDE, "fewer partitions than it had"


@pytest.mark.parametrize(
    ("leader_epoch", "store_behind", "expected"),
    [
        (4, False, Fate.DELETED),
        (5, False, Fate.DELETED),
        (3, False, Fate.PUT_ASIDE),
        (5, True, Fate.PUT_ASIDE),
        # Elected after a restore by what disks hold, perhaps while this one was away.
        (4 + EPOCHS_SKIPPED, False, Fate.PUT_ASIDE),
    ],
)
def test_what_was_moved_away_is_deleted_if_the_store_is_newer(
    leader_epoch: int, store_behind: bool, expected: Fate
) -> None:
    assert fate(moved(leader_epoch=leader_epoch), store_behind=store_behind).fate is expected


@pytest.mark.parametrize(
    ("gone", "last_epoch", "expected"),
    [(True, 4, Fate.DELETED), (True, 3, Fate.PUT_ASIDE), (False, 4, Fate.PUT_ASIDE)],
)
def test_what_was_folded_is_deleted_if_the_store_says_that_it_is_gone(
    gone: bool, last_epoch: int, expected: Fate
) -> None:
    assert fate(folded(gone=gone, last_epoch=last_epoch), index=1).fate is expected


def test_a_log_that_cannot_be_read_is_put_aside_with_that_reason() -> None:
    image = moved(leader_epoch=5)
    verdict = fate(image, last_epoch=EPOCH_MAX + 1)
    assert verdict.fate is Fate.PUT_ASIDE and "cannot be read" in verdict.reason
