"""Puts the log lines of the brokers into the trace of a story, and reports unexpected errors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from forebay.errors import ForebayError
from forebay.sim.world.virtual_time import World


@contextmanager
def logs_to(world: World) -> Iterator[None]:
    """Writes the log of the brokers into the trace, as remarks."""
    handler = _Remarks(world)
    logger = logging.getLogger("forebay")
    before = logger.propagate, logger.level
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate, level = before
        logger.setLevel(level)


class _Remarks(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._plain = frozenset(vars(logging.makeLogRecord({})))

    def emit(self, record: logging.LogRecord) -> None:
        extra = {key: value for key, value in vars(record).items() if key not in self._plain}
        error = record.exc_info[1] if record.exc_info else None
        line = f"{record.levelname} {record.getMessage()} {extra} {error or ''!r}"
        self._world.remark(f"log {line}")
        if error is not None and not isinstance(error, (ForebayError, OSError)):
            # A real broker continues after an internal error. Here every such error is a breach.
            self._world.fail(f"an error that nobody expected: {line}")
