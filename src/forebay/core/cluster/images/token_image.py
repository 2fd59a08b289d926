"""The delegation tokens of a cluster in the image. `delegation_token.py` defines a token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from forebay.core.cluster.images.delegation_token import DelegationToken


class TokenPut(NamedTuple):
    token: DelegationToken


class TokenDeleted(NamedTuple):
    id: str


class TokensDraft:
    """Tokens in the making: the map is copied when it is first written to."""

    def __init__(self, tokens: Mapping[str, DelegationToken]) -> None:
        self.tokens = tokens
        self._own: dict[str, DelegationToken] | None = None

    def apply(self, change: TokenPut | TokenDeleted) -> None:
        if self._own is None:
            self.tokens = self._own = dict(self.tokens)
        if isinstance(change, TokenPut):
            self._own[change.token.id] = change.token
        else:
            self._own.pop(change.id, None)
