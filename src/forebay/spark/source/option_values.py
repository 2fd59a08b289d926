"""The values of a read's options: texts, and what they mean. Errors spell an option as people do."""

from __future__ import annotations

import re
from collections.abc import Mapping

from forebay.errors import ConfigError

SPELLING = {
    name.lower(): name
    for name in (
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "endingOffsets",
        "endingTimestamp",
        "endingOffsetsByTimestamp",
        "partitions",
        "minOffset",
        "maxOffset",
        "minTimestamp",
        "maxTimestamp",
        "failOnDataLoss",
        "unreadableRecords",
        "lostRecords",
        "minPartitions",
        "maxRecordsPerPartition",
        "minRecordsPerPartition",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "includeHeaders",
        "refreshOffsets",
        "groupIdPrefix",
        "commitOffsets",
        "readRemote",
        "remoteUrl",
    )
}

_DELAY_UNITS_MS = {
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


def spelled(name: str) -> str:
    return SPELLING.get(name, name)


def boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{spelled(name)}={given[name]}: give true or false")
    return text == "true"


def choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """One of the choices; the first is the default."""
    text = given.get(name, choices[0]).strip().lower()
    if text not in choices:
        raise ConfigError(f"{spelled(name)}={given[name]}: give {' or '.join(choices)}")
    return text


def count(given: Mapping[str, str], name: str, least: int = 1) -> int:
    """A whole number; 0 when the option was not given."""
    text = given.get(name)
    if text is None:
        return 0
    if not text.strip().isascii() or not text.strip().isdigit() or int(text) < least:
        raise ConfigError(f"{spelled(name)}={text}: give a whole number of {least} or more")
    return int(text)


def delay_ms(text: str) -> int:
    parsed = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if parsed is None or parsed[2] not in {"", *_DELAY_UNITS_MS}:
        raise ConfigError(f"maxTriggerDelay={text}: give a time such as 500ms, 30s or 15m")
    return int(int(parsed[1]) * _DELAY_UNITS_MS[parsed[2] or "ms"])
