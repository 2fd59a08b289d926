"""The text in which each part of an image is stored: small JSON objects that people can read with etcdctl.

A reader ignores names that it does not know, so a newer broker may add some. A value that lacks a required
name, or is not JSON, is a ProtocolError: no broker wrote it. So is one that contradicts itself, such as a
partition without replicas, or has a number that no answer to a client can hold: it would be acted on, and
logs be deleted for it.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from forebay.core.cluster.images.deleted_topics import DeletedTopic
from forebay.core.cluster.images.topic_folds import GENERATIONS_END, Fold, Folding, Gone, Growth
from forebay.core.cluster.images.topic_image import Adopted, TopicRecord
from forebay.core.cluster.images.view_image import FORMAT, FORMAT_MATERIALIZED, ViewImage
from forebay.core.cluster.partition_state import NO_LEADER, PartitionState
from forebay.core.cluster.registration import FIRST_FORMAT, BrokerRegistration
from forebay.core.cluster.restore_image import GENERATION_MAX
from forebay.errors import ProtocolError

T = TypeVar("T")

_NUMBER_MAX = 2**31 - 1
"""Ids of brokers and leader epochs have 32 bits in the protocol."""
_PORT_MAX = 2**16 - 1
_STATES_KEPT = 4096
"""Thousands of partitions have the same few states but for their index, after a death for example."""
_TOPICS_KEPT = 4096
"""The id of a topic is in the keys of all its partitions."""


@lru_cache(_TOPICS_KEPT)
def topic_id_text(topic_id: bytes) -> str:
    """A topic id as Kafka's tools print it."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode()


@lru_cache(_TOPICS_KEPT)
def parse_topic_id(text: str) -> bytes:
    try:
        topic_id = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        topic_id = b""
    if len(topic_id) != 16:
        raise ProtocolError(f"{text!r} is not a topic id")
    return topic_id


def encode_topic(record: TopicRecord) -> bytes:
    replicas = max((len(replicas) for replicas in record.assignment), default=0)
    fields: dict[str, Any] = {
        "id": topic_id_text(record.topic_id),
        "partitions": len(record.assignment),
        "replication_factor": replicas,
        "assignment": record.assignment,
    }
    if record.folding is not None:
        fields |= _folding_fields(record.folding)
    if record.restored:
        fields |= {"restored": record.restored}
    if record.adopted:
        fields |= {"adopted": record.adopted}
    return dump_fields(fields)


def _folding_fields(folding: Folding) -> dict[str, Any]:
    fields: dict[str, Any] = {"folds": _fold_lists(folding.folds), "closed_ms": folding.closed_ms}
    if folding.drop_ms is not None:
        fields |= {"drop_ms": folding.drop_ms}
    if folding.last_epoch >= 0:
        fields |= {"last_epoch": folding.last_epoch}
    if folding.generation:
        fields |= {"generation": folding.generation}
    if folding.gone:
        fields |= {"gone": folding.gone}
    if folding.growth is not None:
        growth = folding.growth
        fields |= {
            "former": _fold_lists(growth.former),
            "gathering": growth.gathering,
            "draining": growth.draining,
        }
    if folding.copied is not None:
        fields |= {"copied": folding.copied}
    return fields


def _fold_lists(folds: tuple[Fold, ...]) -> list[tuple[int, ...]]:
    # A broker that does not know generations can read folds of the first generation.
    return [fold if fold.generation else fold[:3] for fold in folds]


def decode_topic(name: str, value: bytes) -> TopicRecord:
    def read(fields: Mapping[str, Any]) -> TopicRecord:
        assignment = tuple(_nodes(replicas) for replicas in fields["assignment"])
        if not assignment or not all(assignment):
            raise ValueError("a partition without replicas")
        return TopicRecord(
            name=name,
            topic_id=parse_topic_id(fields["id"]),
            assignment=assignment,
            folding=_folding(fields, len(assignment)) if "folds" in fields else None,
            restored=_within(fields.get("restored", 0), 0, GENERATION_MAX),
            adopted=tuple(_adopted(*_ids(each)) for each in fields.get("adopted", ())),
        )

    return load_fields(f"topic {name}", value, read)


