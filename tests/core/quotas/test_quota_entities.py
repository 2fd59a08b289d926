"""Whom a quota may be for, which values it may have, and which quotas a filter means."""

from __future__ import annotations

import json
import math
from itertools import product

import pytest

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.images.quota_image import QuotaDeleted, QuotaPut, alter_quota
from forebay.core.quotas.entities import QuotaEntity, quota_entity, read_entity
from forebay.core.quotas.filters import read_filter
from forebay.core.quotas.keys import QuotaKey, QuotaOp, altered
from forebay.core.quotas.text import decode_quota, encode_quota, quota_id
from forebay.errors import ErrorCode, KafkaError, ProtocolError

ADA = quota_entity(user="ada")
IP = quota_entity(ip="10.0.0.1")
NAMES: tuple[str | None, ...] = ("", None, "a", "b")
"""Of one part: left out, the default, and two names."""
ENTITIES = [
    quota_entity(user=user, client_id=client)
    for user, client in product(NAMES, NAMES)
    if user != "" or client != ""
] + [quota_entity(ip=ip) for ip in (None, "10.0.0.1", "::1")]


@pytest.mark.parametrize("entity", ENTITIES, ids=str)
def test_an_entity_is_the_same_in_whatever_order_its_parts_come(entity: QuotaEntity) -> None:
    assert read_entity(reversed(entity.parts)) == entity


def test_every_entity_is_stored_under_an_id_of_its_own_and_read_back() -> None:
    assert len({quota_id(entity) for entity in ENTITIES}) == len(ENTITIES)
    for entity in ENTITIES:
        values = {"producer_byte_rate": 10.0, "of_a_later_version": 0.5}
        assert decode_quota("k", encode_quota(entity, values)) == (entity, values)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"format":2}',
        b'{"format":1,"entity":[],"values":{}}',
        b'{"format":1,"entity":[["user"]],"values":{}}',
        b'{"format":1,"entity":[["user","a"]],"values":[]}',
        b'{"format":1,"entity":[["user","a"]],"values":{"producer_byte_rate":"x"}}',
    ],
)
def test_a_stored_quota_that_cannot_be_read_is_named(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="quotas/7"):
        decode_quota("quotas/7", data)


def test_the_text_in_the_store_does_not_change() -> None:
    stored = json.loads(encode_quota(quota_entity(user="ada", client_id=None), {"producer_byte_rate": 1.0}))
    assert stored == {
        "format": 1,
        "entity": [["user", "ada"], ["client-id", None]],
        "values": {"producer_byte_rate": 1.0},
    }
    assert quota_id(ADA) == "5b0e85ded9872e525d8a8dfcd5d64fdb"


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("user", "")],
        [("ip", "")],
        [("group", "g")],
        [("", "g")],
        [("user", "a"), ("user", "b")],
        [("ip", "10.0.0.1"), ("user", "a")],
        [("client-id", None), ("ip", None)],
        [("ip", "example.org")],
        [("user", "x" * 1025)],
    ],
    ids=str,
)
def test_what_is_no_entity_is_refused(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(KafkaError) as refused:
        read_entity(parts)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


def test_an_ip_is_written_in_one_way() -> None:
    assert read_entity([("ip", "0:0:0::1")]) == read_entity([("ip", "::1")])


# -- values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", list(QuotaKey))
def test_each_key_belongs_to_clients_or_to_addresses(key: QuotaKey) -> None:
    fits, other = (IP, ADA) if key is QuotaKey.CONNECTION else (ADA, IP)
    assert altered(fits, {}, [QuotaOp(key, 5.0)]) == {key: 5.0}
    for value in (5.0, None):
        with pytest.raises(KafkaError) as refused:
            altered(other, {}, [QuotaOp(key, value)])
        assert refused.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("key", list(QuotaKey))
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, -math.inf, 1e-9, 1.5, 1e30])
def test_values_that_limit_nothing_or_everything_are_refused(key: QuotaKey, value: float) -> None:
    entity = IP if key is QuotaKey.CONNECTION else ADA
    if key in (QuotaKey.REQUEST, QuotaKey.MUTATION) and value in (1e-9, 1.5, 1e30):
        assert altered(entity, {}, [QuotaOp(key, value)]) == {key: value}
        return
    with pytest.raises(KafkaError) as refused:
        altered(entity, {}, [QuotaOp(key, value)])
    assert refused.value.code == ErrorCode.INVALID_REQUEST


