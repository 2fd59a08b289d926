"""A record of the last failovers: which broker was counted as dead, and how long each step took."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields

from forebay.errors import ProtocolError
from forebay.lazy import dataclass

KEPT_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    broker: int
    by: int
    """The broker that declared the other dead."""
    at_ms: int
    """Wall time."""
    partitions: int
    """The number of partitions that it led."""
    detect_ms: int
    """From the broken connection to the second refusal."""
    fence_ms: int
    """Until its registration was gone."""
    elect_ms: int
    """Until the first of its partitions had another leader."""
    announce_ms: int
    """Until all of them had, as seen by the broker that declared it dead."""


def encode_failovers(failovers: Sequence[Failover]) -> bytes:
    return json.dumps([asdict(each) for each in failovers]).encode()


def decode_failovers(text: bytes) -> list[Failover]:
    """Raises ProtocolError. Fields that newer versions add are left out."""
    names = [each.name for each in fields(Failover)]
    try:
        return [Failover(**{name: int(each[name]) for name in names}) for each in json.loads(text)]
    except (ValueError, TypeError, KeyError) as error:
        raise ProtocolError(f"the stored failovers cannot be read: {error!r}") from None
