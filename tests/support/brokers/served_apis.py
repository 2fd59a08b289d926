"""Which APIs a broker serves, in which versions, told without a broker."""

from __future__ import annotations

from forebay.broker.api_table import APIS, open_endpoint
from forebay.broker.net.dispatch import Endpoint


def _endpoint(api_key: int) -> Endpoint:
    """Handlers are only bound to their collaborators here, so nothing will do for all of them."""
    endpoint = open_endpoint(lambda _: None, api_key)
    assert endpoint is not None
    return endpoint


ENDPOINTS = {int(api_key): _endpoint(api_key) for api_key in APIS}
