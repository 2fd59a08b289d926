"""The contents of a simulated store: its keys, its leases, and the identity in every answer."""

from __future__ import annotations

from dataclasses import field

from forebay.coordination.keyspace import Keyspace
from forebay.coordination.store_identity import Header
from forebay.lazy import dataclass

_HISTORY_MAX = 300
"""Few, so that a broker that was away for long finds its events compacted."""


@dataclass(eq=False, slots=True)
class Grant:
    ttl_s: float
    expires_at: float


@dataclass(eq=False, slots=True)
class Contents:
    store_id: str
    keyspace: Keyspace = field(default_factory=lambda: Keyspace(history_max=_HISTORY_MAX))
    grants: dict[int, Grant] = field(default_factory=dict)

    def header(self) -> Header:
        return Header(self.store_id, self.keyspace.revision, term=1)

    def copy(self) -> Contents:
        """A copy as in a backup: with its leases."""
        keyspace, own = Keyspace(history_max=_HISTORY_MAX), self.keyspace
        items, revision = own.range("")
        keyspace.restore(items, own.since(own.compacted + 1), revision=revision, compacted=own.compacted)
        for lease_id in self.grants:
            keyspace.grant(lease_id)
        return Contents(
            self.store_id, keyspace, {number: Grant(each.ttl_s, 0.0) for number, each in self.grants.items()}
        )

    @staticmethod
    def of_another(revision: int) -> Contents:
        """A store that knows nothing of the cluster, and is at this revision."""
        keyspace = Keyspace(history_max=_HISTORY_MAX)
        keyspace.restore((), (), revision=revision, compacted=revision)
        return Contents("another", keyspace)
