"""The manifest of a partition: which of its messages are in the object store, and in which objects.

It is a JSON object, written by the leader of the partition alone, by compare-and-set on its ETag. In it:

    format          1. A reader must refuse a higher number
    topic           the name, for people
    topic_id        32 hexadecimal digits
    partition       the number
    version         grows by one with every change
    leader_epoch    that of the leader that wrote it. A leader writes only if its own epoch is not lower, so
                    that a leader which was replaced without noticing cannot write once the next one has
    writer          which broker wrote it, and a number of its own: it recognises its own lost answers. Or
                    "rebuilt", if it was lost and made anew: it may lack segments until a leader claims it.
                    ("rebuilt, loss accepted": messages that nobody finds any more are to be passed over)
    start_offset    messages below are deleted, even if a segment still holds them
    segments        oldest first: an array of objects, see below. Each begins where the one before ends
    pending         keys of objects that the writer is about to upload, or has uploaded and not yet listed
    doomed          objects to be deleted: each has its key, and `delete_at_ms`, the time from which it may be

A segment has

    key             the object, relative to the root of the store (`layout.py`)
    base_offset     that of its first message
    next_offset     the one after its last message
    data_bytes      how long its batches are; the index follows
    object_bytes    the size of the whole object
    max_timestamp   the largest of any message, in milliseconds; -1 if none has one
    epochs          the leader epochs in it: arrays of epoch and first offset, ascending
    aborted         how many aborted transactions have messages in it
    sha256          of the whole object
    copied_ms       when it was copied

Messages from `start_offset` (or the base offset of the first segment, if that is higher) up to the
`next_offset` of the last segment can be read from the objects. Everything in them was committed, and belongs
to no open transaction. The log of the leader continues at that offset or before, so a reader that wants
everything takes the objects first, and the rest from a broker.

A reader that finds an object missing has an old manifest: it reads the manifest again. Objects are deleted
no sooner than `forebay.remote.delete.delay.ms` after the manifest no longer lists them.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from typing import Any, NamedTuple

from forebay.errors import ProtocolError

FORMAT = 1
REBUILT = "rebuilt"
"""The writer of a manifest that was made anew from the segments. What it does not list was not deleted."""


LOSS_ACCEPTED = "rebuilt, loss accepted"
"""Likewise, and somebody has said that messages which nobody finds any more are to be passed over."""


class NewerFormat(ProtocolError):
    """A newer Forebay has written the manifest."""


class RemoteSegment(NamedTuple):
    key: str
    base_offset: int
    next_offset: int
    data_bytes: int
    object_bytes: int
    max_timestamp: int
    epochs: tuple[tuple[int, int], ...]
    aborted: int
    sha256: str
    copied_ms: int

    @property
    def size(self) -> int:
        """The bytes of its batches, as the local log counts them."""
        return self.data_bytes

    @property
    def largest_timestamp(self) -> int:
        return self.max_timestamp

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1


class Doomed(NamedTuple):
    """An object that is to be deleted."""

    key: str
    delete_at_ms: int


class Manifest(NamedTuple):
    topic: str
    topic_id: bytes
    partition: int
    version: int = 0
    leader_epoch: int = -1
    writer: str = ""
    start_offset: int = 0
    segments: tuple[RemoteSegment, ...] = ()
    pending: tuple[str, ...] = ()
    doomed: tuple[Doomed, ...] = ()

    @property
    def first_offset(self) -> int:
        """The first message that can be read here; `next_offset` if there is none."""
        return max(self.start_offset, self.segments[0].base_offset) if self.segments else self.start_offset

    @property
    def next_offset(self) -> int:
        """The offset after the last message that is here; `start_offset` if there is none."""
        return self.segments[-1].next_offset if self.segments else self.start_offset

    @property
    def is_made_anew(self) -> bool:
        """True if it was lost, and no leader has claimed yet what was made of the segments: it may lack some,
        and list messages of a lost history."""
        return self.writer in (REBUILT, LOSS_ACCEPTED)

    @property
    def data_bytes(self) -> int:
        return sum(segment.data_bytes for segment in self.segments)

    def find(self, offset: int) -> RemoteSegment | None:
        """The segment that holds an offset."""
        number = bisect_right(self.segments, offset, key=_base_offset) - 1
        if number < 0 or offset >= self.segments[number].next_offset or offset < self.start_offset:
            return None
        return self.segments[number]

    def from_offset(self, offset: int, until: int | None = None) -> tuple[RemoteSegment, ...]:
        """The segments with messages at this offset or later, and before another one."""
        first = bisect_right(self.segments, offset, key=lambda segment: segment.next_offset)
        last = None if until is None else bisect_left(self.segments, until, key=_base_offset)
        return self.segments[first:last]


def _base_offset(segment: RemoteSegment) -> int:
    return segment.base_offset


def encode_manifest(manifest: Manifest) -> bytes:
    content = manifest._asdict()
    content["format"] = FORMAT
    content["topic_id"] = manifest.topic_id.hex()
    content["segments"] = [segment._asdict() for segment in manifest.segments]
    content["doomed"] = [doomed._asdict() for doomed in manifest.doomed]
    return json.dumps(content, separators=(",", ":")).encode()


def decode_manifest(data: bytes) -> Manifest:
    """Raises ProtocolError if this is not a manifest, or one of a newer format."""
    try:
        content: dict[str, Any] = json.loads(data)
        written_as = content["format"]
        if written_as > FORMAT:
            raise NewerFormat(f"the manifest has format {written_as}: a newer Forebay has written it")
        manifest = Manifest(
            topic=str(content["topic"]),
            topic_id=bytes.fromhex(content["topic_id"]),
            partition=int(content["partition"]),
            version=int(content["version"]),
            leader_epoch=int(content["leader_epoch"]),
            writer=str(content["writer"]),
            start_offset=int(content["start_offset"]),
            segments=tuple(_segment(entry) for entry in content["segments"]),
            pending=tuple(map(str, content["pending"])),
            doomed=tuple(Doomed(str(e["key"]), int(e["delete_at_ms"])) for e in content["doomed"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProtocolError(f"the manifest is malformed: {error!r}") from error
    _check(manifest)
    return manifest


def _segment(entry: dict[str, Any]) -> RemoteSegment:
    return RemoteSegment(
        key=str(entry["key"]),
        base_offset=int(entry["base_offset"]),
        next_offset=int(entry["next_offset"]),
        data_bytes=int(entry["data_bytes"]),
        object_bytes=int(entry["object_bytes"]),
        max_timestamp=int(entry["max_timestamp"]),
        epochs=tuple((int(epoch), int(start)) for epoch, start in entry["epochs"]),
        aborted=int(entry["aborted"]),
        sha256=str(entry["sha256"]),
        copied_ms=int(entry["copied_ms"]),
    )


def _check(manifest: Manifest) -> None:
    before = None
    for segment in manifest.segments:
        if segment.next_offset <= segment.base_offset or before not in (None, segment.base_offset):
            raise ProtocolError(f"the manifest is malformed: segment {segment.key} does not follow {before}")
        before = segment.next_offset