def _adopted(first_offset: int, leader_epoch: int) -> Adopted:
    return Adopted(_within(first_offset, 0, 2**63 - 1), _within(leader_epoch, 0, 2**31 - 1))


def _folding(fields: Mapping[str, Any], count: int) -> Folding:
    """`count`: of the partitions of the topic."""
    drop_ms, copied = fields.get("drop_ms"), fields.get("copied")
    if copied is not None and not fields["folds"]:
        raise ValueError("a copy for no fold")
    return Folding(
        folds=_folds(fields["folds"]),
        closed_ms=int(fields["closed_ms"]),
        drop_ms=None if drop_ms is None else int(drop_ms),
        last_epoch=int(fields.get("last_epoch", -1)),
        gone=tuple(Gone(*_ids(each)) for each in fields.get("gone", ())),
        generation=_within(fields.get("generation", 0), 0, GENERATIONS_END - 1),
        growth=_growth(fields, count) if "former" in fields else None,
        copied=None if copied is None else int(copied),
    )


def _growth(fields: Mapping[str, Any], count: int) -> Growth:
    return Growth(
        former=_folds(fields["former"]),
        gathering=tuple(_within(index, 0, count - 1) for index in fields["gathering"]),
        draining=tuple(_within(index, 0, count - 1) for index in fields["draining"]),
    )


def _folds(value: Any) -> tuple[Fold, ...]:
    folds = tuple(Fold(*_ids(fold)) for fold in value)
    if not all(0 < fold.divisor <= fold.first < fold.end for fold in folds):
        raise ValueError("a fold into nothing")
    if not all(0 <= fold.generation < GENERATIONS_END for fold in folds):
        raise ValueError("a fold of no generation")
    return folds


def encode_partition(state: PartitionState) -> bytes:
    return _state_text(
        state.leader,
        state.leader_epoch,
        state.isr,
        state.replicas,
        state.adding,
        state.removing,
        state.eligible,
        state.synced,
        state.restored,
        state.doubted,
    )


@lru_cache(_STATES_KEPT)
def _state_text(
    leader: int,
    leader_epoch: int,
    isr: tuple[int, ...],
    replicas: tuple[int, ...],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
    eligible: tuple[int, ...],
    synced: bool,
    restored: int,
    doubted: bool,
) -> bytes:
    fields: dict[str, Any] = {
        "leader": leader,
        "leader_epoch": leader_epoch,
        "isr": isr,
        "replicas": replicas,
    }
    if adding or removing:
        fields |= {"adding": adding, "removing": removing}
    if eligible:
        fields |= {"eligible": eligible}
    if synced:
        fields |= {"synced": True}
    if restored:
        fields |= {"restored": restored}
    if doubted:
        fields |= {"doubted": True}
    return dump_fields(fields)


def decode_partition(index: int, value: bytes, mod_revision: int) -> PartitionState:
    try:
        state = _decode_state(value)
    except ProtocolError:
        state = load_fields(f"state of partition {index}", value, _read_state)  # which says where
    return state.at(index, mod_revision)


@lru_cache(_STATES_KEPT)
def _decode_state(value: bytes) -> PartitionState:
    return load_fields("state", value, _read_state)


def _read_state(fields: Mapping[str, Any]) -> PartitionState:
    state = PartitionState(
        index=0,
        leader=_within(fields["leader"], NO_LEADER, _NUMBER_MAX),
        leader_epoch=_within(fields["leader_epoch"], 0, _NUMBER_MAX),
        isr=_nodes(fields["isr"]),
        replicas=_nodes(fields["replicas"]),
        adding=_nodes(fields.get("adding", [])),
        removing=_nodes(fields.get("removing", [])),
        eligible=_nodes(fields.get("eligible", [])),
        synced=bool(fields.get("synced", False)),
        restored=_within(fields.get("restored", 0), 0, GENERATION_MAX),
        doubted=bool(fields.get("doubted", False)),
    )
    if not state.target:
        raise ValueError("a partition without replicas")
    return state


def encode_overrides(overrides: Mapping[str, str]) -> bytes:
    return dump_fields(dict(sorted(overrides.items())))


