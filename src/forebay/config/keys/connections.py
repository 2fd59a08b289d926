"""The settings of connections: their number, and the cost of each."""

from __future__ import annotations

from forebay.config.declared_settings import settings_group
from forebay.config.values import INT_MAX, Value, int_key, long_key

_QUEUED_BYTES_MIN = 1024 * 1024


def _queued_bytes(value: Value) -> None:
    if isinstance(value, int) and value != -1 and value < _QUEUED_BYTES_MIN:
        raise ValueError(f"at least {_QUEUED_BYTES_MIN}, or -1 for no bound")


@settings_group
class SocketConfig:
    request_max_bytes: int = int_key(
        "socket.request.max.bytes", 104857600, "The largest request taken from a client.", 1024
    )
    request_elements_max: int = int_key(
        "forebay.request.elements.max",
        100_000,
        "The most elements of one request: names of topics, partitions, groups and the like, counted in all"
        " its lists; a fifth of it for requests that cannot be handled in pieces, such as Fetch. A request"
        " with more is refused before anything is made of them. Raise it for clients that ask for more at"
        " once; each element takes about half a kilobyte of memory while it is handled.",
        10_000,
        10_000_000,
        dynamic=True,
    )
    max_connections: int = int_key(
        "max.connections",
        INT_MAX,
        "The most connections at any time, besides those of brokers. At the limit a connection that has not "
        "logged in makes room for a new one.",
        0,
        dynamic=True,
    )
    max_connections_per_ip: int = int_key(
        "max.connections.per.ip", INT_MAX, "The most connections from one address.", 0, dynamic=True
    )
    idle_ms_max: int = long_key(
        "connections.max.idle.ms",
        600_000,
        "Connections idle for this long are closed, but for those through which a member of a share group "
        "holds records.",
        1000,
    )
    inflight_requests_max: int = int_key(
        "forebay.connection.max.inflight.requests",
        1000,
        "Requests of one connection that may wait for an answer before no more are read from it.",
        1,
        100_000,
    )
    queued_bytes_max: int = long_key(
        "queued.max.request.bytes",
        64 * 1024 * 1024,
        "Memory for requests that have not come whole, or wait to be handled, of all connections. Clients "
        "that have not logged in have a sixteenth of it. When it is used up, requests are read when others "
        "are done. Those of more than an eighth of it come one at a time, unless they fit into it together; "
        "one may be larger than all of it. -1: no bound, which is Kafka's default.",
        -1,
        validate=_queued_bytes,
    )
    receive_timeout_ms: int = long_key(
        "forebay.request.receive.timeout.ms",
        30_000,
        "A connection is closed if a request does not come whole within this time. While others wait for "
        "memory, requests of the user or address that holds the most have a tenth of it.",
        100,
    )
    turn_ms: int = int_key(
        "forebay.connection.turn.max.ms",
        5,
        "How long the requests of one connection are handled before others have their turn. Connections that "
        "take longer wait in line, and have twice this time together.",
        1,
        10_000,
    )
    strangers_turn_ms: int = int_key(
        "forebay.unauthenticated.turn.max.ms",
        2,
        "How long the requests of all connections that have not logged in are handled before others have "
        "their turn.",
        1,
        10_000,
    )
    stall_alarm_ms: int = long_key(
        "forebay.stall.alarm.ms",
        250,
        "A request that keeps the event loop for this long, so that no other is served, is named in the log.",
        1,
    )
