"""Every API that is declared, by its key.

The module of an API is imported when the API is first asked for: a broker pays only for what its clients
speak. The names of the module and of its classes follow from the key's name in `ApiKey`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import NamedTuple

from forebay.wire.api_keys import OWN_KEYS_FROM, UNDECLARED, ApiKey
from forebay.wire.fields import NEVER, Request, Response


class Api(NamedTuple):
    key: int
    name: str
    request: type[Request]
    response: type[Response]
    min_version: int
    max_version: int
    flexible_from: int


_DECLARED: dict[int, ApiKey] = {key.value: key for key in ApiKey if key not in UNDECLARED}

API_KEYS = tuple(key for key in _DECLARED if key < OWN_KEYS_FROM)
"""Kafka's own."""


@cache
def api(api_key: int) -> Api:
    """The declaration of an API; KeyError for a key that has none."""
    key = _DECLARED[api_key]
    name = api_name(key)
    module = import_module(f"{__name__}.{key.name.lower()}")
    request, response = getattr(module, f"{name}Request"), getattr(module, f"{name}Response")
    return Api(
        key=api_key,
        name=name,
        request=request,
        response=response,
        min_version=request.MIN_VERSION,
        max_version=request.MAX_VERSION,
        flexible_from=request.FLEXIBLE_FROM,
    )


def api_name(api_key: int) -> str:
    """The name of an API for people, whether it is declared here or not."""
    try:
        return "".join(word.capitalize() for word in ApiKey(api_key).name.split("_"))
    except ValueError:
        return f"API {api_key}"


@cache  # a key has 16 bits, which bounds the size of the cache
def flexible_from(api_key: int) -> int:
    """The first version of an API whose headers have tagged fields: none, for an unknown key."""
    return api(api_key).flexible_from if api_key in _DECLARED else NEVER
