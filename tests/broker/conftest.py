"""Every broker in the process of a test must leave what waits for its disk to threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.brokers.loop_guard import loops_guarded


@pytest.fixture(autouse=True)
def guarded_loops() -> Iterator[None]:
    with loops_guarded():
        yield
