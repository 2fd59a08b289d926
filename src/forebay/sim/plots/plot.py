"""A plot: which actors and faults a story has. `all_plots.py` has all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from forebay.lazy import dataclass
from forebay.sim.actors.dialects import (
    AIOKAFKA,
    CONFLUENT,
    DIALECTS,
    JAVA,
    MODERN,
    POLITE,
    RUDE,
    Dialect,
    Manners,
)
from forebay.sim.actors.producers.transactional import (
    BumpingProducer,
    ContinuingProducer,
    TransactionalProducer,
)
from forebay.sim.actors.shares.members import ShareMember
from forebay.sim.models.share_records import ShareRules

TWO_IN_SYNC = {"min.insync.replicas": "2"}
ONE_IN_SYNC = {"min.insync.replicas": "1"}

TransactionalKind = tuple[type[TransactionalProducer], Sequence[Dialect], Manners]
"""Transactional producers: the class, the dialects that they may speak, and their manners."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Anything that is not set is left to chance."""

    cast: Sequence[str] | None = None
    """The actors besides the readers, by their names in the workload."""
    faults: Sequence[str] | None = None
    """The faults, by name."""
    step_s: tuple[float, float] = (0.2, 3.0)
    """The time between two faults, mostly."""
    fault_s: tuple[float, float] | None = None
    """How long each fault lasts."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings of the brokers."""
    brokers: int = 1
    """The story has at least this many."""
    value_bytes: int | None = None
    transactional: Sequence[TransactionalKind] = (
        (TransactionalProducer, DIALECTS, POLITE),
        (ContinuingProducer, (MODERN, CONFLUENT, AIOKAFKA), RUDE),
        (BumpingProducer, (MODERN, CONFLUENT), RUDE),
        (ContinuingProducer, (JAVA,), RUDE),
    )
    nap_chance: float = 0.0
    """The chance that members of the group pause for longer than their session lasts."""
    share_rules: ShareRules | None = None
    worker: type[ShareMember] = ShareMember
    """The class of the share group's members."""
    deposing_pause_s: float = 4.0
    resizes: Sequence[int] | None = None
    """The partition counts of the topic that is folded, one after the other."""
    empties: bool = False
    """True if the messages of its closed partitions are deleted, so that they are removed."""
    tiered: bool = False
    """True if the topics keep their old segments in an object store."""
    short_alarms: bool = False
    """True if retention deletes delayed messages, and producers share their keys."""


ORDINARY = Plot()
