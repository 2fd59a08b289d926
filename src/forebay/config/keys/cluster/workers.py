"""The settings of a host that runs several broker processes: `forebay serve --workers`.

`forebay.worker` is not for users: the parent of the processes gives each of them its number.
"""

from __future__ import annotations

import os

from forebay.config.declared_settings import settings_group
from forebay.config.values import Value, int_key, text_key

AUTO = "auto"
WORKERS_MAX = 256


def _validate_count(value: Value) -> None:
    text = str(value)
    if text != AUTO and not (text.isascii() and text.isdigit() and 1 <= int(text) <= WORKERS_MAX):
        raise ValueError(f"write a number from 1 to {WORKERS_MAX}, or {AUTO} for one per core")


@settings_group
class WorkersConfig:
    wanted: str = text_key(
        "forebay.workers",
        "1",
        "How many broker processes `forebay serve` runs on this host, or auto: one per core. They share the "
        "data directory, the listeners and the settings, and each of them is a broker of the cluster.",
        validate=_validate_count,
    )
    port_step: int = int_key(
        "forebay.workers.port.step",
        1,
        "Worker n of a host has, beside the port of each listener, which all workers share, that port plus "
        "n times this one for itself. The same goes for advertised.listeners and the port of metrics.",
        1,
        10_000,
    )
    number: int = int_key(
        "forebay.worker",
        0,
        "The number of this process among the workers of its host, from 1; 0 means that it is the only one. "
        "Set by `forebay serve --workers`, and not by you.",
        0,
        WORKERS_MAX,
    )

    @property
    def count(self) -> int:
        return _cores() if self.wanted == AUTO else int(self.wanted)


def _cores() -> int:
    """The cores that this process may use, as far as the system tells."""
    has_affinity = hasattr(os, "sched_getaffinity")
    return min(WORKERS_MAX, len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1)
