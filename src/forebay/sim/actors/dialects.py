"""The protocol versions that clients speak, and their behaviour when an answer does not come.

The versions are those of real clients. An impatient client asks again while its first request is still under
way, on the same connection or on another; a stubborn one keeps asking the previous leader.
"""

from __future__ import annotations

from dataclasses import replace

from forebay.lazy import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    name: str
    software: str = ""
    """The name that the client reports, if it does."""
    metadata: int = 13
    produce: int = 11
    fetch: int = 12
    list_offsets: int = 7
    find_coordinator: int = 6
    offset_commit: int = 8
    offset_fetch: int = 8
    init_producer_id: int = 4
    add_partitions: int = 3
    add_offsets: int = 3
    end_txn: int = 3
    txn_offset_commit: int = 3


MODERN = Dialect(name="modern")
"""Topics by name in every request, as most clients do today."""

JAVA = Dialect(
    name="java",
    produce=13,
    fetch=17,
    list_offsets=10,
    offset_commit=9,
    offset_fetch=9,
    add_offsets=4,
    end_txn=5,
    txn_offset_commit=5,
)
"""Topic ids instead of names, and transactions of version 2."""

CONFLUENT = Dialect(
    name="confluent",
    produce=10,
    fetch=16,
    find_coordinator=2,
    offset_commit=9,
    offset_fetch=9,
    add_partitions=0,
    add_offsets=0,
    end_txn=1,
)

AIOKAFKA = Dialect(
    name="aiokafka",
    metadata=5,
    produce=7,
    fetch=11,
    list_offsets=3,
    find_coordinator=1,
    offset_commit=3,
    offset_fetch=3,
    init_producer_id=0,
    add_partitions=0,
    add_offsets=0,
    end_txn=0,
    txn_offset_commit=0,
)

OLD = Dialect(
    name="old",
    metadata=1,
    produce=3,
    fetch=4,
    list_offsets=1,
    find_coordinator=0,
    offset_commit=2,
    offset_fetch=1,
    init_producer_id=0,
    add_partitions=0,
    add_offsets=0,
    end_txn=0,
    txn_offset_commit=0,
)
"""The first clients that write the message format of today."""

LIBRDKAFKA = replace(CONFLUENT, name="librdkafka", software="librdkafka")
"""It reports its name. So its producers are shown partitions that are gone."""

DIALECTS = (MODERN, MODERN, JAVA, CONFLUENT, AIOKAFKA, OLD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    patience_s: float = 6.0
    """How long it waits for an answer."""
    stubborn_chance: float = 0.0
    """The chance of not looking for another leader after a failure."""
    reconnect_chance: float = 0.0
    """The chance of using another connection the next time, when an answer did not come in time."""


POLITE = Manners()
RUDE = Manners(patience_s=0.8, stubborn_chance=0.3, reconnect_chance=0.5)
