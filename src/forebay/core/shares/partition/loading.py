"""Builds the window of a share partition from its persisted state."""

from __future__ import annotations

from collections.abc import Iterable

from forebay.core.shares.partition.record_window import Span, Window
from forebay.core.shares.partition.state_transitions import ACQUIRED, ARCHIVING, DeadLetterCause
from forebay.core.shares.partition.writes import StateRange
from forebay.errors import ErrorCode, KafkaError


def loaded(start_offset: int, ranges: Iterable[StateRange], delivery_count_limit: int) -> Window:
    """The window. Offsets outside all ranges count as never delivered.

    The cause of a dead letter is not persisted. The delivery count tells it.
    """
    window = Window(start_offset)
    for first, last, state, count in ranges:
        if not window.end < first <= last or state is ACQUIRED:
            text = f"the persisted state of a share partition has a bad range {first}-{last} ({state.name})"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        if first > window.end + 1:
            window.append(Span(window.end + 1, first - 1))
        span = Span(first, last, state, count)
        if state is ARCHIVING:
            span.cause = _cause(count, delivery_count_limit)
        window.append(span)
    return window


def _cause(count: int, delivery_count_limit: int) -> DeadLetterCause:
    if not count:  # no member had it, so that none can have rejected it
        return DeadLetterCause.UNREADABLE
    return DeadLetterCause.DELIVERY_LIMIT if count >= delivery_count_limit else DeadLetterCause.REJECTED
