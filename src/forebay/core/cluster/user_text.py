"""The text in which a user is stored: its keys by the name of their mechanism, in base64."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from forebay.core.cluster.user_image import ScramCredential, UserImage
from forebay.errors import ProtocolError
from forebay.wire.sasl.scram import BY_NAME


def encode_user(user: UserImage) -> bytes:
    fields = {
        mechanism.sasl_name: {
            "salt": b64encode(credential.salt).decode(),
            "iterations": credential.iterations,
            "stored_key": b64encode(credential.stored_key).decode(),
            "server_key": b64encode(credential.server_key).decode(),
        }
        for mechanism, credential in sorted(user.credentials.items(), key=lambda item: item[0].code)
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_user(name: str, value: bytes, mod_revision: int) -> UserImage:
    """Mechanisms that this version does not know are passed over."""
    try:
        fields = json.loads(value)
        if not isinstance(fields, dict):
            raise ValueError("no JSON object")
        credentials = {BY_NAME[each]: _credential(fields[each]) for each in fields if each in BY_NAME}
    except (ValueError, TypeError, KeyError, AttributeError):
        # Without the error itself: it may quote the keys.
        raise ProtocolError(f"the stored user {name} cannot be read") from None
    return UserImage(name=name, credentials=credentials, revision=mod_revision)


def _credential(fields: Mapping[str, Any]) -> ScramCredential:
    return ScramCredential(
        salt=b64decode(fields["salt"], validate=True),
        stored_key=b64decode(fields["stored_key"], validate=True),
        server_key=b64decode(fields["server_key"], validate=True),
        iterations=int(fields["iterations"]),
    )
