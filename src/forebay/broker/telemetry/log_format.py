"""Structured logs: a message and its facts, as key=value for people or as JSON for programs."""

from __future__ import annotations

import json
import logging
import sys

from forebay.broker.telemetry.log_writer import QueuedHandler

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _facts(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


class TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        facts = " ".join(f"{key}={_quoted(value)}" for key, value in _facts(record).items())
        line = super().formatMessage(record)
        return f"{line} {facts}" if facts else line


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= _facts(record)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def _quoted(value: object) -> str:
    """Clients choose some of what is logged: it cannot make a line of its own, or speak to the terminal."""
    text = str(value)
    is_plain = text.isprintable() and not any(c.isspace() or c in '"=' for c in text)
    return text if text and is_plain else json.dumps(text)


class _Worker(logging.Filter):
    """Says in every line which worker of its host has written it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def filter(self, record: logging.LogRecord) -> bool:
        record.worker = self._number
        return True


def configure(log_format: str, *, worker: int = 0) -> logging.Handler:
    """Log to standard error without ever waiting for its reader.

    The handler has to be closed, or the last lines may be lost. `worker`: if other workers write to the same.
    """
    formatter = JsonFormatter() if log_format == "json" else TextFormatter()
    # A process that was started without one may come to use its number for another file.
    has_stderr = sys.stderr is not None
    handler = QueuedHandler(sys.stderr.fileno(), formatter) if has_stderr else logging.NullHandler()
    if worker:
        handler.addFilter(_Worker(worker))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    return handler