def decode_overrides(name: str, value: bytes) -> dict[str, str]:
    def read(fields: Mapping[str, Any]) -> dict[str, str]:
        if not all(isinstance(text, str) for text in fields.values()):
            raise ValueError("a setting that is not text")
        return dict(fields)

    return load_fields(f"settings of {name}", value, read)


def encode_view(view: ViewImage) -> bytes:
    fields: dict[str, Any] = {
        "format": FORMAT_MATERIALIZED if view.materialized else FORMAT,
        "id": topic_id_text(view.view_id),
        "source": topic_id_text(view.source_id),
        "where": view.where,
        "select": view.select,
        "keep_tombstones": view.keep_tombstones,
    }
    if view.materialized:
        fields |= {"materialized": True}
    return dump_fields(fields)


def decode_view(name: str, value: bytes, mod_revision: int) -> ViewImage:
    """Decode a view. One of a later version keeps its name, even if its query cannot be read here."""

    def read(fields: Mapping[str, Any]) -> ViewImage:
        return ViewImage(
            name=name,
            view_id=parse_topic_id(fields["id"]),
            source_id=parse_topic_id(fields["source"]),
            where=_text(fields.get("where")),
            select=_text(fields.get("select")),
            keep_tombstones=bool(fields.get("keep_tombstones", False)),
            materialized=bool(fields.get("materialized", False)),
            format=int(fields.get("format", FORMAT)),
            revision=mod_revision,
        )

    return load_fields(f"view {name}", value, read)


def encode_tombstone(topic: DeletedTopic) -> bytes:
    return dump_fields({"name": topic.name, "deleted_ms": topic.deleted_ms})


def decode_tombstone(topic_id: bytes, value: bytes) -> DeletedTopic:
    def read(fields: Mapping[str, Any]) -> DeletedTopic:
        name, deleted_ms = str(fields["name"]), int(fields["deleted_ms"])
        return DeletedTopic(topic_id=topic_id, name=name, deleted_ms=deleted_ms)

    return load_fields(f"tombstone of topic {topic_id_text(topic_id)}", value, read)


def encode_broker(registration: BrokerRegistration) -> bytes:
    return dump_fields(
        {
            "host": registration.host,
            "port": registration.port,
            "rack": registration.rack,
            "directory": registration.directory,
            "listeners": {name: [host, port] for name, host, port in registration.listeners},
            "process": registration.process,
            "format": registration.store_format,
        }
    )


def decode_broker(broker_id: int, value: bytes, create_revision: int) -> BrokerRegistration:
    def read(fields: Mapping[str, Any]) -> BrokerRegistration:
        rack = fields["rack"]
        return BrokerRegistration(
            id=_within(broker_id, 0, _NUMBER_MAX),
            host=str(fields["host"]),
            port=_port(fields["port"]),
            rack=None if rack is None else str(rack),
            directory=str(fields.get("directory", "")),
            epoch=create_revision,
            listeners=tuple(
                (str(name), str(host), _port(port))
                for name, (host, port) in fields.get("listeners", {}).items()
            ),
            process=str(fields.get("process", "")),
            store_format=int(fields.get("format", FIRST_FORMAT)),
        )

    return load_fields(f"broker {broker_id}", value, read)


def _ids(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _nodes(values: Any) -> tuple[int, ...]:
    """Ids of brokers, none of them twice."""
    if not isinstance(values, list):
        raise ValueError("no list of brokers")
    nodes = _ids(values)
    if len(set(nodes)) != len(nodes) or (nodes and not 0 <= min(nodes) <= max(nodes) <= _NUMBER_MAX):
        raise ValueError(f"brokers {list(nodes)}")
    return nodes


def _port(value: Any) -> int:
    return _within(value, 0, _PORT_MAX)


def _within(value: Any, least: int, most: int) -> int:
    number = int(value)
    if not least <= number <= most:
        raise ValueError(f"{number} where {least} to {most} are possible")
    return number


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def dump_fields(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def load_fields(what: str, value: bytes, read: Callable[[Mapping[str, Any]], T]) -> T:
    """Returns what `read` makes of a stored value. Raises ProtocolError."""
    try:
        fields = json.loads(value)
        if not isinstance(fields, dict):
            raise ValueError("no JSON object")
        return read(fields)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"the stored {what} cannot be read: {error!r}") from None
