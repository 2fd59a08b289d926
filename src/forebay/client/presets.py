"""The meaning of `delivery` and `profile`, as librdkafka's settings. docs/client.md shows the same tables.

Settings that a delivery mode decides cannot be changed: a single change would silently void the guarantee.
All others can.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import confluent_kafka

from forebay.errors import ConfigError

Delivery = Literal["at-most-once", "at-least-once", "exactly-once"]
Profile = Literal["throughput", "latency"]
Start = Literal["earliest", "latest"]
Acks = Literal[0, 1]
Settings = Mapping[str, Any]

PRODUCER_DELIVERY: dict[str, dict[str, Any]] = {
    # Fire and forget. With the argument acks=1 the leader answers, and its refusals become visible.
    "at-most-once": {"acks": 0, "enable.idempotence": False, "retries": 0},
    # Idempotence keeps retries from duplicating or reordering messages.
    "at-least-once": {"acks": "all", "enable.idempotence": True},
    "exactly-once": {"acks": "all", "enable.idempotence": True},
}
PRODUCER_PROFILE: dict[str, dict[str, Any]] = {
    "throughput": {"linger.ms": 20, "batch.size": 1_000_000, "compression.type": "lz4"},
    "latency": {"linger.ms": 0, "compression.type": "none"},
}
CONSUMER_DELIVERY: dict[str, dict[str, Any]] = {
    "at-most-once": {"enable.auto.commit": False},
    "at-least-once": {"enable.auto.commit": True},
    "exactly-once": {"enable.auto.commit": False},
}
CONSUMER_ALWAYS: dict[str, Any] = {
    # This client decides which messages are done: librdkafka only knows which were handed out.
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": False,
}
CONSUMER_DEFAULTS: dict[str, Any] = {"auto.commit.interval.ms": 1000}
CONSUMER_PROFILE: dict[str, dict[str, Any]] = {
    "throughput": {"fetch.min.bytes": 65_536, "fetch.wait.max.ms": 100},
    "latency": {"fetch.min.bytes": 1, "fetch.wait.max.ms": 500},
}
PRODUCER_DEFAULTS: dict[str, Any] = {
    # Java's default: a key goes to the same partition from every client.
    "partitioner": "murmur2_random",
}

_FORGETFUL_FROM = 0x020B0000
_IDLE_MS_MAX = 10_000
_HANGING_MS_MAX = 15_000

# Other spellings of settings that a mode decides.
_ALIASES = {"request.required.acks": "acks", "message.send.max.retries": "retries"}


def producer_settings(
    servers: str | Sequence[str],
    delivery: str,
    profile: str,
    transactional_id: str | None,
    settings: Settings | None,
    acks: Acks | None = None,
) -> dict[str, Any]:
    _check(delivery, profile)
    decided = {**PRODUCER_DELIVERY[delivery], **_chosen_acks(delivery, acks)}
    defaults = {**PRODUCER_DEFAULTS, **PRODUCER_PROFILE[profile]}
    if delivery == "exactly-once":
        decided["transactional.id"] = transactional_id
        defaults |= _remembering_brokers()
    elif transactional_id is not None:
        raise ConfigError(f"a transactional id belongs to delivery='exactly-once', not {delivery!r}")
    return _merge(servers, defaults, settings, {"transactional.id": None, **decided}, delivery)


def _chosen_acks(delivery: str, acks: Acks | None) -> dict[str, Any]:
    if acks is None:
        return {}
    if delivery != "at-most-once":
        raise ConfigError(f"delivery={delivery!r} needs the acknowledge of all replicas: leave acks out")
    if acks not in get_args(Acks):
        raise ConfigError(f"acks={acks!r}: write 0 or 1")
    return {"acks": acks}


def _remembering_brokers() -> dict[str, Any]:
    """librdkafka forgets a broker that is down, and may then wait for ever to send offsets to it.

    See its issues 5456 and 5511; versions before 2.11 forget nothing. A single broker is remembered by the
    strategy. In a cluster the wait ends when the connection to any other broker comes or goes: so idle ones
    are closed soon.
    """
    if confluent_kafka.libversion()[1] < _FORGETFUL_FROM:
        return {}
    return {"metadata.recovery.strategy": "none", "connections.max.idle.ms": _IDLE_MS_MAX}


def consumer_settings(
    servers: str | Sequence[str],
    group: str,
    delivery: str,
    profile: str,
    start: str,
    settings: Settings | None,
) -> dict[str, Any]:
    _check(delivery, profile)
    _one_of("start", start, get_args(Start))
    defaults = {**CONSUMER_DEFAULTS, **CONSUMER_PROFILE[profile]}
    decided = {
        **CONSUMER_ALWAYS,
        **CONSUMER_DELIVERY[delivery],
        "group.id": group,
        "auto.offset.reset": start,
    }
    return _merge(servers, defaults, settings, decided, delivery)


def share_consumer_settings(
    servers: str | Sequence[str], group: str, batch_max: int, lock_s: float, settings: Settings | None
) -> dict[str, Any]:
    defaults = {
        "fetch.wait.max.ms": 500,
        # A member that handles one message for as long as its lock lasts stays in the group.
        "max.poll.interval.ms": max(300_000, round(lock_s * 2000)),
    }
    decided = {
        "group.id": group,
        "max.poll.records": batch_max,
        # The outcome is reported for each message; librdkafka would accept those that it has handed out.
        "share.acknowledgement.mode": "explicit",
    }
    return _merge(servers, defaults, settings, decided, "")


def admin_settings(servers: str | Sequence[str], settings: Settings | None) -> dict[str, Any]:
    return _merge(servers, {}, settings, {}, "")


def assigns_in_steps(settings: Settings) -> bool:
    """True if partitions are assigned and revoked one by one in the group, and not all at once."""
    strategy = settings.get("partition.assignment.strategy", "")
    # librdkafka accepts CONSUMER, too, as Java's programs write it.
    return settings.get("group.protocol", "").lower() == "consumer" or "cooperative" in strategy


def _merge(
    servers: str | Sequence[str],
    defaults: Settings,
    settings: Settings | None,
    decided: Settings,
    delivery: str,
) -> dict[str, Any]:
    chosen = dict(settings or {})
    for name in chosen:
        if _ALIASES.get(name, name) in decided:
            decider = (
                f"delivery={delivery!r} and the arguments decide" if delivery else "the arguments decide"
            )
            raise ConfigError(f"{name} is not yours to set: {decider} it")
    common = {
        "bootstrap.servers": servers if isinstance(servers, str) else ",".join(servers),
        # librdkafka's log goes where the program's other log records go, not to stderr.
        "logger": logging.getLogger("forebay.client"),
        "log.connection.close": False,
        # A broker that hangs, with open connections, is given up after this time, not after a minute.
        "socket.timeout.ms": _HANGING_MS_MAX,
    }
    fixed = {name: value for name, value in decided.items() if value is not None}
    return {**common, **defaults, **chosen, **fixed}


def _check(delivery: str, profile: str) -> None:
    _one_of("delivery", delivery, get_args(Delivery))
    _one_of("profile", profile, get_args(Profile))


def _one_of(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{name}={value!r}: write one of {', '.join(map(repr, choices))}")
