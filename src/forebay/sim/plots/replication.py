"""Plots about replicas: elections, in-sync sets, verdicts on brokers, and what a loss of power takes."""

from __future__ import annotations

from forebay.sim.plots.plot import ONE_IN_SYNC, TWO_IN_SYNC, Plot

PLOTS = {
    # Leaders of large logs do not hear that they were replaced, and have to cut off what they appended.
    "deposed-leaders": Plot(
        cast=("exact", "deposer"),
        faults=("slow_link", "reset"),
        settings={**TWO_IN_SYNC, "log.segment.bytes": "1048576"},
        value_bytes=4_000,
        deposing_pause_s=1.0,
    ),
    # Brokers start without a partition that their disks refuse for a while; mostly nobody starts them again.
    "refused-openings": Plot(
        cast=("exact", "plain"), faults=("partition_cannot_be_opened",), settings=TWO_IN_SYNC
    ),
    # Leaders are cut off from the others, or end, for longer than a lease lasts.
    "lonely-leaders": Plot(
        cast=("exact", "plain"),
        faults=("isolate", "pause", "kill"),
        settings={**ONE_IN_SYNC, "replica.lag.time.max.ms": "1500"},
        step_s=(5.0, 10.0),
        fault_s=(9.0, 14.0),
    ),
    # Leaders are cut off from the others, often from the store, too, for longer than a lease lasts.
    "cut-off-leaders": Plot(
        cast=("exact", "plain"),
        faults=("isolate",),
        settings={**ONE_IN_SYNC, "replica.lag.time.max.ms": "1500"},
        step_s=(6.0, 12.0),
        fault_s=(9.0, 12.0),
    ),
    # The workers of a host: many brokers on one store, of which some are always about to end, and soon back.
    "workers": Plot(
        cast=("exact", "plain", "group", "transactions"),
        faults=("kill", "stop", "pause"),
        settings={**TWO_IN_SYNC, "forebay.failover.verdicts.per.minute": "3"},
        brokers=8,
        step_s=(0.1, 1.5),
        fault_s=(0.2, 2.0),
    ),
    # Machines lose what they have not synced, often while they are the only ones in sync.
    "lost-power": Plot(
        cast=("exact", "plain"),
        faults=("abandon_and_rob",),
        step_s=(3.0, 8.0),
        settings={**ONE_IN_SYNC, "replica.lag.time.max.ms": "1500", "log.flush.interval.ms": "10000"},
    ),
    # Machines lose what they have not synced, and come back before others have noticed, or when all are gone.
    "power-cuts": Plot(
        cast=("exact", "plain"),
        faults=("lose_power", "rob_and_leave"),
        settings={**TWO_IN_SYNC, "log.flush.interval.ms": "10000"},
        step_s=(1.0, 6.0),
    ),
    # Brokers end, or seem to: they refuse connections, cannot be reached, are back before others have
    # noticed.
    "refusals": Plot(
        cast=("exact", "plain"),
        faults=("kill", "refuse", "restart_behind_a_wall", "shut_out", "pause"),
        settings={**TWO_IN_SYNC, "forebay.failover.verdicts.per.minute": "1"},
        step_s=(0.5, 3.0),
        fault_s=(0.3, 8.0),
    ),
    # Live brokers are refused for a moment, or while they hear nothing of it. Verdicts meet late renewals,
    # answers that are lost, restarts, and each other.
    "wrong-refusals": Plot(
        cast=("exact", "plain"),
        faults=(
            "refuse_for_a_moment",
            "refuse_the_deaf",
            "refuse",
            "kill",
            "doubt",
            "slow_watches",
            "store_forgets_to_answer",
        ),
        # A leader that is judged learns nothing from followers that stop fetching.
        settings={
            **TWO_IN_SYNC,
            "forebay.failover.verdicts.per.minute": "3",
            "replica.lag.time.max.ms": "60000",
        },
        step_s=(0.3, 3.0),
        fault_s=(0.3, 6.0),
    ),
    # Producers repeat batches that were refused, or answered, while leaders are not sure of their leases.
    "doubts": Plot(cast=("loose",), faults=("doubt",)),
    # Brokers copy a compacted log with gaps, and die before the copy is synced.
    "copied-keys": Plot(
        cast=("keyed",),
        faults=("copy_and_crash", "kill_a_newcomer"),
        settings={**TWO_IN_SYNC, "log.cleaner.backoff.ms": "300", "log.flush.interval.ms": "10000"},
    ),
    # Strangers keep the loops of brokers busy, each request for a part of a lease.
    "strangers": Plot(
        cast=("exact", "plain", "group", "transactions"),
        faults=("besiege",),
        settings=TWO_IN_SYNC,
        step_s=(1.0, 4.0),
        fault_s=(4.0, 20.0),
    ),
    # The same, and some requests take longer than a lease, while other faults go on.
    "busy-loops": Plot(
        cast=("exact", "plain", "transactions"),
        faults=("besiege", "busy_loop", "kill", "slow_link"),
        settings={**ONE_IN_SYNC, "replica.lag.time.max.ms": "1500"},
        step_s=(3.0, 8.0),
        fault_s=(2.0, 12.0),
    ),
}
