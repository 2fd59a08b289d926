"""A store is told from another one, and from an older state of itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forebay.coordination.keys import Keys
from forebay.coordination.metadata import Metadata, load
from forebay.coordination.permanent_values import ensure_cluster_id
from forebay.coordination.store import Delete, MismatchReason, Put, StoreMismatch
from forebay.coordination.store_history import check_image
from forebay.coordination.store_identity import Header, KnownStore, Position
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change, EvidencePut, PartitionPut, TopicPut
from forebay.core.cluster.images.delegation_token import DelegationToken
from forebay.core.cluster.images.deleted_topics import DeletedTopic, TombstonePut
from forebay.core.cluster.images.quota_image import QuotaImage, QuotaPut
from forebay.core.cluster.images.token_image import TokenPut
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.images.unreadable import Unreadable, UnreadablePut
from forebay.core.cluster.images.user_image import UserImage, UserPut
from forebay.core.cluster.images.view_image import ViewImage, ViewPut
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.stored.image_text import encode_broker, encode_topic
from forebay.core.quotas.entities import EntityType, QuotaEntity
from support.brokers.followed import following
from support.brokers.local_cluster import eventually
from support.brokers.memory_store import MemoryStore

KEYS = Keys("test")
TOPIC_ID = bytes(range(16))


class TestIdentity:
    def test_the_first_to_answer_is_the_store(self) -> None:
        known = KnownStore()
        assert known.mismatch(Header("a", 7, 2), known.position()) is None
        assert (known.store, known.position()) == ("a", Position(7, 2))

    def test_another_one_is_not_believed_whatever_it_says(self) -> None:
        known = KnownStore()
        known.mismatch(Header("a", 7, 2))
        for header in (Header("b", 7, 2), Header("b", 900, 9)):
            found = known.mismatch(header)
            assert found is not None
            assert found.reason is MismatchReason.ANOTHER_STORE
            assert "put the right etcd back" in found.message
        assert known.position() == Position(7, 2)

    def test_an_answer_that_does_not_say_whose_it_is_may_be_ours(self) -> None:
        known = KnownStore()
        known.mismatch(Header("a", 7, 2))
        assert known.mismatch(Header("", 8, 2)) is None

    @pytest.mark.parametrize("header", [Header("a", 6, 2), Header("a", 6, 9), Header("a", 800, 1)])
    def test_a_linearizable_answer_is_not_older_than_what_was_seen_before(self, header: Header) -> None:
        known = KnownStore()
        known.mismatch(Header("a", 7, 2))
        found = known.mismatch(header, known.position())
        assert found is not None
        assert found.reason is MismatchReason.WENT_BACK
        assert "stop all brokers" in found.message

    def test_a_write_makes_a_revision_that_was_not_seen_before(self) -> None:
        known = KnownStore()
        known.mismatch(Header("a", 7, 2))
        found = known.mismatch(Header("a", 7, 2), known.position(), wrote=True)
        assert found is not None
        assert found.reason is MismatchReason.WENT_BACK
        assert known.mismatch(Header("a", 8, 2), known.position(), wrote=True) is None

    def test_what_was_seen_while_it_was_under_way_does_not_count(self) -> None:
        known = KnownStore()
        known.mismatch(Header("a", 7, 2))
        asked_at = known.position()
        known.mismatch(Header("a", 9, 2))
        assert known.mismatch(Header("a", 8, 2), asked_at) is None
        assert known.revision == 9

    def test_a_single_server_may_lag(self) -> None:
        known = KnownStore()
        known.mismatch(Header("a", 7, 2))
        assert known.mismatch(Header("a", 5, 1)) is None
        assert known.position() == Position(7, 2)

    def test_nothing_is_remembered_of_what_is_in_doubt(self) -> None:
        known = KnownStore()
        known.mismatch(Header("a", 7, 2))
        known.doubt()
        assert known.mismatch(Header("a", 90, 5), known.position()) is None
        found = known.mismatch(Header("a", 6, 2), known.position())
        assert found is not None
        assert found.reason is MismatchReason.WENT_BACK
        known.believe(8)
        assert known.position() == Position(8, 2)
        known.mismatch(Header("a", 9, 3))
        assert known.position() == Position(9, 3)

    def test_what_was_remembered_of_another_history_is_forgotten(self) -> None:
        known = KnownStore()
        known.mismatch(Header("a", 90, 5))
        known.disprove(7)
        known.mismatch(Header("a", 90, 5), known.position())
        assert known.mismatch(Header("a", 8, 2), known.position()) is None


def image_at(revision: int, *, changed_at: int = 3, state_at: int = 0, cluster_id: str = "c") -> ClusterImage:
    record = TopicRecord(name="t", topic_id=TOPIC_ID, assignment=((1, 2),))
    image = ClusterImage(cluster_id=cluster_id).apply(
        [TopicPut(record=record, revision=changed_at)], revision
    )
    if state_at:
        state = PartitionState(
            index=0, leader=2, leader_epoch=1, isr=(2,), replicas=(1, 2), partition_epoch=state_at
        )
        image = image.apply([PartitionPut(topic_id=TOPIC_ID, state=state)])
    return image


def user_at(revision: int) -> Change:
    return UserPut(user=UserImage(name="u", credentials={}, revision=revision))


def token_at(revision: int) -> Change:
    token = DelegationToken(
        id="t",
        owner="User:u",
        requester="User:u",
        issued_ms=0,
        expires_ms=1,
        max_ms=1,
        digest=b"",
        credentials={},
        revision=revision,
    )
    return TokenPut(token=token)


def quota_at(revision: int) -> Change:
    quota = QuotaImage(entity=QuotaEntity(((EntityType.USER, "u"),)), values={}, revision=revision)
    return QuotaPut(id="q", quota=quota)


def view_at(revision: int) -> Change:
    return ViewPut(view=ViewImage(name="v", view_id=b"v" * 16, source_id=TOPIC_ID, revision=revision))


def materialized_view_at(revision: int) -> Change:
    return ViewPut(
        view=ViewImage(name="m", view_id=b"m" * 16, source_id=TOPIC_ID, materialized=True, revision=revision)
    )


class TestHistory:
    @pytest.mark.parametrize(
        "after",
        [image_at(10), image_at(11), image_at(12, changed_at=11), image_at(12, state_at=11)],
        ids=["the same", "newer", "a changed topic", "a changed partition"],
    )
    def test_what_can_follow(self, after: ClusterImage) -> None:
        check_image(image_at(10), after)

    def test_a_deleted_topic_can_follow(self) -> None:
        check_image(image_at(10), ClusterImage(cluster_id="c", revision=11))

    def test_after_it_was_seen_to_go_back_a_topic_must_not_be_missing_without_a_tombstone(self) -> None:
        without = ClusterImage(cluster_id="c", revision=12)
        with pytest.raises(StoreMismatch, match="is not there"):
            check_image(image_at(10), without, strict=True)
        tombstone = TombstonePut(topic=DeletedTopic(topic_id=TOPIC_ID, name="t", deleted_ms=1))
        check_image(image_at(10), without.apply([tombstone]), strict=True)

    def test_the_change_of_a_partition_must_not_be_missing(self) -> None:
        before = image_at(10, state_at=9)
        with pytest.raises(StoreMismatch, match="has lost its change at 9"):
            check_image(before, image_at(12))
        check_image(before, image_at(12, changed_at=11))  # it was taken away, and added again

    @pytest.mark.parametrize(
        ("change_at", "what"),
        [
            (user_at, "user 'u'"),
            (token_at, "delegation token 't'"),
            (quota_at, "quota 'q'"),
            (view_at, "view 'v'"),
            (materialized_view_at, "materialized view 'm'"),
        ],
    )
    def test_what_was_changed_or_deleted_since_must_not_be_as_it_was(
        self, change_at: Callable[[int], Change], what: str
    ) -> None:
        changed, deleted = image_at(10).apply([change_at(9)]), image_at(10)
        check_image(changed, image_at(12).apply([change_at(9)]))
        check_image(changed, image_at(12).apply([change_at(11)]))
        check_image(deleted, image_at(12).apply([change_at(11)]))
        for before in (changed, deleted):
            with pytest.raises(StoreMismatch, match=f": {what} was changed at revision 4"):
                check_image(before, image_at(12).apply([change_at(4)]))

    @pytest.mark.parametrize(
        ("key", "change_at"),
        [
            ("users/u", user_at),
            ("tokens/t", token_at),
            ("quotas/q", quota_at),
            ("views/v", view_at),
            ("views/m", materialized_view_at),
        ],
    )
    def test_what_could_not_be_read_may_be_readable(
        self, key: str, change_at: Callable[[int], Change]
    ) -> None:
        """For a moment a broker may have been unable to load what reads it, for want of file descriptors."""
        value = Unreadable(key=key, revision=4, reason="Too many open files")
        before = image_at(10).apply([UnreadablePut(value=value)])
        check_image(before, image_at(12).apply([change_at(4)]))
        with pytest.raises(StoreMismatch):
            check_image(before, image_at(12).apply([change_at(5)]))

    def test_what_a_broker_wrote_to_recognise_the_store_by_must_be_as_it_was_seen(self) -> None:
        before = image_at(10).apply([EvidencePut(node=1, revision=9)])
        check_image(before, image_at(12).apply([EvidencePut(node=1, revision=9)]))
        check_image(before, image_at(12).apply([EvidencePut(node=1, revision=11)]))
        with pytest.raises(
            StoreMismatch, match="broker 1 last wrote its evidence of the store at revision 4"
        ):
            check_image(before, image_at(12).apply([EvidencePut(node=1, revision=4)]))

    @pytest.mark.parametrize(
        ("after", "reason"),
        [
            (image_at(9), MismatchReason.WENT_BACK),
            (image_at(12, changed_at=4), MismatchReason.WENT_BACK),
            (image_at(12, state_at=9), MismatchReason.WENT_BACK),
            (image_at(12, cluster_id="d"), MismatchReason.ANOTHER_STORE),
            (image_at(12, cluster_id=""), MismatchReason.ANOTHER_STORE),
        ],
        ids=[
            "older",
            "another past of a topic",
            "another past of a partition",
            "another cluster",
            "no cluster",
        ],
    )
    def test_what_cannot(self, after: ClusterImage, reason: MismatchReason) -> None:
        with pytest.raises(StoreMismatch) as caught:
            check_image(image_at(10), after)
        assert caught.value.reason is reason


class TestMetadata:
    """Over the port, so that every store is looked at, and the simulator's."""

    async def test_a_cluster_that_is_deleted_is_not_taken_for_the_deletion_of_its_topics(self) -> None:
        store = MemoryStore()
        await ensure_cluster_id(store, KEYS, "c")
        await put_topic(store)
        async with following(store) as metadata:
            refusals: list[object] = []
            metadata.on_refusal = refusals.append
            before = metadata.image
            items, _ = await store.range(KEYS.root)
            await store.txn(deletes=[Delete(key=KEYS.root, prefix=True)])
            await eventually(lambda: metadata.refused)
            assert metadata.image is before
            assert metadata.refused is not None
            assert metadata.refused.reason is MismatchReason.ANOTHER_STORE
            await store.txn(puts=[Put(key=item.key, value=item.value) for item in items])
            await eventually(lambda: not metadata.refused)
            assert "t" in metadata.image.topics
            assert refusals[-1] is None

    async def test_another_cluster_id_is_not_believed(self) -> None:
        store = MemoryStore()
        await ensure_cluster_id(store, KEYS, "c")
        metadata = await Metadata.open(store, KEYS)
        await store.txn(puts=[Put(key=KEYS.cluster_id, value=b"d")])
        await put_topic(store)
        with pytest.raises(StoreMismatch, match="has the cluster"):
            await metadata.catch_up()
        assert not metadata.image.topics

    async def test_a_store_that_went_back_is_not_believed(self) -> None:
        store = MemoryStore()
        await ensure_cluster_id(store, KEYS, "c")
        older = MemoryStore()
        items, revision = await store.range("/")
        older.keyspace.restore(items, (), revision=revision, compacted=revision)
        await put_topic(store)
        metadata = Metadata(older, KEYS, await load(store, KEYS))
        with pytest.raises(StoreMismatch, match="was at 2 before"):
            await metadata.catch_up()
        assert "t" in metadata.image.topics

    async def test_a_backup_is_not_believed_after_its_registrations_have_ended(self) -> None:
        """They are under leases, so what they prove is soon gone. The evidence of the broker is not."""
        store, backup = MemoryStore(), MemoryStore()
        await join(store)
        items, _ = await store.range("/")
        await store.txn(deletes=[Delete(key=KEYS.broker(1))])
        await join(store)
        metadata = Metadata(backup, KEYS, await load(store, KEYS))
        before = metadata.image
        backup.keyspace.restore(items, (), revision=before.revision + 5, compacted=before.revision + 5)
        with pytest.raises(StoreMismatch, match="another history"):
            await metadata.catch_up()
        await backup.txn(deletes=[Delete(key=KEYS.broker(1))])
        with pytest.raises(StoreMismatch, match="another history"):
            await metadata.catch_up()
        assert metadata.image is before


async def join(store: MemoryStore) -> None:
    """A broker registers, and then writes what it recognises the store by."""
    registration = encode_broker(BrokerRegistration(id=1, host="a", port=1))
    await store.txn(puts=[Put(key=KEYS.broker(1), value=registration)])
    await store.txn(puts=[Put(key=KEYS.evidence(1), value=b"{}")])


async def put_topic(store: MemoryStore) -> None:
    record = TopicRecord(name="t", topic_id=TOPIC_ID, assignment=((1,),))
    await store.txn(puts=[Put(key=KEYS.topic("t"), value=encode_topic(record))])
