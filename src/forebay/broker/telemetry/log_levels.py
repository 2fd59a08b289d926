"""Log levels of the broker's own loggers, read and set while it runs (resource type BROKER_LOGGER).

Levels have Kafka's names. `root` stands for all of the broker's loggers; a logger without a level of its own
has that of the nearest one above it. Nothing is stored: a broker that is started again logs as configured.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from forebay.core.cluster.config_changes import Alteration, AlterOp, check_unique
from forebay.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

ROOT = "root"
_PACKAGE = "forebay"
_LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG // 2,
}
"""From the fewest messages to the most."""


def levels() -> dict[str, str]:
    """Every logger with the level in force for it."""
    return {name: _level_name(logger.getEffectiveLevel()) for name, logger in _loggers().items()}


def alter_levels(alterations: Sequence[Alteration], *, validate_only: bool) -> None:
    """All of them or, when one is wrong, none; raises KafkaError."""
    check_unique([alteration.name for alteration in alterations])
    loggers = _loggers()
    for alteration in alterations:
        _check(loggers, alteration)
    if validate_only:
        return
    for alteration in alterations:
        is_set = alteration.op == AlterOp.SET
        loggers[alteration.name].setLevel(_LEVELS[alteration.value or ""] if is_set else logging.NOTSET)
        log.warning(
            "a log level was changed", extra={"of": alteration.name, "to": alteration.value or "unset"}
        )


def _loggers() -> dict[str, logging.Logger]:
    own = {
        name: logger
        for name, logger in sorted(logging.Logger.manager.loggerDict.items())
        # Names without a logger are kept there too, as the parents of those that have one.
        if name.startswith(f"{_PACKAGE}.") and isinstance(logger, logging.Logger)
    }
    return {ROOT: logging.getLogger(_PACKAGE), **own}


def _level_name(level: int) -> str:
    return next((name for name, least in _LEVELS.items() if level >= least), "TRACE")


def _check(loggers: dict[str, logging.Logger], alteration: Alteration) -> None:
    name = alteration.name
    if alteration.op not in (AlterOp.SET, AlterOp.DELETE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: a log level can only be set or deleted")
    if name not in loggers:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if alteration.op == AlterOp.DELETE and name == ROOT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"the level of the {ROOT} logger cannot be deleted, set it"
        )
    if alteration.op == AlterOp.SET and alteration.value not in _LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{name}: {alteration.value} is not a supported log level, use {', '.join(_LEVELS)}",
        )
