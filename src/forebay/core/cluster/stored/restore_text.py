"""The stored form of restores and claims: small JSON objects, as in `image_text.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from forebay.core.cluster.restore_image import GENERATION_MAX, Claim, ClaimsPart, PartitionKey, Restore
from forebay.core.cluster.stored.image_text import dump_fields, load_fields, parse_topic_id, topic_id_text

_CLAIMS_PER_KEY = 4_000
"""Far below etcd's limit for one request."""


def encode_restore(restore: Restore) -> bytes:
    return dump_fields(
        {
            "generation": restore.generation,
            "id": restore.id,
            "found_by": restore.found_by,
            "time_ms": restore.time_ms,
        }
    )


def decode_restore(value: bytes) -> Restore:
    def read(fields: Mapping[str, Any]) -> Restore:
        generation = int(fields["generation"])
        if not 0 <= generation <= GENERATION_MAX:
            raise ValueError(f"restore {generation}")
        return Restore(
            generation=generation,
            id=str(fields["id"]),
            found_by=int(fields.get("found_by", -1)),
            time_ms=int(fields.get("time_ms", 0)),
        )

    return load_fields("restore", value, read)


def encode_claims(
    claims: Mapping[PartitionKey, Claim], generation: int, broker_epoch: int
) -> Iterator[bytes]:
    """The values of the keys 0, 1, ... of a report."""
    items = sorted(claims.items())
    chunks = [items[at : at + _CLAIMS_PER_KEY] for at in range(0, len(items), _CLAIMS_PER_KEY)] or [[]]
    for chunk in chunks:
        topics: dict[str, list[tuple[Any, ...]]] = {}
        for (topic_id, index), claim in chunk:
            topics.setdefault(topic_id_text(topic_id), []).append((index, *claim))
        yield dump_fields(
            {
                "generation": generation,
                "broker_epoch": broker_epoch,
                "parts": len(chunks),
                "topics": topics,
            }
        )


def decode_claims(node: int, number: int, value: bytes) -> ClaimsPart:
    def read(fields: Mapping[str, Any]) -> ClaimsPart:
        return ClaimsPart(
            node=node,
            number=number,
            parts=int(fields["parts"]),
            generation=int(fields["generation"]),
            broker_epoch=int(fields["broker_epoch"]),
            claims={
                (parse_topic_id(topic_id), int(index)): _claim(*of_partition)
                for topic_id, entries in fields["topics"].items()
                for index, *of_partition in entries
            },
        )

    return load_fields(f"claims of broker {node}", value, read)


def _claim(
    epoch: int, end_offset: int, latest: int, high_watermark: int = 0, epochs: Sequence[Sequence[int]] = ()
) -> Claim:
    starts = tuple((int(each), int(start)) for each, start in epochs)
    return Claim(int(epoch), int(end_offset), int(latest), int(high_watermark), starts)
