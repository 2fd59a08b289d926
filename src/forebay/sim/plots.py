"""Plots: the subjects of stories that are not about everything.

An ordinary story has actors, faults and settings by chance, and most of it has nothing to do with any single
rule of a broker. A plot has few actors and the faults that put one rule to the test, again and again, so that
almost every seed does. The mutation tests use them: a bug is caught in seconds, and whatever else changes in
the brokers, most stories of its plot catch it.
"""

from __future__ import annotations

from forebay.sim.actors.dialects import (
    CONFLUENT,
    DIALECTS,
    LIBRDKAFKA,
    MODERN,
    POLITE,
    RUDE,
)
from forebay.sim.actors.producers.transactional import (
    ContinuingProducer,
    HastyProducer,
    SlowProducer,
    TransactionalProducer,
)
from forebay.sim.actors.shares.members import PatientMember
from forebay.sim.faults.moves import ENDING
from forebay.sim.models.share_records import ShareRules
from forebay.sim.plot import Plot
from forebay.sim.world.places import FOLDED, FOLDED_TO

_TWO = {"min.insync.replicas": "2"}
_ONE = {"min.insync.replicas": "1"}
_TIERS = {
    "forebay.remote.url": "/objects",
    "remote.log.manager.task.interval.ms": "500",
    "remote.log.manager.task.retry.backoff.ms": "100",
    "remote.log.manager.task.retry.backoff.max.ms": "1000",
    "forebay.remote.chunk.bytes": "4096",
    "forebay.remote.cache.bytes": "20000",
    "forebay.remote.delete.delay.ms": "4000",
    "log.segment.bytes": "4096",
    "log.local.retention.bytes": "4096",
    "log.segment.delete.delay.ms": "1000",
    "log.flush.interval.ms": "1000",
}

