"""The logins of a broker's SASL listeners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.authentication.fair_threads import FairThreads
from forebay.broker.authentication.logins import Logins
from forebay.broker.authentication.password_checks import PasswordChecks
from forebay.broker.authentication.token_checks import TokenChecks
from forebay.broker.worker_threads import LazyThreads
from forebay.core.security.sasl.made_up_credentials import MadeUpCredentials

if TYPE_CHECKING:
    from forebay.broker.composition.foundations import Foundations


def logins(base: Foundations) -> Logins:
    def threads(name: str) -> LazyThreads:
        return LazyThreads(base.loop, lambda: base.ports.executor(1, name))

    made_up = MadeUpCredentials(base.login_secret)
    return Logins(
        settings=base.settings,
        metadata=base.metadata,
        metrics=base.metrics,
        time=base.time,
        passwords=PasswordChecks(base.metadata, FairThreads(threads("forebay-login")), made_up),
        tokens=TokenChecks(
            base.settings.current.oauth,
            time=base.time,
            background=base.background,
            threads=FairThreads(threads("forebay-tokens")),
            fetching=threads("forebay-jwks"),
        ),
        made_up=made_up,
        entropy=base.ports.entropy,
        log_failed=base.audit.login_failed,
    )
