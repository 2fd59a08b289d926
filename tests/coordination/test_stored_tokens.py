"""Delegation tokens in the store: found again, and none is made for a user who is being deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from forebay.coordination.metadata import load
from forebay.coordination.store import Put, StoreError
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change
from forebay.core.cluster.images.delegation_token import DelegationToken
from forebay.core.cluster.images.token_image import TokenDeleted, TokenPut
from forebay.core.cluster.images.user_image import ScramCredential, UserImage, UserPut
from forebay.core.security.users import put_or_delete
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.sasl.scram import ScramMechanism
from support.brokers.followed import KEYS, following
from support.brokers.memory_store import MemoryStore

CREDENTIALS = {
    ScramMechanism.SHA_256: ScramCredential(salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096)
}
ADA = UserPut(user=UserImage(name="ada", credentials=CREDENTIALS))


def token(number: int = 0, owner: str = "User:ada") -> DelegationToken:
    return DelegationToken(
        id=f"token-{number}",
        owner=owner,
        requester="User:böb",
        renewers=("User:a,b", "User:c:d"),
        issued_ms=1,
        expires_ms=2,
        max_ms=3,
        digest=b"%d" % number,
        credentials=CREDENTIALS,
    )


async def test_tokens_are_found_again_and_leave_nothing_behind() -> None:
    store = MemoryStore()
    async with following(store) as metadata:
        image = await metadata.change(lambda _: [TokenPut(token=token(number)) for number in range(3)])
        assert image == await load(store, KEYS)
        assert image.tokens["token-1"] == replace(token(1), revision=image.revision)
        image = await metadata.change(
            lambda now: [TokenPut(token=replace(now.tokens["token-1"], expires_ms=9))]
        )
        assert image.tokens["token-1"].expires_ms == 9
        image = await metadata.change(lambda now: [TokenDeleted(id=each) for each in now.tokens])
        assert image == await load(store, KEYS)
        assert not (await store.range(KEYS.root))[0]


async def test_no_token_is_made_for_a_user_who_is_deleted_at_the_same_time() -> None:
    store = MemoryStore()
    async with following(store) as one, following(store) as other:
        await one.change(lambda _: [ADA])
        await other.wait_for(one.image.revision)
        stale, planned = other.image, 0

        def plan(image: ClusterImage) -> Sequence[Change]:
            nonlocal planned
            planned += 1
            if "ada" not in image.users:
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "gone")
            return [TokenPut(token=token())]

        await one.change(lambda image: put_or_delete(image, "ada", {}))
        other.image = stale  # it has not heard of the deletion yet
        with pytest.raises(KafkaError, match="gone"):
            await other.change(plan)
        assert planned == 2
        assert not (await load(store, KEYS)).tokens


async def test_a_user_with_many_tokens_is_deleted_with_all_of_them() -> None:
    store = MemoryStore()
    async with following(store) as metadata:
        await metadata.change(lambda _: [ADA])
        for number in range(100):
            await metadata.change(lambda _, number=number: [TokenPut(token=token(number))])  # type: ignore[misc]
        await metadata.change(lambda _: [TokenPut(token=token(100, "User:eve"))])
        image = await metadata.change(lambda now: put_or_delete(now, "ada", {}))
        assert (list(image.users), list(image.tokens)) == ([], ["token-100"])


async def test_a_token_that_cannot_be_read_is_none_and_is_not_written_over() -> None:
    store = MemoryStore()
    await store.txn(puts=[Put(key=KEYS.token("token-0"), value=b'{"format":99}')])
    async with following(store) as metadata:
        assert (dict(metadata.image.tokens), len(metadata.image.unreadable)) == ({}, 1)
        with pytest.raises((KafkaError, StoreError), match="cannot be read"):
            await metadata.change(lambda _: [TokenPut(token=token())])
        await metadata.change(lambda _: [TokenPut(token=token(1))])
        assert list(metadata.image.tokens) == ["token-1"]
