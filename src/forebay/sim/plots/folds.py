"""Plots about topics whose partitions become fewer, and more again."""

from __future__ import annotations

from forebay.sim.actors.dialects import LIBRDKAFKA, POLITE, RUDE
from forebay.sim.actors.producers.transactional import ContinuingProducer, TransactionalProducer
from forebay.sim.plots.plot import TWO_IN_SYNC, Plot
from forebay.sim.world.places import FOLDED, FOLDED_TO

PLOTS = {
    # Partitions are folded while their leaders change, and messages for them go to other brokers.
    "folded-partitions": Plot(
        cast=("folds", "deposer", "elector"),
        faults=("kill", "pause", "isolate", "slow_link", "reset"),
        settings=TWO_IN_SYNC,
        deposing_pause_s=2.0,
        resizes=(FOLDED_TO,),
    ),
    # The same, and they take messages again, and are folded again.
    "growing-partitions": Plot(
        cast=("folds", "deposer", "elector"),
        faults=("kill", "pause", "isolate", "slow_link", "reset"),
        settings=TWO_IN_SYNC,
        deposing_pause_s=2.0,
        resizes=(FOLDED_TO, len(FOLDED), FOLDED_TO, len(FOLDED)),
    ),
    # They are folded and emptied, and disappear, while producers continue and groups commit. No client is
    # away for longer than empty partitions stay: later repeats are not recognised.
    "gone-partitions": Plot(
        cast=("folds", "deposer", "elector"),
        faults=("kill", "pause", "slow_link", "reset"),
        fault_s=(0.3, 3.0),
        settings=TWO_IN_SYNC | {"forebay.fold.grace.ms": "3000", "log.retention.check.interval.ms": "500"},
        transactional=(
            (TransactionalProducer, (LIBRDKAFKA,), POLITE),
            (ContinuingProducer, (LIBRDKAFKA,), RUDE),
        ),
        deposing_pause_s=2.0,
        empties=True,
    ),
    # Partitions of a compacted topic are folded: their records are copied, while producers continue.
    "copied-partitions": Plot(
        cast=("key-folds", "deposer", "elector"),
        faults=("kill", "pause", "isolate", "slow_link", "reset"),
        settings={**TWO_IN_SYNC, "log.cleaner.backoff.ms": "300"},
        deposing_pause_s=2.0,
    ),
}
