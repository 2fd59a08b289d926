"""The text in which a delegation token is stored: JSON, with SCRAM keys in the same form as a user's."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode

from forebay.core.cluster.images.delegation_token import DelegationToken
from forebay.core.cluster.stored.user_text import credential_fields, read_credentials
from forebay.errors import ProtocolError

_FORMAT = 1


def encode_token(token: DelegationToken) -> bytes:
    fields = {
        "format": _FORMAT,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": token.renewers,
        "issued_ms": token.issued_ms,
        "expires_ms": token.expires_ms,
        "max_ms": token.max_ms,
        "digest": b64encode(token.digest).decode(),
        "keys": credential_fields(token.credentials),
    }
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def decode_token(token_id: str, value: bytes, mod_revision: int) -> DelegationToken:
    try:
        fields = json.loads(value)
        if fields["format"] != _FORMAT:
            raise ValueError("of a later version")
        return DelegationToken(
            id=token_id,
            owner=_principal(fields["owner"]),
            requester=_principal(fields["requester"]),
            renewers=tuple(_principal(each) for each in fields["renewers"]),
            issued_ms=int(fields["issued_ms"]),
            expires_ms=int(fields["expires_ms"]),
            max_ms=int(fields["max_ms"]),
            digest=b64decode(fields["digest"], validate=True),
            credentials=read_credentials(fields["keys"]),
            revision=mod_revision,
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        # Without the error itself: it may quote the keys.
        raise ProtocolError(f"the stored delegation token {token_id} cannot be read") from None


def _principal(text: str) -> str:
    kind, _, name = text.partition(":")
    if kind != "User" or not name:
        raise ValueError("no principal of a user")
    return text
