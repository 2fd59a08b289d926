"""What a partition knows of its own fold, while it is closed to new messages (`core/cluster/folding.py`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class FoldedInto:
    leader_epoch: int
    """The term in which its end was looked at."""
    end_offset: int
    """Where its log ended when this term found it closed. Below it is all that clients have written."""
    index: int = -1
    """The partition of the same topic that takes the messages sent for this one."""
    generation: int | None = None
    """Of the fold: the aliases of its producers tell it."""
    is_returning: bool = False
    """It takes messages again as soon as it has gathered the numbers of their producers. Until then it passes
    nothing on."""
    revision: int = 0
    """Of the topic's record that says so."""
    closed_ms: int = 0
    """When it was closed, in wall time."""
    drop_ms: int | None = None
    """When it goes with whatever it holds; None: when it is empty."""
