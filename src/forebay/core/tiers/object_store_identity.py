"""Tells if an object store is the one that the cluster has copied to.

An object store has an id of its own, in the object `store.json`, and the cluster remembers it. A wrong
bucket, an empty volume or a directory that is not mounted has another id or none. It is not used: manifests
that are missing there would be taken for partitions that were never copied, and the history that is elsewhere
would be given up.
"""

from __future__ import annotations

import json

from forebay.errors import ProtocolError

_FORMAT = 1
_ID_LENGTH_MAX = 64


def refusal(known: str | None, found: str | None, accepted: str | None) -> str | None:
    """Why the store must not be used; None if it may, or may be given an id.

    `known` is the id that the cluster remembers, `found` that of the store, None if there is none.
    `accepted` is the one that an administrator has set, and overrules the first.
    """
    wanted = accepted or known
    if found == wanted or (known is None and accepted is None) or (accepted is not None and found is None):
        return None
    is_other = "it has no store.json" if found is None else f"its id is {found}"
    advice = (
        "if the old one is lost or given up for good, set forebay.remote.store.id to "
        + ("a name for this one" if found is None else found)
        if accepted is None
        else "correct forebay.remote.store.id"
    )
    return (
        f"this is not the object store with the id {wanted} that this cluster has copied to: {is_other};"
        f" correct forebay.remote.url, or mount it; {advice}"
    )


def encode_store_id(store_id: str) -> bytes:
    return json.dumps({"format": _FORMAT, "store_id": store_id}).encode()


def decode_store_id(data: bytes) -> str:
    """Raises ProtocolError if no broker has written this."""
    try:
        found = json.loads(data)["store_id"]
    except (ValueError, KeyError, TypeError) as error:
        raise ProtocolError(f"store.json is malformed: {error!r}") from error
    if not isinstance(found, str) or not 0 < len(found) <= _ID_LENGTH_MAX:
        raise ProtocolError("store.json is malformed: it names no store")
    return found
