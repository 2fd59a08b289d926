"""Garbage of large requests is collected in small lots: nobody is served meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from forebay.broker.process import GARBAGE_THRESHOLDS
from forebay.wire.codec.compiled import decoder
from forebay.wire.frames import read_request_header, request_frame
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from forebay.wire.parts import join

LOT_MAX = 12_000


@pytest.fixture
def lots() -> Iterator[list[int]]:
    """How many young objects there were at each collection."""
    found: list[int] = []

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and info["generation"] == 0:
            found.append(len(gc.get_objects(generation=0)))

    before = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(note)
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    yield found
    gc.set_threshold(*before)
    gc.callbacks.remove(note)


def test_a_large_request_is_looked_at_in_lots_while_it_is_decoded(lots: list[int]) -> None:
    topics = [MetadataRequestTopic(name=f"t{number}") for number in range(60_000)]
    frame = memoryview(join(request_frame(MetadataRequest(topics=topics), 12, 1, "test")))[4:]
    _, start = read_request_header(frame)
    lots.clear()
    request, _ = decoder(MetadataRequest, 12)(frame, start)
    assert len(request.topics) == 60_000
    assert len(lots) >= 5 and max(lots) <= LOT_MAX