def test_values_are_set_and_removed_one_by_one() -> None:
    image = ClusterImage(cluster_id="c")

    def alter(*ops: QuotaOp) -> list[QuotaPut | QuotaDeleted]:
        return alter_quota(image.quotas, ADA, ops)

    image = image.apply(alter(QuotaOp("producer_byte_rate", 10.0), QuotaOp("consumer_byte_rate", 20.0)))
    (quota,) = image.quotas.values()
    assert quota.entity == ADA
    assert quota.values == {"producer_byte_rate": 10.0, "consumer_byte_rate": 20.0}
    assert alter(QuotaOp("producer_byte_rate", 10.0)) == [], "nothing to store"
    image = image.apply(alter(QuotaOp("producer_byte_rate", None), QuotaOp("consumer_byte_rate", 30.0)))
    assert next(iter(image.quotas.values())).values == {"consumer_byte_rate": 30.0}
    image = image.apply(alter(QuotaOp("consumer_byte_rate", None)))
    assert not image.quotas
    assert alter(QuotaOp("consumer_byte_rate", None)) == [], "to remove what is not there is no mistake"


def test_an_alteration_is_done_whole_or_not_at_all() -> None:
    for bad in (
        QuotaOp("consumer_byte_rate", -1.0),
        QuotaOp("producer_byte_rate", None),
        QuotaOp("retention", 1.0),
    ):
        with pytest.raises(KafkaError):
            alter_quota({}, ADA, [QuotaOp("producer_byte_rate", 1.0), bad])


# -- filters -----------------------------------------------------------------------------------------------

_EXACT, _DEFAULT, _ANY = 0, 1, 2


def matched(*components: tuple[str, int, str | None], strict: bool = False) -> list[QuotaEntity]:
    wanted = read_filter(components, strict=strict)
    return [entity for entity in ENTITIES if wanted.matches(entity)]


@pytest.mark.parametrize("strict", [False, True])
def test_a_filter_matches_what_each_of_its_components_matches(strict: bool) -> None:
    choices: list[tuple[int, str | None] | None] = [None, (_EXACT, "a"), (_DEFAULT, None), (_ANY, None)]

    def fits(entity: QuotaEntity, kind: str, choice: tuple[int, str | None] | None) -> bool:
        present = {str(part): name for part, name in entity.parts}
        if choice is None:
            return not strict or kind not in present
        return kind in present and (choice[0] == _ANY or present[kind] == choice[1])

    for user, client in product(choices, choices):
        components = [
            (kind, *choice) for kind, choice in (("user", user), ("client-id", client)) if choice is not None
        ]
        expected = [
            entity
            for entity in ENTITIES
            if fits(entity, "user", user)
            and fits(entity, "client-id", client)
            and not (strict and entity.is_ip)
        ]
        assert matched(*components, strict=strict) == expected


def test_a_filter_for_addresses() -> None:
    assert matched(("ip", _EXACT, "10.0.0.1")) == [IP]
    assert matched(("ip", _DEFAULT, None)) == [quota_entity(ip=None)]
    assert matched(("ip", _ANY, None), strict=True) == [entity for entity in ENTITIES if entity.is_ip]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", _EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", _DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", _ANY, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", -1, None)], ErrorCode.INVALID_REQUEST),
        ([("", _ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", _ANY, None), ("user", _EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", _ANY, None), ("ip", _ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("group", _ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_filter_that_means_nothing_is_refused(
    components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as refused:
        read_filter(components, strict=False)
    assert refused.value.code == code
