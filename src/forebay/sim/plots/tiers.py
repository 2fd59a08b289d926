"""Plots about tiered topics: their old segments are in an object store."""

from __future__ import annotations

from forebay.sim.models.share_records import ShareRules
from forebay.sim.plots.plot import ONE_IN_SYNC, TWO_IN_SYNC, Plot

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

PLOTS = {
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
        settings={**TWO_IN_SYNC, **_TIERS},
        value_bytes=400,
        tiered=True,
        step_s=(0.5, 3.0),
    ),
    # The same with leaders that do not hear that they were replaced.
    "deposed-tiers": Plot(
        cast=("exact", "plain", "deposer"),
        faults=("objects_fail", "objects_away", "slow_link"),
        settings={**TWO_IN_SYNC, **_TIERS},
        value_bytes=400,
        tiered=True,
        deposing_pause_s=1.0,
    ),
    # Uploads take longer than what was given up is kept, while leaders change and processes end.
    "slow-tiers": Plot(
        cast=("exact", "plain", "elector"),
        faults=("objects_slow", "objects_fail", "kill"),
        settings={**TWO_IN_SYNC, **_TIERS},
        value_bytes=400,
        tiered=True,
        step_s=(0.5, 3.0),
    ),
    # Somebody deletes manifests, which are made anew some time later, while leaders change and processes end.
    "lost-manifests": Plot(
        cast=("exact", "plain", "transactions", "elector"),
        faults=("manifest_lost", "objects_fail", "kill", "isolate"),
        settings={**TWO_IN_SYNC, **_TIERS, "log.local.retention.bytes": "1"},
        value_bytes=400,
        tiered=True,
        step_s=(0.5, 3.0),
    ),
    # Views and share groups read what is in the object store only: what is copied leaves the disks.
    "tiered-readers": Plot(
        cast=("exact", "plain", "transactions", "views", "shares"),
        faults=("objects_away", "objects_fail", "kill", "pause", "isolate"),
        settings={**TWO_IN_SYNC, **_TIERS, "log.local.retention.bytes": "1"},
        value_bytes=400,
        tiered=True,
        step_s=(0.5, 3.0),
    ),
    # Messages are deleted while others come, also those that an unclean election loses at the same time.
    "deleted-tiers": Plot(
        cast=("plain", "loose", "end-deleter", "loose-deleter", "elector"),
        faults=("objects_fail", "kill", "pause", "isolate", "lose_power"),
        settings={**ONE_IN_SYNC, **_TIERS},
        value_bytes=400,
        tiered=True,
        step_s=(0.5, 3.0),
    ),
    # All brokers but one end. The last one continues alone, copies its messages, and ends: the others
    # continue without these, and must not serve them from the object store.
    "lost-tiers": Plot(
        cast=("shares",),
        faults=("leave_one_behind",),
        settings={**ONE_IN_SYNC, **_TIERS, "replica.lag.time.max.ms": "1500"},
        share_rules=ShareRules(lock_ms=2_000, delivery_limit=10, backoff_ms=0, loses_records=True),
        value_bytes=400,
        tiered=True,
        step_s=(4.0, 8.0),
    ),
}
