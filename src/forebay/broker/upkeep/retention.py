"""Retention of one partition: segments that are too old or too many are deleted from its front."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forebay.core.partition.retention import RetentionPlan, RetentionPolicy, plan_retention

if TYPE_CHECKING:
    from forebay.broker.broker_time import BrokerTime
    from forebay.broker.partition.partition import Partition
    from forebay.broker.telemetry.metrics import Metrics

log = logging.getLogger(__name__)


class Retention:
    def __init__(self, metrics: Metrics, time: BrokerTime) -> None:
        self._metrics = metrics
        self._time = time

    def apply(self, partition: Partition) -> None:
        """Delete what the topic's settings do not retain. Deleted files are removed from the disk later.

        Also from a log that is offline because the disk is full: only deletion may make room.
        """
        log_ = partition.log
        if log_.offline_for_good:
            return
        if partition.remote is not None:
            # Tiered storage sees to both parts (`tiers/leader_term.py`), and followers follow. What had to
            # wait is deleted here.
            start = log_.start_offset
            if log_.begin_offset < start:
                log_.delete_front(sum(segment.next_offset <= start for segment in log_.segments()))
            return
        plan = _without_waiting(partition, self._plan(partition))
        if plan.roll_first and log_.offline is None:
            log_.roll()
        deleted = log_.delete_front(plan.delete_count)
        if deleted:
            self._metrics.segments_deleted += deleted
            log.info(
                "retention deleted segments",
                extra={
                    "partition": f"{partition.topic}-{partition.index}",
                    "segments": deleted,
                    "log_start_offset": log_.start_offset,
                },
            )

    def _plan(self, partition: Partition) -> RetentionPlan:
        config, log_ = partition.config, partition.log
        return plan_retention(
            log_.segments(),
            RetentionPolicy(
                retention_ms=config.retention_ms,
                retention_bytes=config.retention_bytes,
                delay_ms=config.delay_ms,
                deletes=config.deletes,
            ),
            now_ms=self._time.trusted_ms(),
            log_start_offset=log_.start_offset,
            high_watermark=partition.high_watermark,
        )


def _without_waiting(partition: Partition, plan: RetentionPlan) -> RetentionPlan:
    """The plan without segments that hold delayed messages: those are carried on first."""
    waiting = partition.delayed_messages
    if waiting is None or not plan.delete_count:
        return plan
    wanted = partition.log.segments()[: plan.delete_count]
    free = [segment for segment in wanted if segment.next_offset <= waiting.kept_from]
    if len(free) < len(wanted):
        waiting.carry_below(wanted[-1].next_offset, sum(segment.size for segment in wanted))
    # The active segment is rolled all the same, so that what is carried on goes into another.
    return plan._replace(delete_count=len(free))
