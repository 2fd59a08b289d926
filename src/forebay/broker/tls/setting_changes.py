"""Changes of the TLS settings of this broker's listeners: tried before they are stored.

What is stored is in force at once, so it must work: the files are read, and on the listener by which brokers
talk to each other the new certificate must be one that the new truststore accepts. Else the change is refused
and the old settings stay. Only the broker itself can try them, so it takes them for itself alone. Any broker
takes settings back.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from forebay.broker.live_config import LiveConfig
from forebay.broker.tls.endpoint import PreparedTls, describe
from forebay.broker.tls.endpoints import TlsEndpoints
from forebay.config import LISTENER_PREFIX, BrokerConfig, listener_of
from forebay.coordination.metadata import Metadata, Plan
from forebay.core.cluster.config_changes import Resource
from forebay.core.cluster.image import ALL_BROKERS
from forebay.core.cluster.image_changes import ConfigOwner, ConfigPut
from forebay.core.cluster.resources import ResourceType, parse_broker_id
from forebay.errors import ConfigError, ErrorCode, KafkaError

T = TypeVar("T")

_STEPS_MAX = 10


class TlsSettingChanges:
    def __init__(
        self, node_id: int, settings: LiveConfig, metadata: Metadata, endpoints: TlsEndpoints
    ) -> None:
        self._node_id = node_id
        self._settings = settings
        self._metadata = metadata
        self._endpoints = endpoints

    async def carry_out(
        self, resource: Resource, plan: Plan, store: Callable[[], Awaitable[T]], *, validate_only: bool
    ) -> T:
        """`store` carries out the plan, which changes the settings of a resource. Raises KafkaError."""
        if resource.type != ResourceType.BROKER or not resource.name:
            return await store()
        wanted = self._wanted(plan)
        if wanted is None:
            return await store()
        node_id = parse_broker_id(resource.name)
        if node_id != self._node_id:
            self._check_taken_back(node_id, wanted)
            return await store()
        try:
            prepared = await self._prepared(wanted)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
        if validate_only:
            return await store()
        with self._endpoints.offering(prepared):
            return await store()

    def _wanted(self, plan: Plan) -> Mapping[str, str] | None:
        """The settings of a broker after the plan; None if it changes nothing of its listeners."""
        image = self._metadata.image
        for change in plan(image):
            if isinstance(change, ConfigPut) and change.owner is ConfigOwner.BROKER:
                before = image.broker_config(change.name).overrides
                if _of_listeners(before) != _of_listeners(change.overrides):
                    return change.overrides
        return None

    def _check_taken_back(self, node_id: int, wanted: Mapping[str, str]) -> None:
        before = self._metadata.image.broker_config(str(node_id)).overrides
        if not _of_listeners(wanted).items() <= _of_listeners(before).items():
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {self._node_id}: the files of broker {node_id} are its own, ask it instead",
            )

    async def _prepared(self, wanted: Mapping[str, str]) -> list[tuple[str, PreparedTls]]:
        current = self._settings.current
        self._check_listeners(current, wanted)
        default = self._metadata.image.broker_config(ALL_BROKERS).overrides
        config = current.with_dynamic(own=wanted, default=default)
        prepared = await self._endpoints.prepare(config.tls)
        has_others = not config.cluster.embedded or len(self._metadata.image.brokers) > 1
        for name, each in prepared:
            if has_others and name == config.node.listeners.inter_broker.name:
                check_accepts_itself(name, each)
        return prepared

    def _check_listeners(self, config: BrokerConfig, wanted: Mapping[str, str]) -> None:
        known = {name.lower() for name in config.tls}
        for name in _of_listeners(wanted):
            if listener_of(name) not in known:
                have = ", ".join(sorted(known)) or "none"
                raise ConfigError(f"{name}: no such listener speaks TLS; there are: {have}")


def _of_listeners(overrides: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in overrides.items() if name.startswith(LISTENER_PREFIX)}


def check_accepts_itself(listener: str, prepared: PreparedTls) -> None:
    """Raises ConfigError if a broker with these settings would not accept the certificate of another."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = prepared.client
    checks_hosts, context.check_hostname = context.check_hostname, False
    try:
        client = context.wrap_bio(to_client, to_server)
        server = prepared.server.wrap_bio(to_server, to_client, server_side=True)
        for _ in range(_STEPS_MAX):
            for side in (client, server):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
    except ssl.SSLError as error:
        raise ConfigError(
            f"listener {listener}: brokers would not accept each other's certificates, {describe(error)}:"
            " have ssl.truststore.location name the authority of the new certificate first"
        ) from None
    finally:
        context.check_hostname = checks_hosts
