"""Settings of Kafka 4.3 that have no meaning here: they are checked, kept and shown, and have no effect.

Tools and provisioning scripts made for Kafka set, read and delete them, often in one request with settings
that matter. Refusing one would refuse them all. `Definition.documentation` says that they have no effect.

Two kinds are left out on purpose, and refused (`not_altered.py`). Settings that Kafka itself reads only at
its start cannot be altered there either. Some settings of security would promise a protection that is not
there.
"""

from __future__ import annotations

import re
from dataclasses import replace

from forebay.config.values import (
    INT_MAX,
    LONG_MAX,
    Definition,
    Value,
    bool_key,
    double_key,
    int_key,
    list_key,
    long_key,
    text_key,
)

_ONE_LOOP = "one event loop and small pools do this work."
_READS = "remote.log.reader.threads bounds what reading costs."
_NO_FOLLOWER_READS = "followers begin at the start of the leader's local log."
_FORMAT_VERSION = re.compile(r"\d+\.\d+(\.\d+)?(-IV\d+)?")


def _stays_remote(value: Value) -> None:
    if value:
        raise ValueError("remote.storage.enable cannot be taken back: use remote.log.copy.disable=true")


def _format_version(value: Value) -> None:
    if not _FORMAT_VERSION.fullmatch(str(value)):
        raise ValueError("not a version of Kafka such as 3.0 or 2.8-IV1")


def _ignored(definition: Definition) -> Definition:
    return replace(definition, ignored=True, dynamic=True)


_THREADS = (
    int_key("background.threads", 10, _ONE_LOOP, 1),
    int_key("num.io.threads", 8, _ONE_LOOP, 1),
    int_key("num.network.threads", 3, _ONE_LOOP, 1),
    int_key("num.recovery.threads.per.data.dir", 2, "recovery takes one thread.", 1),
    int_key("num.replica.fetchers", 1, "one fetch is under way to each leader.", 1),
    int_key("log.cleaner.threads", 1, "there is one cleaning thread.", 0),
    int_key("log.cleaner.io.buffer.size", 524_288, "compaction reads batch by batch.", 0),
    double_key(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        "log.cleaner.dedupe.buffer.size bounds the memory of the keys.",
        0,
    ),
)

_CONNECTIONS = (
    text_key("max.connections.per.ip.overrides", "", "max.connections.per.ip is for every address."),
    int_key("max.connection.creation.rate", INT_MAX, "max.connections bounds their number.", 0),
    list_key("metric.reporters", (), "metrics are served for Prometheus, see forebay.metrics.listener."),
)

_LOGS = (
    long_key(
        "log.flush.interval.messages", LONG_MAX, "see forebay.flush.policy and log.flush.interval.ms.", 1
    ),
    bool_key("log.preallocate", False, "segments grow as they are written."),
    long_key(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        "a broker has one data directory, and nothing moves within it.",
        1,
    ),
    bool_key("transaction.partition.verification.enable", True, "transactions are always verified."),
)

_REMOTE = (
    long_key("remote.log.manager.fetch.max.bytes.per.second", LONG_MAX, _READS, 1),
    int_key("remote.log.manager.expiration.thread.pool.size", 10, "the copying threads delete, too.", 1),
    int_key("remote.log.manager.follower.thread.pool.size", 2, _NO_FOLLOWER_READS, 1),
    int_key("remote.fetch.max.wait.ms", 500, "a fetch waits for the object store as for messages.", 1),
    long_key("remote.list.offsets.request.timeout.ms", 30_000, "the object store's own timeouts apply.", 1),
)

_NO_KERBEROS = "there are no logins by Kerberos, see sasl.enabled.mechanisms."
_NO_REFRESH = "brokers log in to each other by SCRAM or PLAIN, without tokens that expire."

_LOGINS = (
    text_key("sasl.kerberos.service.name", None, _NO_KERBEROS),
    text_key("sasl.kerberos.kinit.cmd", "/usr/bin/kinit", _NO_KERBEROS),
    double_key("sasl.kerberos.ticket.renew.window.factor", 0.8, _NO_KERBEROS, 0),
    double_key("sasl.kerberos.ticket.renew.jitter", 0.05, _NO_KERBEROS, 0),
    long_key("sasl.kerberos.min.time.before.relogin", 60_000, _NO_KERBEROS, 0),
    list_key("sasl.kerberos.principal.to.local.rules", ("DEFAULT",), _NO_KERBEROS),
    double_key("sasl.login.refresh.window.factor", 0.8, _NO_REFRESH, 0),
    double_key("sasl.login.refresh.window.jitter", 0.05, _NO_REFRESH, 0),
    int_key("sasl.login.refresh.min.period.seconds", 60, _NO_REFRESH, 0, 900),
    int_key("sasl.login.refresh.buffer.seconds", 300, _NO_REFRESH, 0, 3600),
)

_COORDINATORS = (
    int_key("group.consumer.assignment.interval.ms", 1_000, "a change leads to a new assignment at once.", 0),
    int_key(
        "group.streams.assignment.interval.ms",
        1_000,
        "groups of Kafka Streams use the classic or the consumer protocol here.",
        0,
    ),
    int_key("group.coordinator.cached.buffer.max.bytes", 1_048_588, "no buffer is kept.", 524_288),
    int_key("share.coordinator.cached.buffer.max.bytes", 1_048_588, "no buffer is kept.", 524_288),
    list_key("config.providers", (), "values are taken as they are written."),
    list_key(
        "cordoned.log.dirs", (), "a broker has one data directory; drain it with forebay cluster drain."
    ),
    bool_key("follower.fetch.last.tiered.offset.enable", False, _NO_FOLLOWER_READS),
)

IGNORED_BROKER_KEYS = tuple(
    _ignored(key) for key in (*_THREADS, *_CONNECTIONS, *_LOGINS, *_COORDINATORS, *_LOGS, *_REMOTE)
)

_ALL_ALIKE = "the data of all topics is flushed alike, see forebay.flush.policy and log.flush.interval.ms."

_TOPICS = (
    long_key("flush.messages", None, _ALL_ALIKE, 1),
    long_key("flush.ms", None, _ALL_ALIKE, 0),
    bool_key("preallocate", False, "segments grow as they are written."),
    bool_key(
        "remote.log.delete.on.disable",
        False,
        "remote.storage.enable cannot be taken back. Only false is accepted.",
        validate=_stays_remote,
    ),
    bool_key("message.downconversion.enable", True, "messages leave as they came; Kafka 4.0 has removed it."),
    text_key(
        "message.format.version",
        "3.0-IV1",
        "messages are kept in format 2, that of Kafka since 0.11; Kafka 4.0 has removed it.",
        validate=_format_version,
    ),
)

IGNORED_TOPIC_KEYS = tuple(_ignored(key) for key in _TOPICS)

IGNORED_TOPIC_FALLBACKS = {
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "preallocate": "log.preallocate",
}
"""The broker settings that some of them fall back to."""

_NO_STREAMS = "groups of Kafka Streams use the classic or the consumer protocol here."

_GROUPS = (
    int_key("streams.session.timeout.ms", 45_000, _NO_STREAMS, 1),
    int_key("streams.heartbeat.interval.ms", 5_000, _NO_STREAMS, 1),
    int_key("streams.num.standby.replicas", 0, _NO_STREAMS, 0),
    int_key("streams.initial.rebalance.delay.ms", 3_000, _NO_STREAMS, 0),
    int_key("streams.assignment.interval.ms", 1_000, _NO_STREAMS, 0),
)

IGNORED_GROUP_KEYS = tuple(_ignored(key) for key in _GROUPS)
