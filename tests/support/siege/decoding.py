"""Feeds malformed requests to the decoder, and watches what it raises and what it costs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from forebay.errors import ProtocolError
from forebay.wire.codec.compiled import decoder
from forebay.wire.fields import Request
from forebay.wire.frames import read_request_header
from forebay.wire.messages import api
from support.siege.structures import Form, Malformed

CPU_MS_PER_KB_MAX = 5.0
_INPUTS_PER_FORM = 200
_MEASURED_AGAIN = 5


@dataclass
class Outcome:
    inputs: int = 0
    input_bytes: int = 0
    decoded: int = 0
    """Those that were requests in spite of all."""
    slowest_ms_per_kb: float = 0.0
    failures: list[str] = field(default_factory=list)


def decode_frame(frame: bytes) -> bool:
    """As the dispatcher does: the header, then the body if the version is one that is served."""
    view = memoryview(frame)
    header, position = read_request_header(view)
    try:
        known = api(header.api_key)
    except KeyError:
        return False
    if not known.min_version <= header.api_version <= known.max_version:
        return False
    decoder(known.request, header.api_version)(view, position)
    return True


def inputs_of(chance: Random, request: type[Request], version: int, count: int) -> Iterator[bytes]:
    while count > 0:
        malformed = Malformed(chance, Form(chance, request, version))
        for _ in range(min(count, _INPUTS_PER_FORM)):
            yield malformed.make()
        count -= _INPUTS_PER_FORM


def feed(inputs: Iterator[bytes], outcome: Outcome, decode: Callable[[bytes], bool] = decode_frame) -> None:
    """Failures are the first few inputs that raised something else than ProtocolError, or cost too much."""
    now = time.perf_counter_ns
    allowed_ns_per_byte = CPU_MS_PER_KB_MAX * 1e6 / 1000
    for frame in inputs:
        size = len(frame)
        outcome.inputs += 1
        outcome.input_bytes += size
        began = now()
        try:
            outcome.decoded += decode(frame)
        except ProtocolError:
            pass
        except Exception as error:
            _note(outcome, f"{type(error).__name__}: {error}", frame)
        # The time on the wall first, since it is cheap to ask for.
        if now() - began > allowed_ns_per_byte * max(size, 1000) / 4:
            _measure(frame, outcome, decode)


def _measure(frame: bytes, outcome: Outcome, decode: Callable[[bytes], bool]) -> None:
    """The least CPU of several times: others on the machine, and collections of garbage, do not count."""
    cost_ms = min(_cpu_ms(frame, decode) for _ in range(_MEASURED_AGAIN))
    per_kb = cost_ms / max(len(frame) / 1000, 1)
    outcome.slowest_ms_per_kb = max(outcome.slowest_ms_per_kb, per_kb)
    if per_kb > CPU_MS_PER_KB_MAX:
        _note(outcome, f"{cost_ms:.1f} ms of CPU", frame)


def _cpu_ms(frame: bytes, decode: Callable[[bytes], bool]) -> float:
    began = time.thread_time_ns()
    with contextlib.suppress(Exception):
        decode(frame)
    return (time.thread_time_ns() - began) / 1e6


def _note(outcome: Outcome, what: str, frame: bytes) -> None:
    if len(outcome.failures) < 20:
        outcome.failures.append(f"{what}, for {len(frame)} bytes: {frame[:200].hex()}")
