"""Plots about groups, transactions and quotas."""

from __future__ import annotations

from forebay.sim.actors.dialects import CONFLUENT, MODERN, RUDE
from forebay.sim.actors.producers.transactional import HastyProducer
from forebay.sim.plots.plot import TWO_IN_SYNC, Plot

PLOTS = {
    # Producers give up transactions whose answers are late, and go on with the same numbers.
    "reused-numbers": Plot(
        cast=("transactions",),
        faults=("reset",),
        settings=TWO_IN_SYNC,
        transactional=((HastyProducer, (MODERN, CONFLUENT), RUDE),),
    ),
    # Brokers are started without index files, while transactions are aborted and a log is compacted.
    "lost-indexes": Plot(
        cast=("transactions", "exact", "keyed"),
        faults=("lose_indexes",),
        settings={**TWO_IN_SYNC, "log.cleaner.backoff.ms": "300", "log.segment.bytes": "1024"},
    ),
    # Coordinators end and come back while members of a group come and go, and commit offsets.
    "coordinators": Plot(
        cast=("exact", "group", "settings-changer"),
        faults=("kill", "stop", "pause"),
        nap_chance=0.5,
        step_s=(1.0, 4.0),
        fault_s=(2.0, 7.0),
        settings=TWO_IN_SYNC,
    ),
    # Wall time is set, forward and back.
    "clocks": Plot(cast=("group", "transactions"), faults=("set_clock",), settings=TWO_IN_SYNC),
    # Clients go beyond quotas, which come and go, while connections break and brokers end.
    "quotas": Plot(
        cast=("exact", "plain", "transactions", "topic-keeper", "quotas"),
        faults=("kill", "slow_link", "reset", "pause"),
        settings=TWO_IN_SYNC
        | {
            "quota.window.num": "2",
            "controller.quota.window.num": "1",
            "forebay.quota.throttle.max.ms": "4000",
        },
        value_bytes=200,
    ),
}
