"""The options of a console, as `forebay console` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from forebay.lazy import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """A cluster to show."""

    name: str
    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)
    """librdkafka's properties. With a login by people, those of a user are set beside them."""

    def __repr__(self) -> str:
        return f"ClusterSettings({self.name}, {self.bootstrap})"  # properties have passwords


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    clusters: tuple[ClusterSettings, ...]
    token: str
    """Whoever has it may use the console. Unused if people log in."""
    login: bool = False
    """People log in with the users of the cluster."""
    read_only: bool = False
    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()
    """Names by which browsers may reach the console, besides addresses and localhost."""
    registry: str = ""
    """The address of a schema registry, for values of Avro, Protobuf and JSON Schema."""
    masks: tuple[str, ...] = ()
    """Names of fields that are shown only to users who may alter the topic."""
    pipelines: tuple[str, ...] = ()
    """The addresses of pages that `forebay pipeline run --metrics` serves."""
    certificate: str = ""
    key: str = ""
    """Files for TLS; empty for plain HTTP."""
    sample_seconds: float = 5.0
    """The time between two looks at a cluster; longer if a look takes long."""
    sample_share: float = 0.015
    """The share of the time that is spent on looking, at most."""
    history_seconds: float = 3600.0
    threads: int = 16
    """The number of requests that are answered at the same time."""
    sessions_max: int = 64
    tails_max: int = 16
    """The number of live views of messages at the same time, each with a thread."""

    def __repr__(self) -> str:
        return f"ConsoleSettings({', '.join(each.name for each in self.clusters)})"

    def cluster(self, name: str) -> ClusterSettings | None:
        return next((each for each in self.clusters if each.name == name), None)