PLOTS: dict[str, Plot] = {
    # -- replication -------------------------------------------------------------------------------------
    # Leaders of large logs do not hear that they were replaced, and have to cut off what they appended.
    "deposed-leaders": Plot(
        cast=("exact", "deposer"),
        faults=("slow_link", "reset"),
        settings={**_TWO, "log.segment.bytes": "1048576"},
        value_bytes=4_000,
        deposing_pause_s=1.0,
    ),
    # Brokers start without a partition that their disks refuse for a while; mostly nobody starts them again.
    "refused-openings": Plot(cast=("exact", "plain"), faults=("partition_cannot_be_opened",), settings=_TWO),
    # Leaders are cut off from the others, or end, for longer than a lease lasts.
    "lonely-leaders": Plot(
        cast=("exact", "plain"),
        faults=("isolate", "pause", "kill"),
        settings={**_ONE, "replica.lag.time.max.ms": "1500"},
        step_s=(5.0, 10.0),
        fault_s=(9.0, 14.0),
    ),
    # Leaders are cut off from the others, often from the store, too, for longer than a lease lasts.
    "cut-off-leaders": Plot(
        cast=("exact", "plain"),
        faults=("isolate",),
        settings={**_ONE, "replica.lag.time.max.ms": "1500"},
        step_s=(6.0, 12.0),
        fault_s=(9.0, 12.0),
    ),
    # The workers of a host: many brokers on one store, of which some are always about to end, and soon back.
    "workers": Plot(
        cast=("exact", "plain", "group", "transactions"),
        faults=("kill", "stop", "pause"),
        settings={**_TWO, "forebay.failover.verdicts.per.minute": "3"},
        brokers=8,
        step_s=(0.1, 1.5),
        fault_s=(0.2, 2.0),
    ),
    # Machines lose what they have not synced, often while they are the only ones in sync.
    "lost-power": Plot(
        cast=("exact", "plain"),
        faults=("abandon_and_rob",),
        step_s=(3.0, 8.0),
        settings={**_ONE, "replica.lag.time.max.ms": "1500", "log.flush.interval.ms": "10000"},
    ),
    # Machines lose what they have not synced, and come back before others have noticed, or when all are gone.
    "power-cuts": Plot(
        cast=("exact", "plain"),
        faults=("lose_power", "rob_and_leave"),
        settings={**_TWO, "log.flush.interval.ms": "10000"},
        step_s=(1.0, 6.0),
    ),
    # Brokers end, or seem to: they refuse connections, cannot be reached, are back before others have
    # noticed.
    "refusals": Plot(
        cast=("exact", "plain"),
        faults=("kill", "refuse", "restart_behind_a_wall", "shut_out", "pause"),
        settings={**_TWO, "forebay.failover.verdicts.per.minute": "1"},
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
            **_TWO,
            "forebay.failover.verdicts.per.minute": "3",
            "replica.lag.time.max.ms": "60000",
        },
        step_s=(0.3, 3.0),
        fault_s=(0.3, 6.0),
    ),
    # Another store answers for a while, or an older state of the right one. Topics come and go meanwhile.
    "wrong-stores": Plot(
        cast=("exact", "plain", "topic-keeper", "deposer"),
        faults=("another_store", "store_goes_back", "store_down", "slow_watches", "stop"),
        settings=_TWO,
        step_s=(1.0, 6.0),
        fault_s=(2.0, 14.0),
        deposing_pause_s=2.0,
    ),
    # The store is put back to an earlier state while nothing runs. Since the backup leaders have changed,
    # replicas have left the in-sync sets, and producers have got their ids.
    "restored-store": Plot(
        cast=("exact", "plain", "short-lived", "transactions", "deposer"),
        faults=("restore_store", "kill", "pause", "isolate", "lose_power"),
        settings={**_TWO, "replica.lag.time.max.ms": "1500"},
        step_s=(0.5, 4.0),
        fault_s=(1.0, 9.0),
        deposing_pause_s=2.0,
    ),
    # Producers repeat batches that were refused, or answered, while leaders are not sure of their leases.
    "doubts": Plot(cast=("loose",), faults=("doubt",)),
    # Values in the store cannot be read for a while, and brokers end and come back meanwhile.
    "unreadable-values": Plot(
        cast=("exact", "plain", "group", "transactions"),
        faults=("garble", "kill", "stop", "slow_watches", "lose_power"),
        settings=_TWO,
        transactional=((SlowProducer, DIALECTS, POLITE),),
        step_s=(0.5, 3.0),
        fault_s=(0.5, 6.0),
    ),
    # The same, while machines lose what they have not synced.
    "unreadable-power-cuts": Plot(
        cast=("exact", "plain"),
        faults=("garble", "lose_power"),
        settings={**_TWO, "log.flush.interval.ms": "10000"},
        step_s=(0.3, 1.5),
        fault_s=(1.0, 6.0),
    ),
    # Brokers start while the store is away, or cannot be reached.
    "late-store": Plot(
        cast=("exact", "plain"),
        faults=("store_down", "cut_from_store", "kill", "stop"),
        settings=_TWO,
        step_s=(0.5, 3.0),
        fault_s=(2.0, 9.0),
    ),
    # Brokers copy a compacted log with gaps, and die before the copy is synced.
    "copied-keys": Plot(
        cast=("keyed",),
        faults=("copy_and_crash", "kill_a_newcomer"),
        settings={**_TWO, "log.cleaner.backoff.ms": "300", "log.flush.interval.ms": "10000"},
    ),
    # Partitions are folded while their leaders change, and messages for them go to other brokers.
    "folded-partitions": Plot(
        cast=("folds", "deposer", "elector"),
        faults=("kill", "pause", "isolate", "slow_link", "reset"),
        settings=_TWO,
        deposing_pause_s=2.0,
        resizes=(FOLDED_TO,),
    ),
    # The same, and they take messages again, and are folded again.
    "growing-partitions": Plot(
        cast=("folds", "deposer", "elector"),
        faults=("kill", "pause", "isolate", "slow_link", "reset"),
        settings=_TWO,
        deposing_pause_s=2.0,
        resizes=(FOLDED_TO, len(FOLDED), FOLDED_TO, len(FOLDED)),
    ),
    # They are folded and emptied, and disappear, while producers continue and groups commit. No client is
    # away for longer than empty partitions stay: later repeats are not recognised.
    "gone-partitions": Plot(
        cast=("folds", "deposer", "elector"),
        faults=("kill", "pause", "slow_link", "reset"),
        fault_s=(0.3, 3.0),
        settings=_TWO | {"forebay.fold.grace.ms": "3000", "log.retention.check.interval.ms": "500"},
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
        settings={**_TWO, "log.cleaner.backoff.ms": "300"},
        deposing_pause_s=2.0,
    ),
    # Strangers keep the loops of brokers busy, each request for a part of a lease.
    "strangers": Plot(
        cast=("exact", "plain", "group", "transactions"),
        faults=("besiege",),
        settings=_TWO,
        step_s=(1.0, 4.0),
        fault_s=(4.0, 20.0),
    ),
    # The same, and some requests take longer than a lease, while other faults go on.
    "busy-loops": Plot(
        cast=("exact", "plain", "transactions"),
        faults=("besiege", "busy_loop", "kill", "slow_link"),
        settings={**_ONE, "replica.lag.time.max.ms": "1500"},
        step_s=(3.0, 8.0),
        fault_s=(2.0, 12.0),
    ),
    # -- coordinators ------------------------------------------------------------------------------------
    # Producers give up transactions whose answers are late, and go on with the same numbers.
    "reused-numbers": Plot(
        cast=("transactions",),
        faults=("reset",),
        settings=_TWO,
        transactional=((HastyProducer, (MODERN, CONFLUENT), RUDE),),
    ),
    # Brokers are started without index files, while transactions are aborted and a log is compacted.
    "lost-indexes": Plot(
        cast=("transactions", "exact", "keyed"),
        faults=("lose_indexes",),
        settings={**_TWO, "log.cleaner.backoff.ms": "300", "log.segment.bytes": "1024"},
    ),
    # Coordinators end and come back while members of a group come and go, and commit offsets.
    "coordinators": Plot(
        cast=("exact", "group", "settings-changer"),
        faults=("kill", "stop", "pause"),
        nap_chance=0.5,
        step_s=(1.0, 4.0),
        fault_s=(2.0, 7.0),
        settings=_TWO,
    ),
    # Wall time is set, forward and back.
    "clocks": Plot(cast=("group", "transactions"), faults=("set_clock",), settings=_TWO),
    # Messages wait for their time, which is set, forward and back.
    "delays": Plot(cast=("delays",), faults=("set_clock",), settings=_TWO),
    # Messages wait, each for its own time, while leaders are not notified that they were replaced, or lose
    # power.
    "alarms": Plot(
        cast=("alarms", "deposer"),
        faults=("kill", "slow_link", "lose_power", "set_clock"),
        settings=_TWO,
        deposing_pause_s=1.0,
    ),
    # The same, while retention and compaction cut the log, and indexes are rebuilt from the rest.
    "short-alarms": Plot(
        cast=("alarms", "deposer"),
        faults=("kill", "slow_link", "lose_power"),
        settings=_TWO,
        deposing_pause_s=2.0,
        short_alarms=True,
    ),
    # Views are read from leaders that are not notified that they were replaced.
    "views": Plot(
        cast=("exact", "views", "deposer"),
        faults=("slow_link", "reset"),
        settings=_TWO | {"log.segment.bytes": "4096"},
        deposing_pause_s=1.0,
    ),
    # Materialized views are filled while leaders on both sides end, or are not notified that they were
    # replaced.
    "fills": Plot(
        cast=("exact", "transactions", "fills", "deposer"),
        faults=("kill", "slow_link", "pause", "lose_power"),
        settings=_TWO | {"log.segment.bytes": "4096"},
        deposing_pause_s=1.0,
    ),
    # Clients go beyond quotas, which come and go, while connections break and brokers end.
    "quotas": Plot(
        cast=("exact", "plain", "transactions", "topic-keeper", "quotas"),
        faults=("kill", "slow_link", "reset", "pause"),
        settings=_TWO
        | {
            "quota.window.num": "2",
            "controller.quota.window.num": "1",
            "forebay.quota.throttle.max.ms": "4000",
        },
        value_bytes=200,
    ),
    # -- share groups ------------------------------------------------------------------------------------
    # Members of a share group speak to leaders that do not hear that they were replaced.
    "deposed-shares": Plot(
        cast=("shares", "deposer"),
        faults=("slow_link", "set_clock"),
        settings=_TWO,
        share_rules=ShareRules(lock_ms=2_000, delivery_limit=5, backoff_ms=0),
        worker=PatientMember,
        deposing_pause_s=1.0,
    ),
    # The same, and the group begins where the log ends.
    "late-shares": Plot(
        cast=("shares", "deposer"),
        faults=("kill", "slow_link", "pause"),
        settings=_TWO,
        share_rules=ShareRules(
            lock_ms=2_000, delivery_limit=5, backoff_ms=0, begins_at_end=True, has_resets=True
        ),
        deposing_pause_s=1.0,
    ),
    # Members work for longer than a lock lasts, and renew it.
    "long-work": Plot(
        cast=("shares",),
        faults=("set_clock",),
        settings=_TWO,
        share_rules=ShareRules(lock_ms=1_000, delivery_limit=5, backoff_ms=0),
        worker=PatientMember,
    ),
    # Members go, and locks last for longer than the story. Some records are of transactions.
    "long-locks": Plot(
        cast=("shares",),
        faults=("set_clock", "slow_link"),
        settings=_TWO,
        share_rules=ShareRules(lock_ms=60_000, delivery_limit=3, backoff_ms=0, is_committed=True),
    ),
    # Dead letters are under way while their leaders end, or are not notified that they were replaced.
    "dead-letters": Plot(
        cast=("shares", "deposer"),
        faults=("pause", "isolate", "slow_link", ENDING),
        settings=_TWO,
        share_rules=ShareRules(lock_ms=1_000, delivery_limit=2, backoff_ms=0, has_dead_letters=True),
        deposing_pause_s=1.0,
    ),
    # The broker that keeps their state is away for longer than deliveries wait for it. Members release their
    # records.
    "away-coordinators": Plot(
        cast=("shares",),
        faults=("cut_off_share_coordinator",),
        settings={**_TWO, "share.coordinator.write.timeout.ms": "300"},
        share_rules=ShareRules(lock_ms=1_000, delivery_limit=2, backoff_ms=0, has_dead_letters=True),
        step_s=(1.0, 4.0),
        fault_s=(1.0, 4.0),
    ),
    # Disks take longer than locks last.
    "slow-disks": Plot(
        cast=("shares",),
        faults=("slow_disk",),
        settings=_TWO,
        share_rules=ShareRules(lock_ms=1_000, delivery_limit=2, backoff_ms=0),
        step_s=(1.0, 4.0),
        fault_s=(3.0, 8.0),
    ),
    # Batches are damaged, their broker has not checked them since it began, and the group reads them again.
    "damaged-jobs": Plot(
        cast=("shares", "deposer"),
        faults=("jobs_rot",),
        settings={**_TWO, "log.segment.bytes": "4096"},
        share_rules=ShareRules(lock_ms=1_000, delivery_limit=10, backoff_ms=0, has_resets=True),
        deposing_pause_s=1.0,
        step_s=(1.0, 4.0),
        fault_s=(6.0, 12.0),
    ),
    # Old segments go to an object store that fails, while leaders change and brokers end at any step.
    "tiers": Plot(
        cast=("exact", "plain", "loose", "transactions", "deleter", "elector"),
        faults=(
            "objects_away",
            "objects_fail",
            "kill",
            "kill_in_the_act",
            "pause",
            "isolate",
            "lose_power",
        ),
        settings={**_TWO, **_TIERS},
        value_bytes=400,
        tiered=True,
        step_s=(0.5, 3.0),
    ),
    # The same with leaders that do not hear that they were replaced.
    "deposed-tiers": Plot(
        cast=("exact", "plain", "deposer"),
        faults=("objects_fail", "objects_away", "slow_link"),
        settings={**_TWO, **_TIERS},
        value_bytes=400,
        tiered=True,
        deposing_pause_s=1.0,
    ),
    # Views and share groups read what is in the object store only: what is copied leaves the disks.
    "tiered-readers": Plot(
        cast=("exact", "plain", "transactions", "views", "shares"),
        faults=("objects_away", "objects_fail", "kill", "pause", "isolate"),
        settings={**_TWO, **_TIERS, "log.local.retention.bytes": "1"},
        value_bytes=400,
        tiered=True,
        step_s=(0.5, 3.0),
    ),
    # All brokers but one end. The last one continues alone, copies its messages, and ends: the others
    # continue without these, and must not serve them from the object store.
    "lost-tiers": Plot(
        cast=("shares",),
        faults=("leave_one_behind",),
        settings={**_ONE, **_TIERS, "replica.lag.time.max.ms": "1500"},
        share_rules=ShareRules(lock_ms=2_000, delivery_limit=10, backoff_ms=0, loses_records=True),
        value_bytes=400,
        tiered=True,
        step_s=(4.0, 8.0),
    ),
    # All brokers but one end, the last one continues alone, and ends: the others continue without its
    # messages.
    "lost-records": Plot(
        cast=("shares",),
        faults=("leave_one_behind",),
        settings={**_ONE, "replica.lag.time.max.ms": "1500"},
        share_rules=ShareRules(lock_ms=2_000, delivery_limit=10, backoff_ms=0, loses_records=True),
        step_s=(4.0, 8.0),
    ),
}
