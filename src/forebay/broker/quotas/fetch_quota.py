"""Fetched bytes: a client that owes something gets an empty answer, and waits.

An answer holds no more than the client may use at once, but for a batch that is larger than that. If more is
sent than was left, the client waits afterwards. Connections that share a quota take turns.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay.broker.net.request_context import RequestContext
from forebay.broker.quotas.client_quotas import ClientQuotas
from forebay.core.quotas.keys import QuotaKey
from forebay.core.quotas.token_bucket import TokenBucket


class FetchQuota(NamedTuple):
    """That of one request. It may wait for long: what limits its client is looked up again when it ends."""

    quotas: ClientQuotas
    context: RequestContext
    bytes_max: int
    """The most that the answer should hold."""

    def admit(self, size: int) -> tuple[bool, int]:
        """True if an answer with this many bytes may be sent; and the milliseconds that the client waits."""
        bucket = _bucket(self.quotas, self.context)
        if bucket is None:
            return True, 0
        is_sent, wait_s = bucket.take_turn(id(self.context.connection), size, self.quotas.now())
        return is_sent, self._mute(wait_s)

    def count(self, size: int) -> int:
        """Count an answer that is sent whatever its size; the milliseconds that the client waits."""
        bucket = _bucket(self.quotas, self.context)
        return 0 if bucket is None else self._mute(bucket.take(size, self.quotas.now()))

    def _mute(self, wait_s: float) -> int:
        return self.quotas.mute(self.context, QuotaKey.FETCH, wait_s) if wait_s else 0


def fetch_quota(quotas: ClientQuotas, context: RequestContext) -> FetchQuota | None:
    """The quota on the bytes that a client fetches; None if it has none."""
    bucket = _bucket(quotas, context)
    if bucket is None:
        return None
    return FetchQuota(quotas, context, max(int(bucket.share(quotas.now())), 1))


def _bucket(quotas: ClientQuotas, context: RequestContext) -> TokenBucket | None:
    limits = quotas.limits(context)
    return None if limits is None else limits.fetch
