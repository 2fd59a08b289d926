"""How short cores are."""

from __future__ import annotations

import threading

import pytest

from forebay.broker.yielding.core_shortage import CoreShortage
from forebay.clock import SystemClock


def test_the_shortage_of_cores_is_that_of_late() -> None:
    now_s = waited_s = 0.0
    shortage = CoreShortage(lambda: now_s, lambda: waited_s)
    assert shortage.part == 0
    now_s, waited_s = 0.1, 0.05
    assert shortage.part == pytest.approx(0.5)
    now_s, waited_s = 0.101, 0.051
    assert shortage.part == pytest.approx(0.5), "one millisecond says nothing"
    now_s = 0.2
    assert shortage.part == pytest.approx(0.01)
    now_s, waited_s = 0.25, 0.0
    assert shortage.part == 0, "it could not be read"
    now_s, waited_s = 0.3, 10.0
    assert shortage.part < 1


def test_the_system_tells_how_long_a_thread_waited() -> None:
    assert SystemClock().core_wait(threading.get_native_id()) >= 0.0
    assert SystemClock().core_wait(2**30) == 0.0, "of a thread that is not there"
