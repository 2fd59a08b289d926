"""The audit log: who did what, from where, and with what result, in lines of the logger `forebay.audit`.

Administrative requests that changed something are always logged. Refusals and failed logins are warnings.
Those, and requests of administrators that had no effect, are limited for each principal and address, so that
nobody fills the log or hides what others do by noise; what is left out is counted
(`core/security/refusals.py`). Lines name resources and settings, never values, messages or credentials.
Fields are cut to a length, with a mark.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from forebay.broker.signals import Signal
from forebay.core.guards.guard import DENIED, Resource
from forebay.core.guards.refused_resources import NAMED_MAX
from forebay.core.security.refusals import LeftOut, RefusalLimits, Refusals
from forebay.errors import ErrorCode, known_code
from forebay.wire.fields import Struct
from forebay.wire.messages import api_name

if TYPE_CHECKING:
    from forebay.broker.live_config import LiveConfig
    from forebay.broker.net.request_context import RequestContext

log = logging.getLogger("forebay.audit")

_TELL_S = 10.0
"""Lines that were left out are reported after this time, unless another line of their sender does it
first."""
_TOLD_MAX = 100
"""Lines that tell it each time. The rest is told together."""
_STRANGERS = "nobody yet"
"""Who has not logged in: their failed logins have lines by address, and a bound for all of them."""
_DENIALS = frozenset(DENIED.values())
_NAMES = (
    "name",
    "topic",
    "topic_name",
    "resource_name",
    "resource_name_filter",
    "group_id",
    "principal",
    "principal_filter",
    "broker_id",
    "feature",
    "path",
    "entity_type",
    "entity_name",
)
"""The fields of requests that say what they are about, where there are several: the first of them."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class AuditLog:
    def __init__(
        self,
        settings: LiveConfig,
        *,
        now: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        """`now`: in seconds, forward only."""
        self._settings = settings
        self._now = now
        self._call_later = call_later
        self._refusals = Refusals()
        self._timer: Timer | None = None
        self.noted: Signal[Mapping[str, object]] = Signal()
        """The facts of each line about an administrative request that was answered."""

    def refused(
        self, context: RequestContext, resources: Sequence[Resource], count: int | None = None
    ) -> None:
        """`count`: how many resources there were, if there were more than these."""
        left_out = self._admit_request(context, self._cut(str(resources[0])) if resources else "")
        if left_out is not None:
            facts = {"needs": self._joined(resources, count or len(resources)), "result": "DENIED"}
            log.warning("a request was refused", extra=self._about(context) | facts | _told(left_out))

    def soon(self, work: Callable[[], None]) -> None:
        """Have it called when what runs now has ended."""
        self._call_later(0, work)

    def administered(
        self,
        context: RequestContext,
        request: Any,
        response: Any,
        *,
        has_guard: bool,
        about: Sequence[str] = (),
    ) -> None:
        """`has_guard`: what was denied has been logged already. `about`: what to name, if the request does
        not tell it."""
        codes = Counter(_codes(response))
        left_out: LeftOut | None = None
        changes_nothing = getattr(request, "validate_only", False)
        if ErrorCode.NONE not in codes or changes_nothing:
            if has_guard and codes and codes.keys() <= _DENIALS:
                return
            left_out = self._admit_request(context, "")
            if left_out is None:
                return
        result = ", ".join(
            known_code(code).name if count == 1 else f"{count} {known_code(code).name}"
            for code, count in sorted(codes.items())
        )
        names = dict.fromkeys(about or _named(request))
        result = f"{result or 'NONE'}{', only validated' if changes_nothing else ''}"
        facts: dict[str, object] = {"what": self._joined(names, len(names)), "result": result}
        facts = self._about(context) | facts
        self.noted.send(facts)
        log.info("an administrative request was answered", extra=facts | _told(left_out))

    def login_failed(self, host: str, facts: Mapping[str, object]) -> None:
        """`facts`: without secrets; the user whom the client says to be, if it came to that."""
        cut = {name: self._cut(str(fact)) for name, fact in facts.items()}
        left_out = self._admit(_STRANGERS, host, "login", f"as {cut['user']}" if "user" in cut else "")
        if left_out is not None:
            log.warning("a login failed", extra=cut | _told(left_out))

    def close(self) -> None:
        """Tell what no line has told of yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._tell_left_out()

    # -- what is left out ------------------------------------------------------------------------------

    def _admit_request(self, context: RequestContext, need: str) -> LeftOut | None:
        connection = context.connection
        return self._admit(connection.principal, connection.peer[0], api_name(context.api_key), need)

    def _admit(self, principal: str, host: str, api: str, need: str) -> LeftOut | None:
        config = self._settings.current.authorization
        limits = RefusalLimits(config.audit_per_second, config.audit_burst, config.audit_senders_max)
        admitted = self._refusals.admit(principal, host, api, need, limits, self._now())
        if admitted is None and self._timer is None:
            self._timer = self._call_later(_TELL_S, self._tell_left_out)
        return admitted

    def _tell_left_out(self) -> None:
        self._timer = None
        found = self._refusals.untold()
        if len(found) > _TOLD_MAX:
            rest = sum((each.apis for each in found[_TOLD_MAX:]), Counter[str]())
            found[_TOLD_MAX:] = [LeftOut("", "", rest, ())]
        for each in found:
            facts = {"principal": self._cut(each.principal) or "several", "client": each.network or "several"}
            if each.needs:
                facts["needs"] = self._joined(each.needs, len(each.needs))
            log.warning("requests were refused, and not logged one by one", extra=facts | _told(each))

    # -- fields ----------------------------------------------------------------------------------------

    def _about(self, context: RequestContext) -> dict[str, object]:
        connection = context.connection
        host, port = connection.peer
        return {
            "principal": self._cut(connection.principal),
            "client": f"{host}:{port}",
            "client_id": self._cut(context.client_id or ""),
            "api": api_name(context.api_key),
        }

    def _joined(self, names: Iterable[object], count: int) -> str:
        more = count - NAMED_MAX
        shown = ", ".join(self._cut(str(name)) for name in islice(names, NAMED_MAX))
        return f"{shown} and {more} more" if more > 0 else shown

    def _cut(self, text: str) -> str:
        chars_max = self._settings.current.authorization.audit_field_chars_max
        if len(text) <= chars_max:
            return text
        return f"{text[:chars_max]}...[{len(text) - chars_max} more]"


def _told(left_out: LeftOut | None) -> dict[str, object]:
    """The fields of a line that tell what was left out before it, if anything was."""
    if left_out is None or not left_out.apis:
        return {}
    apis = ", ".join(f"{api} {count}" for api, count in left_out.apis.most_common())
    return {"left_out": left_out.apis.total(), "apis": apis}


def _named(value: Any) -> Iterator[str]:
    """The names in a request of what it is about, with the settings that it alters."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _named(item)
    elif isinstance(value, Struct):
        own = [str(getattr(value, name)) for name in _NAMES if getattr(value, name, None) not in (None, "")]
        if own:
            configs = [config.name for config in getattr(value, "configs", None) or ()]
            yield " ".join(own) + (f" ({', '.join(configs)})" if configs else "")
            return
        for field in value.FIELDS:
            inner = getattr(value, field)
            if isinstance(inner, list):
                yield from _named(inner)


def _codes(value: Any) -> Iterator[int]:
    """Every error code in a response: of items if there are any, else of the whole."""
    if isinstance(value, list):
        for item in value:
            yield from _codes(item)
    elif isinstance(value, Struct):
        own = getattr(value, "error_code", None)
        inner = [code for field in value.FIELDS for code in _codes_within(getattr(value, field))]
        if own or (own is not None and not inner):
            yield int(own)
        yield from inner


def _codes_within(value: Any) -> Iterator[int]:
    if isinstance(value, list) and value and isinstance(value[0], Struct):
        yield from _codes(value)
