"""The stored form of quotas: under an id that is derived from the entity, with its values, as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from forebay.core.quotas.entities import QuotaEntity, read_entity
from forebay.errors import KafkaError, ProtocolError

_FORMAT = 1


def quota_id(entity: QuotaEntity) -> str:
    return hashlib.sha256(json.dumps(entity.parts).encode()).hexdigest()[:32]


def encode_quota(entity: QuotaEntity, values: Mapping[str, float]) -> bytes:
    stored = {"format": _FORMAT, "entity": entity.parts, "values": dict(sorted(values.items()))}
    return json.dumps(stored).encode()


def decode_quota(key: str, data: bytes) -> tuple[QuotaEntity, dict[str, float]]:
    """Values that this version does not know are kept, and limit nothing here."""
    try:
        stored = json.loads(data)
        if stored["format"] != _FORMAT:
            raise ProtocolError(f"the stored quota {key} was made by a later version of Forebay")
        entity = read_entity(((str(kind), name) for kind, name in stored["entity"]), is_stored=True)
        values = {str(name): float(value) for name, value in stored["values"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, KafkaError) as error:
        raise ProtocolError(f"the stored quota {key} cannot be read: {error}") from error
    return entity, values
