"""Plots about share groups and their dead letters."""

from __future__ import annotations

from forebay.sim.actors.shares.members import PatientMember
from forebay.sim.faults.moves import ENDING
from forebay.sim.models.share_records import ShareRules
from forebay.sim.plots.plot import ONE_IN_SYNC, TWO_IN_SYNC, Plot

PLOTS = {
    # Members of a share group speak to leaders that do not hear that they were replaced.
    "deposed-shares": Plot(
        cast=("shares", "deposer"),
        faults=("slow_link", "set_clock"),
        settings=TWO_IN_SYNC,
        share_rules=ShareRules(lock_ms=2_000, delivery_limit=5, backoff_ms=0),
        worker=PatientMember,
        deposing_pause_s=1.0,
    ),
    # The same, and the group begins where the log ends.
    "late-shares": Plot(
        cast=("shares", "deposer"),
        faults=("kill", "slow_link", "pause"),
        settings=TWO_IN_SYNC,
        share_rules=ShareRules(
            lock_ms=2_000, delivery_limit=5, backoff_ms=0, begins_at_end=True, has_resets=True
        ),
        deposing_pause_s=1.0,
    ),
    # Members work for longer than a lock lasts, and renew it.
    "long-work": Plot(
        cast=("shares",),
        faults=("set_clock",),
        settings=TWO_IN_SYNC,
        share_rules=ShareRules(lock_ms=1_000, delivery_limit=5, backoff_ms=0),
        worker=PatientMember,
    ),
    # Members go, and locks last for longer than the story. Some records are of transactions.
    "long-locks": Plot(
        cast=("shares",),
        faults=("set_clock", "slow_link"),
        settings=TWO_IN_SYNC,
        share_rules=ShareRules(lock_ms=60_000, delivery_limit=3, backoff_ms=0, is_committed=True),
    ),
    # Dead letters are under way while their leaders end, or are not notified that they were replaced.
    "dead-letters": Plot(
        cast=("shares", "deposer"),
        faults=("pause", "isolate", "slow_link", ENDING),
        settings=TWO_IN_SYNC,
        share_rules=ShareRules(lock_ms=1_000, delivery_limit=2, backoff_ms=0, has_dead_letters=True),
        deposing_pause_s=1.0,
    ),
    # The broker that keeps their state is away for longer than deliveries wait for it. Members release their
    # records.
    "away-coordinators": Plot(
        cast=("shares",),
        faults=("cut_off_share_coordinator",),
        settings={**TWO_IN_SYNC, "share.coordinator.write.timeout.ms": "300"},
        share_rules=ShareRules(lock_ms=1_000, delivery_limit=2, backoff_ms=0, has_dead_letters=True),
        step_s=(1.0, 4.0),
        fault_s=(1.0, 4.0),
    ),
    # Disks take longer than locks last.
    "slow-disks": Plot(
        cast=("shares",),
        faults=("slow_disk",),
        settings=TWO_IN_SYNC,
        share_rules=ShareRules(lock_ms=1_000, delivery_limit=2, backoff_ms=0),
        step_s=(1.0, 4.0),
        fault_s=(3.0, 8.0),
    ),
    # Batches are damaged, their broker has not checked them since it began, and the group reads them again.
    "damaged-jobs": Plot(
        cast=("shares", "deposer"),
        faults=("jobs_rot",),
        settings={**TWO_IN_SYNC, "log.segment.bytes": "4096"},
        share_rules=ShareRules(lock_ms=1_000, delivery_limit=10, backoff_ms=0, has_resets=True),
        deposing_pause_s=1.0,
        step_s=(1.0, 4.0),
        fault_s=(6.0, 12.0),
    ),
    # All brokers but one end, the last one continues alone, and ends: the others continue without its
    # messages.
    "lost-records": Plot(
        cast=("shares",),
        faults=("leave_one_behind",),
        settings={**ONE_IN_SYNC, "replica.lag.time.max.ms": "1500"},
        share_rules=ShareRules(lock_ms=2_000, delivery_limit=10, backoff_ms=0, loses_records=True),
        step_s=(4.0, 8.0),
    ),
}
