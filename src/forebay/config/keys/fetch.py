"""The settings of fetches, and of what a view may cost."""

from __future__ import annotations

from forebay.config.declared_settings import settings_group
from forebay.config.values import int_key, long_key


@settings_group
class FetchConfig:
    max_bytes: int = int_key(
        "fetch.max.bytes", 57671680, "The most data that one Fetch response carries.", 1024
    )
    session_slots_max: int = int_key(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "Fetch sessions kept for clients; beyond it the oldest makes room.",
        0,
    )
    session_partitions_max: int = int_key(
        "forebay.fetch.session.partitions.max",
        200_000,
        "Partitions of all fetch sessions together, each of which takes about 450 bytes of memory; beyond it "
        "the largest session makes room for smaller ones. Clients without a session name their partitions in "
        "each request.",
        1,
    )
    view_source_max_bytes: int = int_key(
        "forebay.view.fetch.source.max.bytes",
        4 * 1024 * 1024,
        "How much of its source a fetch of a view's partition examines before it is answered, if nothing "
        "matches.",
        1,
        dynamic=True,
    )
    view_cache_bytes: int = long_key(
        "forebay.view.cache.bytes",
        1024 * 1024 * 1024,
        "Disk space for what views show of closed segments, which is filtered once and kept; 0 means none.",
        0,
        dynamic=True,
    )
    view_pattern_size_max: int = int_key(
        "forebay.view.pattern.size.max",
        2_000,
        "The instructions that the patterns of a new view may be compiled to, all of them together. Each may "
        "be a step for each byte of a text.",
        1,
        1_000_000,
        dynamic=True,
    )
    view_turn_ms: int = int_key(
        "forebay.view.turn.ms",
        20,
        "How long a view filters until it is the turn of others. It ends between two messages.",
        1,
        10_000,
        dynamic=True,
    )
    view_record_steps_max: int = long_key(
        "forebay.view.record.max.steps",
        64 * 1024 * 1024,
        "What a view may spend on one message: the bytes of a text times the instructions of the view's "
        "patterns. A message that may take more is not shown, and counted. A step takes up to 8 ns.",
        1024,
        dynamic=True,
    )
    view_record_max_bytes: int = int_key(
        "forebay.view.record.max.bytes",
        4 * 1024 * 1024,
        "A larger message is not shown by a view that has to read it, and counted. Its value counts if the "
        "view uses it.",
        1024,
        dynamic=True,
    )
    view_record_elements_max: int = int_key(
        "forebay.view.record.max.elements",
        100_000,
        "A message whose value has more fields and elements, or that has more headers, is not shown by a "
        "view that has to read them, and counted.",
        1,
        dynamic=True,
    )
