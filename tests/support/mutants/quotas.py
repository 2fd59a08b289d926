"""Mistakes with client quotas; see brokers.py."""

from __future__ import annotations

import pytest

from forebay.broker.net.responses.response_queue import Responses


def tell_clients_to_wait_and_read_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Responses, "mute", lambda _self, _seconds: None)
