"""The environment variables that describe a message to its command."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from forebay.operations.messages.message_formats import json_headers

if TYPE_CHECKING:
    from forebay.client import QueueMessage

VALUE_BYTES_MAX = 100_000
"""Longer ones are left out: Linux refuses a variable of 128 KiB."""
_NOT_IN_NAMES = re.compile(r"[^A-Z0-9_]")


def message_variables(message: QueueMessage, group: str) -> dict[str, str]:
    variables = {
        "FOREBAY_TOPIC": message.topic,
        "FOREBAY_PARTITION": str(message.partition),
        "FOREBAY_OFFSET": str(message.offset),
        "FOREBAY_TIMESTAMP_MS": str(message.timestamp_ms),
        "FOREBAY_GROUP": group,
        "FOREBAY_DELIVERY_COUNT": str(message.delivery_count),
        "FOREBAY_HEADERS": json.dumps(json_headers(message.headers), ensure_ascii=False),
        **dict(_headers(message)),
    }
    if message.key is not None:
        variables["FOREBAY_KEY"] = os.fsdecode(message.key)
        variables["FOREBAY_KEY_BASE64"] = base64.b64encode(message.key).decode()
    if message.value is None:
        variables["FOREBAY_NULL_VALUE"] = "1"
    return {name: value for name, value in variables.items() if _fits(value)}


def _headers(message: QueueMessage) -> Iterator[tuple[str, str]]:
    """The headers, the last of several with one name, as in Kafka's clients."""
    for name, value in message.headers:
        if value is not None:
            yield f"FOREBAY_HEADER_{_NOT_IN_NAMES.sub('_', name.upper())}", os.fsdecode(value)


def _fits(value: str) -> bool:
    return "\0" not in value and len(os.fsencode(value)) <= VALUE_BYTES_MAX
