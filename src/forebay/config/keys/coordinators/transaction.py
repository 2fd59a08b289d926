"""The settings of transactions.

One default differs from Kafka's, which looks for timed out transactions every ten seconds. Here the next one
to time out is always known, so checking is free and the interval only spreads bursts: a second.
`__transaction_state` has few partitions because each is a separate log; the count is fixed when the topic is
created.
"""

from __future__ import annotations

from forebay.config.declared_settings import settings_group
from forebay.config.values import int_key


@settings_group
class TransactionsConfig:
    max_timeout_ms: int = int_key(
        "transaction.max.timeout.ms",
        900_000,
        "The longest that a producer may let its transactions stay open.",
        1,
    )
    max_lifetime_ms: int = int_key(
        "forebay.transaction.max.lifetime.ms",
        21_600_000,
        "The longest that transactions stay open whose program renews them, as exactly-once writes of Spark "
        "do. Others end after their timeout.",
        1,
    )
    id_expiration_ms: int = int_key(
        "transactional.id.expiration.ms",
        604_800_000,
        "A transactional id that is unused for this long is forgotten; never while a transaction is open.",
        1,
    )
    abort_interval_ms: int = int_key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        1_000,
        "The shortest time between two looks for transactions that have timed out.",
        1,
    )
    log_partitions: int = int_key(
        "transaction.state.log.num.partitions",
        4,
        "Partitions of __transaction_state, when it is created.",
        1,
        10_000,
    )
    log_segment_bytes: int = int_key(
        "transaction.state.log.segment.bytes", 104_857_600, "The segment size of __transaction_state.", 14
    )
