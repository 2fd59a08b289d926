"""The settings of topics that administrators of a story change, and their possible values."""

from __future__ import annotations

from collections.abc import Sequence

_FOR_EVER = str(2**63 - 1)


def setting_choices(*, lasting: bool) -> list[tuple[str, str, Sequence[str]]]:
    """Settings, with values that do not contradict what the model expects."""
    in_sync = ("2",) if lasting else ("1", "2")
    choices: list[tuple[str, str, Sequence[str]]] = [
        ("brief", "retention.bytes", ("-1", "1024", "4096")),
        ("loose", "retention.bytes", ("-1", "4096")),
        ("loose", "unclean.leader.election.enable", ("true", "false")),
        ("loose", "min.insync.replicas", ("1", "2")),
        ("keyed", "delete.retention.ms", ("0", "500", _FOR_EVER)),
        ("keyed", "max.compaction.lag.ms", ("1", "2000", _FOR_EVER)),
        ("keyed", "segment.ms", ("1000", _FOR_EVER)),
        ("keyed", "retention.ms", ("-1", "1", _FOR_EVER)),
        ("plain", "message.timestamp.before.max.ms", ("864000000", _FOR_EVER)),
    ]
    for topic in ("exact", "plain", "source"):
        choices.append((topic, "segment.bytes", ("1024", "4096", "1048576")))
        choices.append((topic, "min.insync.replicas", in_sync))
        # More than the three days by which some messages are late, or they would be deleted.
        choices.append((topic, "retention.ms", ("604800000", "1209600000")))
    return choices
