"""Mistakes with verdicts on brokers that refuse connections, put into the production code on purpose."""

from __future__ import annotations

import pytest

from forebay.broker.cluster.failover import early_fencing, peer_watch
from forebay.coordination.store import Compare
from forebay.errors import KafkaError


def count_time_outs_as_refusals(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(peer_watch, "PeerRefused", KafkaError)


def end_any_registration_of_the_broker(patch: pytest.MonkeyPatch) -> None:
    """The registration that is ended need not be the one that was watched."""
    patch.setattr(early_fencing, "registration_unchanged", lambda *_: Compare.absent("/nothing"))


def judge_without_a_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(early_fencing, "free_place", lambda taken, prefix, _: f"{prefix}{len(taken)}")


def leave_the_lease_to_who_is_judged(patch: pytest.MonkeyPatch) -> None:
    """A live broker that was judged and hears of no change goes on as it was."""
    patch.setattr(early_fencing.Verdicts, "_end_lease_soon", lambda *_: None)
