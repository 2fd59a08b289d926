"""Failures between a broker and etcd, classified by the one question that matters: was the request applied?

`Unreachable` was never sent, `Refused` was answered, `NoAnswer` may or may not have been applied. All three
stay inside this package; callers of the store get a StoreError that says what to do.
"""

from __future__ import annotations

import json
import os
import ssl
from typing import Any

from forebay.coordination.etcd.http import NotHttp
from forebay.coordination.store import LeaseLost, MismatchReason, StoreError, StoreMismatch

# The numbers of gRPC's status codes.
_NOT_FOUND = 5
PERMISSION_DENIED = 7
_OUT_OF_RANGE = 11
UNAVAILABLE = 14
UNAUTHENTICATED = 16

_TEXT_SHOWN_CHARS = 200


class Failure(Exception):
    """A failure of one server."""

    def __init__(self, message: str, *, hopeless: bool = False) -> None:
        super().__init__(message)
        self.hopeless = hopeless
        """True if a retry is pointless: somebody has to correct something first."""
        self.suspicious = False
        """True if somebody has to act in case it lasts; a server that restarts may cause it once."""


class Unreachable(Failure):
    """No connection, so nothing was sent."""


class NoAnswer(Failure):
    """The request was sent; then silence or a broken connection."""


class NotOurs(NoAnswer):
    """An answer that must not be trusted: from another store, or from an older state of this one."""

    def __init__(self, mismatch: StoreMismatch) -> None:
        super().__init__(mismatch.message, hopeless=True)
        self.mismatch = mismatch

    @property
    def not_applied(self) -> bool:
        """The actions of another store say nothing about this one."""
        return self.mismatch.reason is MismatchReason.ANOTHER_STORE


class Refused(Failure):
    """etcd's own error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def stale_token(self) -> bool:
        """True if the login has expired, or was made under older rules: log in again."""
        return self.code == UNAUTHENTICATED or "auth store is old" in self.message

    @property
    def denied(self) -> bool:
        """True if it is not allowed; a watch gets the same error when its login has expired."""
        return self.code == PERMISSION_DENIED

    @property
    def not_applied(self) -> bool:
        """True if it was refused before it was processed: the same request may go to another server."""
        return (
            "no leader" in self.message
            or "too many requests" in self.message
            or "not a primary lessor" in self.message
        )

    @property
    def unavailable(self) -> bool:
        """True if this server cannot help at the moment; another one might."""
        return self.not_applied or self.code == UNAVAILABLE

    @property
    def compacted(self) -> bool:
        return self.code == _OUT_OF_RANGE and "compacted" in self.message

    @property
    def lease_not_found(self) -> bool:
        return self.code == _NOT_FOUND and "lease" in self.message

    def as_store_error(self, user: str | None) -> StoreError:
        """The same error for users of the store, with what to do about it."""
        if self.lease_not_found:
            return LeaseLost(f"the lease has ended ({self.message})")
        return StoreError(f"etcd refused the request: {self.message}{self._advice(user)}")

    def _advice(self, user: str | None) -> str:
        if "user name is empty" in self.message:
            return "; it wants a login, set forebay.etcd.user and forebay.etcd.password"
        if self.code == UNAUTHENTICATED or "authentication failed" in self.message:
            return f"; check forebay.etcd.user ({user}) and forebay.etcd.password"
        if self.denied:
            return f"; give the etcd user {user} the right to read and write the keys under /forebay/"
        if "database space exceeded" in self.message:
            return "; compact and defragment etcd, disarm its alarm, and give it --auto-compaction-retention"
        return ""


def refusal(status: int, body: bytes) -> Refused:
    """The refusal in an unsuccessful response. Raises NoAnswer if it is not from etcd."""
    try:
        error = json.loads(body)
    except ValueError:
        error = None
    if b"CommonName" in body:
        raise NoAnswer(
            "with users and client certificates together, etcd wants those without a common name (CN): "
            "make forebay.etcd.cert.file such a one",
            hopeless=True,
        )
    if not isinstance(error, dict):
        raise NoAnswer(f"it answers {status} {shown(body)!r}: is this etcd's client port?", hopeless=True)
    return refusal_in(error)


def refusal_in(error: dict[str, Any]) -> Refused:
    """The refusal in etcd's description of an error, which differs between its versions."""
    inner = error.get("error")
    if isinstance(inner, dict):
        error = inner
    code = error.get("code", error.get("grpc_code", 2))
    message = error.get("message") or error.get("error") or "no reason given"
    return Refused(int(code), str(message))


def connecting_failed(error: OSError | TimeoutError, *, tls: bool) -> Unreachable:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Unreachable(
            f"its certificate is not trusted ({error.verify_message}): set forebay.etcd.ca.file to the "
            "certificate of who signed it, and use a host name that it was made for",
            hopeless=True,
        )
    if isinstance(error, ssl.SSLError):
        plain = "WRONG_VERSION_NUMBER" in str(error.reason)
        advice = "it does not speak TLS: write etcd:// for etcds://" if plain else _tls_advice(error)
        return Unreachable(advice, hopeless=True)
    if isinstance(error, TimeoutError):
        return Unreachable("no connection in time")
    if tls and isinstance(error, ConnectionResetError):
        failure = Unreachable(
            "it closed the connection when TLS began: if it has no TLS write etcd:// for etcds://, "
            "if it wants a certificate set forebay.etcd.cert.file"
        )
        failure.suspicious = True
        return failure
    # asyncio words a refused connection by itself; the system's words are the ones that people know.
    known = error.errno is not None and error.errno > 0
    return Unreachable((os.strerror(error.errno) if known and error.errno else str(error)).lower())


def broken(error: Exception, *, tls: bool) -> NoAnswer:
    """A connection that ended before the whole answer had come."""
    if isinstance(error, TimeoutError):
        return NoAnswer("no answer in time")
    if isinstance(error, ssl.SSLError):
        return NoAnswer(_tls_advice(error), hopeless=True)
    if isinstance(error, NotHttp):
        return NoAnswer(str(error), hopeless=True)
    hint = "does it want a client certificate (forebay.etcd.cert.file)?" if tls else "does it want etcds://?"
    return NoAnswer(f"the connection broke ({str(error) or type(error).__name__}); {hint}")


def _tls_advice(error: ssl.SSLError) -> str:
    reason = error.reason or str(error)
    if "CERTIFICATE" in reason.upper():
        return f"it refused our certificate ({reason}): set forebay.etcd.cert.file and forebay.etcd.key.file"
    return f"TLS failed ({reason})"


def shown(body: bytes) -> str:
    return body[:_TEXT_SHOWN_CHARS].decode("utf-8", "replace").strip()
