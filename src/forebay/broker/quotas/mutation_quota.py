"""Partitions that a client creates and deletes (KIP-599).

A client that knows the error for it is refused once it is over its quota, each topic by itself. For others,
the change is made, and they wait afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from forebay.broker.net.request_context import RequestContext
from forebay.broker.quotas.client_quotas import ClientQuotas
from forebay.coordination.metadata import Plan
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change
from forebay.core.cluster.topics.partition_changes import partitions_changed
from forebay.core.quotas.keys import QuotaKey
from forebay.errors import ErrorCode, KafkaError


class Throttled(Protocol):
    throttle_time_ms: int


R = TypeVar("R", bound=Throttled)


class MutationQuota:
    """Of one request."""

    def __init__(self, quotas: ClientQuotas, context: RequestContext, *, refuses_from: int | None) -> None:
        """`refuses_from`: the first version of the API whose clients know the error; None: there is none."""
        limits = quotas.limits(context)
        self._bucket = None if limits is None else limits.mutation
        self._quotas = quotas
        self._context = context
        self._refuses = refuses_from is not None and context.api_version >= refuses_from
        self._wait_s = 0.0

    def metered(self, plan: Plan) -> Plan:
        """A plan that raises KafkaError if the client is over its quota. Counted once, even if it is
        planned again because others were faster."""
        if self._bucket is None:
            return plan
        counted = False

        def plan_within_quota(image: ClusterImage) -> Sequence[Change]:
            nonlocal counted
            changes = plan(image)
            if not counted:
                self._count(partitions_changed(image, changes))
                counted = True
            return changes

        return plan_within_quota

    def _count(self, partitions: int) -> None:
        bucket, now = self._bucket, self._quotas.now()
        if bucket is None or not partitions:
            return
        wait_s = bucket.wait_s(now)
        if self._refuses and wait_s:
            self._wait_s = max(self._wait_s, wait_s)
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"controller_mutation_rate allows {bucket.bound:g} partitions per second:"
                f" try again in {wait_s:.1f} s",
            )
        wait_s = bucket.take(partitions, now)
        if not self._refuses:
            self._wait_s = max(self._wait_s, wait_s)

    def answered(self, response: R) -> R:
        """The response, with the time that its client has to wait; the wait begins."""
        if self._wait_s:
            response.throttle_time_ms = self._quotas.mute(self._context, QuotaKey.MUTATION, self._wait_s)
        return response
