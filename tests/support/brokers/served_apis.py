"""Which APIs a broker serves, in which versions, told without a broker."""

from __future__ import annotations

import inspect
from typing import Any

from forebay.broker.api_table import api_table
from forebay.broker.net.dispatch import Endpoint


def _table() -> dict[int, Endpoint]:
    """Handlers are only bound to their collaborators here, so nothing will do for all of them."""
    nothing: dict[str, Any] = dict.fromkeys(inspect.signature(api_table).parameters)
    return api_table(**nothing)


ENDPOINTS = _table()
