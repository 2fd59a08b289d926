"""The access rules in force on this broker, as the cluster image has them.

A change of the rules counts from the moment that the image shows it. Whatever was decided before is forgotten
then; `changed` lets others forget what they remember of it: the fast paths of connections, and the fetches
that wait for data.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay.broker.cluster.peers.peers import is_broker, is_from_broker
from forebay.broker.net.connection import ANONYMOUS, Connection
from forebay.broker.signals import Signal
from forebay.core.acls.authorizer import Authorizer
from forebay.core.acls.bindings import CLUSTER_NAME, EVERYONE, AclBinding, Operation
from forebay.core.guards.guard import CLUSTER, TOPIC, Access, Resource, Shortcut
from forebay.core.guards.refused_resources import RefusedResources

if TYPE_CHECKING:
    from forebay.broker.authorization.audit import AuditLog
    from forebay.broker.live_config import LiveConfig
    from forebay.broker.net.request_context import RequestContext
    from forebay.broker.telemetry.metrics import Metrics
    from forebay.core.cluster.image import ClusterImage

log = logging.getLogger(__name__)

_REFUSED = "refused"


class _RefusedOfPieces:
    """Collects the refused resources of a request that is handled in pieces, for one line about all of
    them."""

    def __init__(self, log_refused: Callable[[Sequence[Resource], int], None]) -> None:
        self._refused = RefusedResources()
        self._log_refused = log_refused

    def add(self, found: Sequence[Resource]) -> None:
        self._refused.add(found)

    def end(self) -> None:
        self._log_refused(self._refused.named, len(self._refused))


class _OtherTopics:
    """Collects the topics that a fetch was refused besides the first, for one line about all of them."""

    def __init__(self, audit: AuditLog, context: RequestContext) -> None:
        self._audit = audit
        self._context = context
        self._refused = RefusedResources()

    def add(self, resource: Resource) -> None:
        if not self._refused:
            self._audit.soon(self._log)
        self._refused.add([resource])

    def _log(self) -> None:
        refused, self._refused = self._refused, RefusedResources()
        self._audit.refused(self._context, refused.named, len(refused))


class Authorization:
    def __init__(self, settings: LiveConfig, image: ClusterImage, metrics: Metrics, audit: AuditLog) -> None:
        config = settings.current.authorization
        self._authorizer = Authorizer(super_users=config.super_users, allow_if_no_acl=config.allow_if_no_acl)
        self._authorizer.replace(_rules(image))
        self._settings = settings
        self._metrics = metrics
        self._audit = audit
        self._image = image
        self.revision = 0
        """Another one after each change of the rules."""
        self.changed: Signal[[]] = Signal()
        """There are other rules now."""
        self._warn()

    def follow(self, _before: ClusterImage, after: ClusterImage) -> None:
        before, self._image = self._image, after
        if after.acls is before.acls and after.unreadable is before.unreadable:
            return
        rules = _rules(after)
        if rules != _rules(before):
            self._authorizer.replace(rules)
            self.revision += 1
            self.changed.send()

    def _warn(self) -> None:
        """Say at the start what would leave users wondering."""
        current = self._settings.current
        config = current.authorization
        if not config.super_users and not config.allow_if_no_acl and not self._image.acls:
            log.warning("nobody may do anything: there are no ACLs, and no super.users who could add some")
        inter_broker = current.node.listeners.inter_broker.protocol
        if not current.cluster.url or (inter_broker.is_tls and not inter_broker.is_sasl):
            return  # on its own, or named by a certificate that only the others see
        own = f"User:{current.sasl.broker_user}" if inter_broker.is_sasl else ANONYMOUS
        if own not in config.super_users and not any(
            acl.operation in (Operation.CLUSTER_ACTION, Operation.ALL) and acl.principal in (own, EVERYONE)
            for acl in self._image.acls.values()
            if acl.resource_type is CLUSTER
        ):
            log.warning(
                "brokers come to each other as a principal that is none of super.users: it needs an ACL that"
                " allows ClusterAction",
                extra={"principal": own},
            )

    def refused(self, context: RequestContext, resources: Sequence[Resource]) -> None:
        """Count a request of which something was refused, and log it; a large one at its end."""
        notes = context.notes
        if notes is None:
            self._metrics.requests_refused += 1
            self._audit.refused(context, resources)
            return
        if _REFUSED not in notes:
            self._metrics.requests_refused += 1
            notes[_REFUSED] = _RefusedOfPieces(partial(self._audit.refused, context))
        notes[_REFUSED].add(resources)

    def access(self, context: RequestContext) -> Access:
        """The access rights of the sender of a request."""
        connection, config = context.connection, self._settings.current
        return Access(
            self._authorizer,
            connection.principal,
            connection.peer[0],
            self._image,
            is_broker=is_broker(context.client_id),
            creates_topics=config.topics.auto_create,
            creates_dead_letter_topics=config.groups.share.dead_letter_topics_are_created,
        )

    def passes(self, shortcut: Shortcut, context: RequestContext, request: Any) -> bool:
        """True if a request is certain to pass its guard."""
        connection = context.connection
        return shortcut(self._authorizer, connection.principal, connection.peer[0], self._image, request)

    def reader(self, context: RequestContext) -> Callable[[str], bool]:
        """A function that is True for topics that the client may read. Fetches call it for each partition.

        The first topic that is refused has a line in the audit log, the others have one together.
        """
        connection, allows = context.connection, self._authorizer.allows
        principal, host = connection.principal, connection.peer[0]
        refused: set[str] = set()
        others: _OtherTopics | None = None

        def may_read(topic: str) -> bool:
            nonlocal others
            if allows(principal, host, Operation.READ, TOPIC, topic):
                return True
            if self.acts_as_broker(context):
                return True
            if topic not in refused:
                resource = Resource(Operation.READ, TOPIC, topic)
                if not refused:
                    self.refused(context, [resource])
                else:
                    others = others or _OtherTopics(self._audit, context)
                    others.add(resource)
                refused.add(topic)
            return False

        return may_read

    def may_read(self, context: RequestContext, topic: str) -> bool:
        """True if the sender of a request may read a topic. A refusal is not logged: whoever answers does."""
        connection = context.connection
        return self._authorizer.allows(
            connection.principal, connection.peer[0], Operation.READ, TOPIC, topic
        ) or self.acts_as_broker(context)

    def may_describe(self, principal: str, host: str, topic: str) -> bool:
        """True if a member that subscribes by a pattern may see a topic."""
        return self._authorizer.allows(principal, host, Operation.DESCRIBE, TOPIC, topic)

    def acts_as_broker(self, context: RequestContext) -> bool:
        """True if the sender of a request says that it is a broker, and may be one."""
        return is_broker(context.client_id) and self.may_act_as_broker(context.connection)

    def may_act_as_broker(self, connection: Connection) -> bool:
        return self._authorizer.allows(
            connection.principal, connection.peer[0], Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME
        )

    def refuses_follower(self, context: RequestContext) -> bool:
        """True if the sender of a follower's fetch may not replicate, which is then logged."""
        if self.may_act_as_broker(context.connection):
            return False
        self.refused(context, [Resource(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)])
        return True


def _rules(image: ClusterImage) -> Mapping[str, AclBinding]:
    """With those that hold in place of rules that cannot be read."""
    return {**image.acls, **image.unreadable.denials()} if image.unreadable else image.acls


def opened_by_broker(
    authorization: Authorization | None, connection: Connection, request: memoryview
) -> bool:
    """True if a broker has sent the first request of a connection, before the request is decoded."""
    return is_from_broker(request) and (authorization is None or authorization.may_act_as_broker(connection))


def sent_by_broker(authorization: Authorization | None, context: RequestContext) -> bool:
    """True if a broker has sent a request. Without an authorizer, only its client id tells."""
    return is_broker(context.client_id) if authorization is None else authorization.acts_as_broker(context)
