"""Every API and version, byte for byte, against kio as the second opinion.

Messages are made at random from kio's own classes, so that a field we forgot cannot hide. kio has richer
types than the wire (durations, dates, enumerated errors); `from_kio` maps them to our plain values, and
insists that both sides agree on which fields a version has.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from importlib import import_module
from random import Random
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from forebay.wire.codec.compiled import decode, encode
from forebay.wire.codec.layout import Layout
from forebay.wire.fields import FORMATS, OWN_TAGS_FROM, Struct
from forebay.wire.fields import Field as OurField
from forebay.wire.messages import API_KEYS, Api, api
from forebay.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from wire.message_values import LENGTHS, kio_versions, random_integer, random_text

MESSAGES_PER_VERSION = 10
MESSAGES_PER_VERSION_MANY = 50
"""In `make chaos`."""

# What brokers of Kafka 4.3 advertise. Produce 0 to 2 are only answered with an error; kio has them no more.
VERSIONS = """
Produce 0-13  Fetch 4-18  ListOffsets 1-11  Metadata 0-13  OffsetCommit 2-10  OffsetFetch 1-10
FindCoordinator 0-6  JoinGroup 0-9  Heartbeat 0-4  LeaveGroup 0-5  SyncGroup 0-5  DescribeGroups 0-6
ListGroups 0-5  SaslHandshake 0-1  ApiVersions 0-4  CreateTopics 2-7  DeleteTopics 1-6  DeleteRecords 0-2
InitProducerId 0-5  OffsetForLeaderEpoch 2-4  AddPartitionsToTxn 0-5  AddOffsetsToTxn 0-4  EndTxn 0-5
WriteTxnMarkers 1-2  TxnOffsetCommit 0-5  DescribeAcls 1-3  CreateAcls 1-3  DeleteAcls 1-3
DescribeConfigs 1-4  AlterConfigs 0-2  IncrementalAlterConfigs 0-1  SaslAuthenticate 0-2
CreatePartitions 0-3  DeleteGroups 0-2  ElectLeaders 0-2  AlterPartitionReassignments 0-1
ListPartitionReassignments 0-0  DescribeCluster 0-2  DescribeProducers 0-0  DescribeTransactions 0-0
ListTransactions 0-1  OffsetDelete 0-0  DescribeLogDirs 1-4  DescribeClientQuotas 0-1
AlterClientQuotas 0-1  DescribeUserScramCredentials 0-0  AlterUserScramCredentials 0-0
DescribeTopicPartitions 0-0  ConsumerGroupHeartbeat 0-1  ConsumerGroupDescribe 0-1
ShareGroupHeartbeat 1-1  ShareGroupDescribe 1-1  ShareFetch 1-2  ShareAcknowledge 1-2
InitializeShareGroupState 0-0  ReadShareGroupState 0-0  WriteShareGroupState 0-1  DeleteShareGroupState 0-0
ReadShareGroupStateSummary 0-1  DescribeShareGroupOffsets 0-1  AlterShareGroupOffsets 0-0
DeleteShareGroupOffsets 0-0
AlterReplicaLogDirs 1-2  DescribeQuorum 0-2  ListConfigResources 0-1  UpdateFeatures 0-2  UnregisterBroker 0-0
CreateDelegationToken 1-3  RenewDelegationToken 1-2  ExpireDelegationToken 1-2  DescribeDelegationToken 1-3
"""


def test_the_version_ranges_are_those_of_a_current_broker() -> None:
    words = VERSIONS.split()
    expected = dict(zip(words[::2], words[1::2], strict=True))
    assert {a.name: f"{a.min_version}-{a.max_version}" for a in map(api, API_KEYS)} == expected


@pytest.mark.parametrize("key", API_KEYS, ids=lambda key: str(api(key).name))
def test_there_is_no_error_message_without_an_error(key: int) -> None:
    """Left out, it is null wherever it may be: some clients take an empty text for a failure."""
    for struct in structs_in(api(key).response):
        for name, field in struct.FIELDS.items():
            if name.endswith("error_message"):
                assert field.nullable
                assert field.default is None


def structs_in(cls: type[Struct]) -> Iterator[type[Struct]]:
    yield cls
    for field in cls.FIELDS.values():
        inner = field.struct or (field.element.struct if field.element else None)
        if inner is not None:
            yield from structs_in(inner)


@pytest.mark.parametrize("key", API_KEYS, ids=lambda key: str(api(key).name))
def test_keys_and_flexible_versions_are_kios(key: int) -> None:
    ours = api(key)
    for cls, kind in ((ours.request, "request"), (ours.response, "response")):
        assert (ours.min_version, ours.max_version) == (cls.MIN_VERSION, cls.MAX_VERSION)
        for version in kio_versions(ours):
            theirs = kio_class(ours, version, kind)
            assert cls.API_KEY == theirs.__api_key__ == key
            assert theirs.__flexible__ == (version >= cls.FLEXIBLE_FROM)


@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize("key", API_KEYS, ids=lambda key: str(api(key).name))
def test_bytes_are_the_same_both_ways(key: int, kind: str) -> None:
    compare(key, kind, MESSAGES_PER_VERSION)


@pytest.mark.chaos
@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize("key", API_KEYS, ids=lambda key: str(api(key).name))
def test_bytes_of_many_messages_are_the_same_both_ways(key: int, kind: str) -> None:
    compare(key, kind, MESSAGES_PER_VERSION_MANY)


def compare(key: int, kind: str, count: int) -> None:
    ours = api(key)
    cls = ours.request if kind == "request" else ours.response
    random = Random(f"{ours.name} {kind}")
    for version in kio_versions(ours):
        theirs = kio_class(ours, version, kind)
        layout = Layout(cls, version)
        for _ in range(count):
            kio_value = random_entity(random, theirs)
            kio_bytes = kio_encode(kio_value)
            value = from_kio(layout, cls, kio_value)

            assert encode(value, version) == kio_bytes
            decoded = decode(cls, version, kio_bytes)
            assert decoded == value
            assert encode(decoded, version) == kio_bytes
            assert entity_reader(theirs)(encode(value, version), 0) == (kio_value, len(kio_bytes))


def test_the_versions_of_produce_that_kio_has_no_more() -> None:
    request = bytes.fromhex(
        "0001 000005dc 00000001 0001 74 00000001 00000002 00000003 616263".replace(" ", "")
    )
    topic = "00000001 0001 74 00000001 00000002 0023"
    base_offset, append_time, throttle_time = "ffffffffffffffff", "0000000000000007", "00000009"
    for version, more in enumerate([(), (throttle_time,), (append_time, throttle_time)]):
        decoded = decode(ProduceRequest, version, request)
        assert (decoded.acks, decoded.timeout_ms, decoded.topic_data[0].name) == (1, 1500, "t")
        assert bytes(decoded.topic_data[0].partition_data[0].records or b"") == b"abc"
        partition = PartitionProduceResponse(
            index=2, error_code=35, base_offset=-1, log_append_time_ms=7, log_start_offset=8
        )
        answer = TopicProduceResponse(name="t", partition_responses=[partition])
        encoded = encode(ProduceResponse(responses=[answer], throttle_time_ms=9), version)
        assert encoded == bytes.fromhex(" ".join([topic, base_offset, *more]))


@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize("key", API_KEYS, ids=lambda key: str(api(key).name))
def test_defaults_are_kios(key: int, kind: str) -> None:
    """Where kio states a default, a value that leaves the field out has the same."""
    ours = api(key)
    cls = ours.request if kind == "request" else ours.response
    for version in kio_versions(ours):
        layout = Layout(cls, version)
        check_defaults(layout, cls, kio_class(ours, version, kind))


def check_defaults(layout: Layout, cls: type[Struct], theirs: Any) -> None:
    blank = cls()
    for their_field, name, ours in matching_fields(layout, cls, theirs):
        inner, _, many = kio_type(theirs, their_field)
        if is_dataclass(inner):
            struct = ours.struct or (ours.element and ours.element.struct)
            assert struct is not None
            check_defaults(layout, struct, inner)
        # kio writes an empty array where Kafka's definition says null.
        null_array = many and their_field.default == () and ours.default is None
        if type(their_field.default).__name__ != "_MISSING_TYPE" and not null_array:
            assert getattr(blank, name) == our_value(layout, ours, their_field.default), name


# kio: its classes, random instances of them, and what they are in our terms


def kio_class(ours: Api, version: int, kind: str) -> Any:
    stem = ours.request.__module__.rpartition(".")[2]
    module = import_module(f"kio.schema.{stem}.v{version}.{kind}")
    return getattr(module, ours.name + kind.capitalize())


def kio_encode(value: Any) -> bytes:
    with io.BytesIO() as buffer:
        entity_writer(type(value))(buffer, value)
        return buffer.getvalue()


@cache
def kio_hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def kio_type(cls: Any, field: Field[Any]) -> tuple[Any, bool, bool]:
    """The type of a field without the wrapping, whether it may be None, and whether it is an array."""
    hint = kio_hints(cls)[field.name]
    optional = isinstance(hint, UnionType)
    if optional:
        (hint,) = [arg for arg in get_args(hint) if arg is not type(None)]
    many = get_origin(hint) is tuple
    return (get_args(hint)[0] if many else hint), optional, many


def random_entity(random: Random, cls: Any) -> Any:
    return cls(**{field.name: random_kio_value(random, cls, field) for field in fields(cls)})


def random_kio_value(random: Random, cls: Any, field: Field[Any]) -> Any:
    inner, optional, many = kio_type(cls, field)
    # kio cannot write a tagged null, except where null is the default and nothing is written.
    may_be_none = optional and ("tag" not in field.metadata or field.default is None)
    if may_be_none and random.random() < 0.25:
        return None

    def one() -> Any:
        if is_dataclass(inner):
            return random_entity(random, inner)
        return random_kio_scalar(random, field.metadata["kafka_type"])

    return tuple(one() for _ in range(random.choice((0, 1, 1, 2)))) if many else one()


def random_kio_scalar(random: Random, kafka_type: str) -> Any:
    match kafka_type:
        case "string":
            return random_text(random)
        case "bytes" | "records":
            return random.randbytes(random.choice(LENGTHS))
        case "uuid":
            return UUID(bytes=random.randbytes(16))
        case "bool":
            return random.random() < 0.5
        case "float64":
            return random.uniform(-1e9, 1e9)
        case "error_code":
            return random.choice(list(KioErrorCode))
        case "timedelta_i32":
            return timedelta(milliseconds=random_integer(random, "i"))
        case "timedelta_i64":
            return timedelta(milliseconds=random.randrange(1 << 40))
        case "datetime_i64":
            return datetime.fromtimestamp(random.randrange(1 << 32), UTC)
        case _:
            return random_integer(random, FORMATS[kafka_type])


def matching_fields(layout: Layout, cls: type[Struct], theirs: Any) -> list[tuple[Field[Any], str, OurField]]:
    """The fields of both sides in pairs; a field that only one side has is an error.

    Those that are ours alone stay at their defaults, so that they must not change a byte.
    """
    tagged = [(name, field) for name, field in layout.tagged(cls) if (field.tag or 0) < OWN_TAGS_FROM]
    ours = dict([*layout.plain(cls), *tagged])
    pairs = []
    for field in fields(theirs):
        name = field.name if field.name in ours else f"{field.name}_ms"
        pairs.append((field, name, ours.pop(name)))
    assert not ours, f"{cls.__name__} v{layout.version}: kio has no {list(ours)}"
    return pairs


def from_kio(layout: Layout, cls: type[Struct], value: Any) -> Any:
    """Our value for kio's, by name."""
    return cls(
        **{
            name: our_value(layout, ours, getattr(value, field.name))
            for field, name, ours in matching_fields(layout, cls, type(value))
        }
    )


def our_value(layout: Layout, field: OurField, value: Any) -> Any:
    if isinstance(value, tuple):
        assert field.element is not None
        return [our_value(layout, field.element, item) for item in value]
    if is_dataclass(value):
        assert field.struct is not None
        return from_kio(layout, field.struct, value)
    if field.kind == "uuid":
        return bytes(16) if value is None else value.bytes
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return int(value.timestamp()) * 1000
    if value is None and field.kind == "int64":
        return -1
    return value.value if isinstance(value, Enum) else value
