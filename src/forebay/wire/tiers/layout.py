"""The objects of tiered storage and their names.

Everything lies under one root, the setting `forebay.remote.url`. Names ("keys") are relative to it:

    store.json                                       the id of the store
    topics/<topic id>/topic.json                     name, partition count and settings, for a restore
    topics/<topic id>/<partition>/manifest.json      what of the partition is here (`manifest.py`)
    topics/<topic id>/<partition>/<base>-<next>-<epoch>-<random>.segment       messages (`segment_object.py`)

A topic id is 32 lower-case hexadecimal digits, a partition a decimal number, offsets 20 digits, so that
names sort by offset. The random part is new for each attempt to copy: no two writers ever write one object,
and no object but the manifest and topic.json is ever written twice.

A segment object counts if and only if the manifest lists it. Readers begin at the manifest, which they get
with one request, and never have to list.
"""

from __future__ import annotations

from typing import NamedTuple

STORE = "store.json"
TOPICS = "topics/"
MANIFEST = "manifest.json"
TOPIC = "topic.json"
SEGMENT_SUFFIX = ".segment"


def topic_prefix(topic_id: bytes) -> str:
    """The names of all objects of a topic begin so."""
    return f"{TOPICS}{topic_id.hex()}/"


def partition_prefix(topic_id: bytes, partition: int) -> str:
    return f"{topic_prefix(topic_id)}{partition}/"


def manifest_key(topic_id: bytes, partition: int) -> str:
    return partition_prefix(topic_id, partition) + MANIFEST


def topic_key(topic_id: bytes) -> str:
    return topic_prefix(topic_id) + TOPIC


def segment_key(
    topic_id: bytes, partition: int, base_offset: int, next_offset: int, leader_epoch: int, unique: str
) -> str:
    name = f"{base_offset:020d}-{next_offset:020d}-{leader_epoch}-{unique}{SEGMENT_SUFFIX}"
    return partition_prefix(topic_id, partition) + name


class SegmentName(NamedTuple):
    """What the name of a segment object tells."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    """Of the leader that copied it."""


def segment_name(key: str) -> SegmentName | None:
    """None if the key is none of a segment."""
    if not key.endswith(SEGMENT_SUFFIX):
        return None
    numbers = key.rpartition("/")[2].split("-")[:3]
    if len(numbers) < 3 or not all(number.isdecimal() for number in numbers):
        return None
    return SegmentName(*map(int, numbers))


def partition_of(key: str) -> int | None:
    """The partition that an object belongs to; None if it belongs to none."""
    number = key[len(TOPICS) :].split("/")[1:2] if topic_id_of(key) is not None else []
    return int(number[0]) if number and number[0].isdecimal() else None


def topic_id_of(key: str) -> bytes | None:
    """The topic that an object belongs to; None if the key is not one of ours."""
    if not key.startswith(TOPICS):
        return None
    name = key[len(TOPICS) :].partition("/")[0]
    try:
        topic_id = bytes.fromhex(name)
    except ValueError:
        return None
    return topic_id if len(topic_id) == 16 and topic_id.hex() == name else None
