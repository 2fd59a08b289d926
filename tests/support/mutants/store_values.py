"""Mistakes about values in the store that cannot be read."""

from __future__ import annotations

import pytest

from forebay.broker.coordinators import transactions
from forebay.broker.partition.opening import late_roles
from forebay.coordination import translate
from forebay.core.topic_partition import TopicPartition
from forebay.core.transactions.shard import WriteMarkers


def take_the_unreadable_for_absent(patch: pytest.MonkeyPatch) -> None:
    """Topics seem to be deleted, and partitions to be as they were when they were made."""
    patch.setattr(translate, "_in_doubt", lambda *_: [])


def lead_unjudged_logs(patch: pytest.MonkeyPatch) -> None:
    """What could not be read at the start is led later, whatever the log may lack."""
    patch.setattr(late_roles.LateRoles, "defers", lambda *_: False)


def end_transactions_without_the_markers_of_unreadable_topics(patch: pytest.MonkeyPatch) -> None:
    """A partition whose topic cannot be read counts as one that is gone, which needs no marker."""
    is_settled = transactions.Transactions._is_settled

    def seems_settled(
        self: transactions.Transactions, effect: WriteMarkers, at: TopicPartition, error: int
    ) -> bool:
        return is_settled(self, effect, at, error) or not self._host.metadata.image.path(*at)

    patch.setattr(transactions.Transactions, "_is_settled", seems_settled)
