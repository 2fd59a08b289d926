"""The settings of one broker process: its id, its directory, its listeners and its own log."""

from __future__ import annotations

from forebay.config.listeners import (
    SecurityProtocol,
    validate_advertised,
    validate_listeners,
    validate_metrics_listener,
    validate_protocol_map,
)
from forebay.config.values import Value, bool_key, int_key, list_key, text_key


def _one_directory(value: Value) -> None:
    if not isinstance(value, tuple) or len(value) != 1:
        raise ValueError(
            "exactly one data directory per broker process; start another broker for another disk"
        )


NODE_KEYS = (
    int_key(
        "node.id",
        1,
        "The number of this broker, unique in its cluster. A broker of a forebay.cluster that is given none "
        "gets one, and remembers it in its data directory.",
        0,
    ),
    text_key(
        "broker.rack",
        None,
        "The failure domain of this broker, told to clients and used to keep replicas apart.",
    ),
    list_key(
        "log.dirs",
        ("./forebay-data",),
        "The directory that holds this broker's data.",
        validate=_one_directory,
    ),
    list_key(
        "listeners",
        ("PLAINTEXT://127.0.0.1:9092",),
        "The addresses to listen on, NAME://host:port, with commas between them; no name means PLAINTEXT, no "
        "host every interface, port 0 any free port.",
        validate=validate_listeners,
    ),
    list_key(
        "listener.security.protocol.map",
        (),
        "What is spoken on each listener, NAME:PROTOCOL, with commas between them. A listener that has the "
        "name of a protocol needs no entry.",
        validate=validate_protocol_map,
    ),
    list_key(
        "advertised.listeners",
        (),
        "The addresses told to clients, NAME://host:port. A client of a listener that is not named here is "
        "told the address that it came by.",
        validate=validate_advertised,
    ),
    text_key(
        "inter.broker.listener.name",
        None,
        "The listener by which brokers talk to each other; none: the first of them.",
    ),
    text_key(
        "security.inter.broker.protocol",
        None,
        "The same by protocol: the first listener that speaks it.",
        choices=tuple(SecurityProtocol),
    ),
    bool_key(
        "forebay.allow.insecure",
        False,
        "Listen beyond this machine without TLS and without authentication: whoever reaches such a listener "
        "may read and change all data.",
    ),
    text_key(
        "forebay.metrics.listener",
        None,
        "Where metrics are served for Prometheus, host:port, under /metrics, with /healthz "
        "and /readyz; nowhere unless it is set.",
        validate=validate_metrics_listener,
    ),
    int_key(
        "forebay.metrics.series.max",
        50_000,
        "How many series of single topics, partitions and groups a page of metrics has at most. Sums by "
        "topic come first, then partitions; forebay_metrics_left_out counts the rest.",
        0,
    ),
    int_key(
        "forebay.metrics.lag.ages.max",
        1000,
        "For how many partitions that a group is behind in the age of its next message is looked up for one "
        "page of metrics. Beyond that, the lag in seconds is left out.",
        0,
    ),
    int_key(
        "forebay.events.kept.max",
        500,
        "How many events a broker keeps in memory for the console's timeline: changes by administrators,"
        " elections, brokers that came and went. The log has them for longer.",
        0,
        100_000,
    ),
    bool_key(
        "forebay.warm.up.enable",
        True,
        "Whether a broker that serves imports the parts that it has not needed yet. Without it the first"
        " request of a kind takes longer, and the installed package must not be replaced under the broker.",
    ),
    text_key("forebay.log.format", "text", "How the broker's own log lines look.", choices=("text", "json")),
)
