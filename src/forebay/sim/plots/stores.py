"""Plots about the store of the metadata: away, another one, an older one, or with unreadable values."""

from __future__ import annotations

from forebay.sim.actors.dialects import DIALECTS, POLITE
from forebay.sim.actors.producers.transactional import SlowProducer
from forebay.sim.plots.plot import TWO_IN_SYNC, Plot

PLOTS = {
    # Another store answers for a while, or an older state of the right one. Topics come and go meanwhile.
    "wrong-stores": Plot(
        cast=("exact", "plain", "topic-keeper", "deposer"),
        faults=("another_store", "store_goes_back", "store_down", "slow_watches", "stop"),
        settings=TWO_IN_SYNC,
        step_s=(1.0, 6.0),
        fault_s=(2.0, 14.0),
        deposing_pause_s=2.0,
    ),
    # The store is put back to an earlier state while nothing runs. Since the backup leaders have changed,
    # replicas have left the in-sync sets, and producers have got their ids.
    "restored-store": Plot(
        cast=("exact", "plain", "short-lived", "transactions", "deposer"),
        faults=("restore_store", "kill", "pause", "isolate", "lose_power"),
        settings={**TWO_IN_SYNC, "replica.lag.time.max.ms": "1500"},
        step_s=(0.5, 4.0),
        fault_s=(1.0, 9.0),
        deposing_pause_s=2.0,
    ),
    # Values in the store cannot be read for a while, and brokers end and come back meanwhile.
    "unreadable-values": Plot(
        cast=("exact", "plain", "group", "transactions"),
        faults=("garble", "kill", "stop", "slow_watches", "lose_power"),
        settings=TWO_IN_SYNC,
        transactional=((SlowProducer, DIALECTS, POLITE),),
        step_s=(0.5, 3.0),
        fault_s=(0.5, 6.0),
    ),
    # The same, while machines lose what they have not synced.
    "unreadable-power-cuts": Plot(
        cast=("exact", "plain"),
        faults=("garble", "lose_power"),
        settings={**TWO_IN_SYNC, "log.flush.interval.ms": "10000"},
        step_s=(0.3, 1.5),
        fault_s=(1.0, 6.0),
    ),
    # Brokers start while the store is away, or cannot be reached.
    "late-store": Plot(
        cast=("exact", "plain"),
        faults=("store_down", "cut_from_store", "kill", "stop"),
        settings=TWO_IN_SYNC,
        step_s=(0.5, 3.0),
        fault_s=(2.0, 9.0),
    ),
}
