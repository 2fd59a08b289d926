"""The text in which a user is stored: its keys in base64, by the name of their mechanism."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from forebay.core.cluster.images.user_image import ScramCredential, UserImage
from forebay.errors import ProtocolError
from forebay.wire.sasl.scram import BY_NAME, ScramMechanism


def encode_user(user: UserImage) -> bytes:
    return json.dumps(credential_fields(user.credentials), separators=(",", ":")).encode()


def credential_fields(credentials: Mapping[ScramMechanism, ScramCredential]) -> dict[str, Any]:
    return {
        mechanism.sasl_name: {
            "salt": b64encode(credential.salt).decode(),
            "iterations": credential.iterations,
            "stored_key": b64encode(credential.stored_key).decode(),
            "server_key": b64encode(credential.server_key).decode(),
        }
        for mechanism, credential in sorted(credentials.items(), key=lambda item: item[0].code)
    }


def decode_user(name: str, value: bytes, mod_revision: int) -> UserImage:
    try:
        credentials = read_credentials(json.loads(value))
    except (ValueError, TypeError, KeyError, AttributeError):
        # Without the error itself: it may quote the keys.
        raise ProtocolError(f"the stored user {name} cannot be read") from None
    return UserImage(name=name, credentials=credentials, revision=mod_revision)


def read_credentials(fields: Any) -> dict[ScramMechanism, ScramCredential]:
    """Mechanisms that this version does not know are skipped. Raises ValueError, TypeError, KeyError."""
    if not isinstance(fields, dict):
        raise ValueError("no JSON object")
    return {BY_NAME[each]: _credential(fields[each]) for each in fields if each in BY_NAME}


def _credential(fields: Mapping[str, Any]) -> ScramCredential:
    return ScramCredential(
        salt=b64decode(fields["salt"], validate=True),
        stored_key=b64decode(fields["stored_key"], validate=True),
        server_key=b64decode(fields["server_key"], validate=True),
        iterations=int(fields["iterations"]),
    )
