"""The delegation tokens of a broker, made when a client first asks for one."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from forebay.broker.authentication.logins import Logins
from forebay.broker.composition.foundations import Foundations
from forebay.broker.handlers.delegation_token import TokenService

if TYPE_CHECKING:
    from forebay.broker.tokens.delegation_tokens import DelegationTokens


def delegation_tokens(base: Foundations, logins: Logins) -> TokenService:
    @cache
    def service() -> DelegationTokens:
        from forebay.broker.tokens.delegation_tokens import DelegationTokens

        return DelegationTokens(
            settings=base.settings,
            metadata=base.metadata,
            logins=logins,
            authorization=base.authorization,
            workers=base.workers,
            time=base.time,
            entropy=base.ports.entropy,
        )

    return service
