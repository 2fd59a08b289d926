"""Fetched bytes: an answer that is over the quota is not sent. The client gets an empty one, and waits.

An answer holds at most what the quota allows in one burst, so that it can be sent after a wait. A batch that
is larger still is sent when the client has used nothing for that long, and the client waits afterwards.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay.broker.net.dispatch import RequestContext
from forebay.broker.quotas.client_quotas import ClientQuotas
from forebay.core.quotas.keys import QuotaKey
from forebay.core.quotas.token_bucket import TokenBucket


class FetchQuota(NamedTuple):
    quotas: ClientQuotas
    bucket: TokenBucket
    context: RequestContext

    @property
    def bytes_max(self) -> int:
        """The most that one answer should hold."""
        return max(int(self.bucket.capacity), 1)

    def admit(self, size: int) -> tuple[bool, int]:
        """Whether an answer with this many bytes may be sent, and the milliseconds that the client waits."""
        taken, wait_s = self.bucket.take_if_room(size, self.quotas.now())
        return taken, self._mute(wait_s)

    def count(self, size: int) -> int:
        """Count an answer that is sent whatever its size; the milliseconds that the client waits."""
        return self._mute(self.bucket.take(size, self.quotas.now()))

    def _mute(self, wait_s: float) -> int:
        return self.quotas.mute(self.context, QuotaKey.FETCH, wait_s) if wait_s else 0


def fetch_quota(quotas: ClientQuotas, context: RequestContext) -> FetchQuota | None:
    """What limits the bytes that a client fetches; None if nothing does."""
    limits = quotas.limits(context)
    if limits is None or limits.fetch is None:
        return None
    return FetchQuota(quotas, limits.fetch, context)
