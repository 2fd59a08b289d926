"""Quotas in the store: found again, whatever their names, and none is changed past another's change."""

from __future__ import annotations

from forebay.coordination.metadata import load
from forebay.core.cluster.images.quota_image import alter_quota
from forebay.core.quotas.entities import quota_entity
from forebay.core.quotas.keys import QuotaOp
from support.brokers.followed import KEYS, following
from support.brokers.memory_store import MemoryStore

ENTITIES = [
    quota_entity(user="a/b"),
    quota_entity(user=None),
    quota_entity(user="ü", client_id="100%"),
    quota_entity(client_id="../.."),
]


async def test_quotas_are_found_again_and_leave_nothing_behind() -> None:
    store = MemoryStore()
    async with following(store) as metadata:
        for value in (1.0, None):
            for entity in ENTITIES:
                ops = [QuotaOp("producer_byte_rate", value)]
                image = await metadata.change(lambda image, e=entity, o=ops: alter_quota(image.quotas, e, o))  # type: ignore[misc]
                assert image == await load(store, KEYS)
            if value is not None:
                assert {quota.entity for quota in image.quotas.values()} == set(ENTITIES)
        assert not image.quotas and not (await store.range(KEYS.root))[0]


async def test_two_who_alter_the_same_quota_both_succeed() -> None:
    store, ada = MemoryStore(), ENTITIES[0]
    async with following(store) as one, following(store) as other:
        await one.change(lambda image: alter_quota(image.quotas, ada, [QuotaOp("producer_byte_rate", 1.0)]))
        image = await other.change(
            lambda image: alter_quota(image.quotas, ada, [QuotaOp("consumer_byte_rate", 2.0)])
        )
        (quota,) = image.quotas.values()
        assert quota.values == {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}
