"""Millions of malformed requests: each API, each version, with counts, lengths and tags at their extremes.

SIEGE_INPUTS says how many (10 million, about 4 minutes on one core), SIEGE_SEED which.
"""

from __future__ import annotations

import os
import random
import time
from random import Random

import pytest
from rich.console import Console

from support.siege.decoding import CPU_MS_PER_KB_MAX, Outcome, feed, inputs_of
from support.siege.structures import every_request

pytestmark = [pytest.mark.siege, pytest.mark.timeout(0)]

SIEGE_INPUTS = int(os.environ.get("SIEGE_INPUTS", "10_000_000"))
SIEGE_SEED = os.environ.get("SIEGE_SEED") or f"{random.SystemRandom().randrange(2**32)}"


def test_no_malformed_request_is_expensive_or_raises_what_nobody_expects(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cases, outcome, began = every_request(), Outcome(), time.process_time()
    for request, version in cases:
        chance = Random(f"{SIEGE_SEED}/{request.__name__}/{version}")
        feed(inputs_of(chance, request, version, -(-SIEGE_INPUTS // len(cases))), outcome)
    with capsys.disabled():
        Console().print(
            f"{outcome.inputs:,} malformed requests of {len(cases)} versions, seed {SIEGE_SEED}: "
            f"{time.process_time() - began:.0f} s of CPU, {outcome.input_bytes / 1e9:.1f} GB, "
            f"{outcome.decoded:,} were requests after all; the most for a KB was "
            f"{outcome.slowest_ms_per_kb:.2f} ms of CPU ({CPU_MS_PER_KB_MAX:.0f} allowed)",
            soft_wrap=True,
        )
    assert not outcome.failures, f"seed {SIEGE_SEED}: " + "\n".join(outcome.failures)
