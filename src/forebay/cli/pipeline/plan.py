"""The plan of a step: its topics, places, schemas and rights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Right(NamedTuple):
    """An ACL that the user of the pipeline needs."""

    operation: str
    resource: str
    name: str
    is_prefix: bool = False

    def __str__(self) -> str:
        """As `forebay acl add PRINCIPAL` takes it."""
        return f"{self.operation} {self.resource} {self.name}{' --prefix' if self.is_prefix else ''}"


def rights_to_write(topic: str) -> tuple[Right, ...]:
    """Exactly once (docs/acls.md)."""
    return (
        Right("write", "topic", topic),
        Right("read", "topic", topic),
        Right("read", "group", "spark-sink-", True),
        Right("write", "transactional-id", "spark-", True),
        Right("describe", "topic", "__transaction_state"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    reads: Sequence[str] = ()
    """Topics."""
    writes: Sequence[str] = ()
    """Topics, each message once."""
    schemas: Mapping[str, str] = field(default_factory=dict)
    """By topic: how its values are read."""
    places: Mapping[str, str] = field(default_factory=dict)
    """By what they are for: directories and files, and URIs."""
    facts: Mapping[str, str] = field(default_factory=dict)
    rights: Sequence[Right] = ()


def trigger_text(once: bool, every: str | None) -> str:
    if once:
        return "once: what is there, then it ends"
    return f"every {every}, until it is stopped" if every else "without a pause, until it is stopped"
