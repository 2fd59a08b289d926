"""Which object stores a cluster uses: the one that it has copied to, and no other."""

from __future__ import annotations

import pytest

from forebay.core.tiers.object_store_identity import decode_store_id, encode_store_id, refusal
from forebay.errors import ProtocolError


@pytest.mark.parametrize(
    ("known", "found", "accepted"),
    [
        (None, None, None),  # both are new
        (None, "a", None),  # a cluster that is restored from the store
        ("a", "a", None),
        ("a", "b", "b"),
        ("a", None, "b"),
        (None, None, "b"),
    ],
)
def test_a_store_that_is_used(known: str | None, found: str | None, accepted: str | None) -> None:
    assert refusal(known, found, accepted) is None


@pytest.mark.parametrize(
    ("known", "found", "accepted", "said"),
    [
        ("a", None, None, "it has no store.json; correct forebay.remote.url"),
        ("a", "b", None, "set forebay.remote.store.id to b"),
        ("a", "c", "b", "correct forebay.remote.store.id"),
        (None, "c", "b", "its id is c"),
    ],
)
def test_a_store_that_is_refused(
    known: str | None, found: str | None, accepted: str | None, said: str
) -> None:
    assert said in (refusal(known, found, accepted) or "")


def test_the_id_survives_encoding() -> None:
    assert decode_store_id(encode_store_id("5f-8c.b_2")) == "5f-8c.b_2"


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"store_id": 7}', b'{"store_id": ""}', b"\xff"])
def test_what_no_broker_wrote_is_an_error(data: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"store\.json is malformed"):
        decode_store_id(data)
