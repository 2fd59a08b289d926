"""A data directory's record of the cluster's store, to notice when the store was restored.

One small file, `store-evidence`, replaced atomically. It records the store's progress as this broker has seen
it, and what the broker wrote there last. A store that was restored from a backup lacks some of it
(`core/cluster/restore_detection.py`).
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict

from forebay.lazy import dataclass
from forebay.storage.disk import Disk

log = logging.getLogger(__name__)

STORE_EVIDENCE = "store-evidence"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEvidence:
    cluster: str = ""
    """The id of the store itself."""
    revision: int = 0
    """The highest revision that was seen; likewise the index."""
    index: int = 0
    nonces: tuple[str, ...] = ()
    """The possible values under this broker's key: the last one written, and while that is uncertain the
    previous one. Empty text: nothing."""
    restore: str = ""
    """The id of the last restore that this broker knows of."""
    generation: int = 0
    producer_ids_end: int = 0
    """The end of the last block of producer ids that this broker was given."""


def read_evidence(disk: Disk, directory: str) -> StoreEvidence | None:
    path = f"{directory}/{STORE_EVIDENCE}"
    if not disk.exists(path):
        return None
    try:
        fields = json.loads(disk.read_bytes(path))
        return StoreEvidence(
            cluster=str(fields["cluster"]),
            revision=int(fields["revision"]),
            index=int(fields["index"]),
            nonces=tuple(str(nonce) for nonce in fields["nonces"]),
            restore=str(fields.get("restore", "")),
            generation=int(fields.get("generation", 0)),
            producer_ids_end=int(fields.get("producer_ids_end", 0)),
        )
    except (ValueError, KeyError, TypeError) as error:
        log.error("%s cannot be read, so that a restored store is not noticed: %r", path, error)
        return None


def write_evidence(disk: Disk, directory: str, evidence: StoreEvidence) -> None:
    """Blocks."""
    text = json.dumps(asdict(evidence), indent=1) + "\n"
    disk.write_atomic(f"{directory}/{STORE_EVIDENCE}", text.encode())
