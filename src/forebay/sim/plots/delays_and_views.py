"""Plots about delayed messages, and about views."""

from __future__ import annotations

from forebay.sim.plots.plot import TWO_IN_SYNC, Plot

PLOTS = {
    # Messages wait for their time, which is set, forward and back.
    "delays": Plot(cast=("delays",), faults=("set_clock",), settings=TWO_IN_SYNC),
    # Messages wait, each for its own time, while leaders are not notified that they were replaced, or lose
    # power.
    "alarms": Plot(
        cast=("alarms", "deposer"),
        faults=("kill", "slow_link", "lose_power", "set_clock"),
        settings=TWO_IN_SYNC,
        deposing_pause_s=1.0,
    ),
    # The same, while retention and compaction cut the log, and indexes are rebuilt from the rest.
    "short-alarms": Plot(
        cast=("alarms", "deposer"),
        faults=("kill", "slow_link", "lose_power"),
        settings=TWO_IN_SYNC,
        deposing_pause_s=2.0,
        short_alarms=True,
    ),
    # Views are read from leaders that are not notified that they were replaced.
    "views": Plot(
        cast=("exact", "views", "deposer"),
        faults=("slow_link", "reset"),
        settings=TWO_IN_SYNC | {"log.segment.bytes": "4096"},
        deposing_pause_s=1.0,
    ),
    # Materialized views are filled while leaders on both sides end, or are not notified that they were
    # replaced.
    "fills": Plot(
        cast=("exact", "transactions", "fills", "deposer"),
        faults=("kill", "slow_link", "pause", "lose_power"),
        settings=TWO_IN_SYNC | {"log.segment.bytes": "4096"},
        deposing_pause_s=1.0,
    ),
}
