"""The logins of a broker's SASL listeners."""

from __future__ import annotations

from forebay.broker.authentication.logins import Logins
from forebay.broker.authentication.password_checks import PasswordChecks
from forebay.broker.composition.foundations import Foundations
from forebay.broker.worker_threads import LazyThreads

_CHECKING_THREADS = 1


def logins(base: Foundations) -> Logins:
    threads = LazyThreads(base.loop, lambda: base.ports.executor(_CHECKING_THREADS, "forebay-login"))
    return Logins(
        settings=base.settings,
        metadata=base.metadata,
        metrics=base.metrics,
        time=base.time,
        passwords=PasswordChecks(base.metadata, threads, secret=base.login_secret),
        entropy=base.ports.entropy,
        secret=base.login_secret,
    )
