"""Mistakes about values in the store that cannot be read."""

from __future__ import annotations

import pytest

from forebay.broker.partition import late_roles
from forebay.coordination import translate


def take_the_unreadable_for_absent(patch: pytest.MonkeyPatch) -> None:
    """Topics seem to be deleted, and partitions to be as they were when they were made."""
    patch.setattr(translate, "_in_doubt", lambda *_: [])


def lead_unjudged_logs(patch: pytest.MonkeyPatch) -> None:
    """What could not be read at the start is led later, whatever the log may lack."""
    patch.setattr(late_roles.LateRoles, "defers", lambda *_: False)
