"""Users in the store: found again, whatever their names, and none is changed past another's change."""

from __future__ import annotations

from forebay.coordination.metadata import load
from forebay.core.cluster.images.user_image import ScramCredential, UserDeleted, UserImage, UserPut
from forebay.wire.sasl.scram import ScramMechanism
from support.brokers.followed import KEYS, following
from support.brokers.memory_store import MemoryStore


def user(name: str, salt: bytes = b"s") -> UserImage:
    credential = ScramCredential(salt=salt, stored_key=b"k", server_key=b"v", iterations=4096)
    return UserImage(name=name, credentials={ScramMechanism.SHA_256: credential})


async def test_users_are_found_again_and_leave_nothing_behind() -> None:
    store = MemoryStore()
    names = ("ada", "a/b", "100%", "ü ö", "../..")
    async with following(store) as metadata:
        for name in names:
            image = await metadata.change(lambda _, name=name: [UserPut(user=user(name))])  # type: ignore[misc]
            assert image == await load(store, KEYS)
        assert set(image.users) == set(names)
        for name in names:
            image = await metadata.change(lambda _, name=name: [UserDeleted(name=name)])  # type: ignore[misc]
        assert image == await load(store, KEYS)
        assert not image.users and not (await store.range(KEYS.root))[0]


async def test_a_change_sees_the_one_before() -> None:
    store = MemoryStore()
    async with following(store) as one, following(store) as other:
        await one.change(lambda _: [UserPut(user=user("ada", b"first"))])
        image = await other.change(lambda _: [UserPut(user=user("ada", b"second"))])
        assert image.users["ada"].credentials[ScramMechanism.SHA_256].salt == b"second"
        gone = await one.change(lambda _: [UserDeleted(name="ada")])
        assert "ada" not in gone.users
