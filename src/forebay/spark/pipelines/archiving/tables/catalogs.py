"""Where an Iceberg archive has its table: in a catalog of its own, a file, or in one that others share.

Any catalog of pyiceberg will do: REST, Glue, Hive, SQL and others. It has a name, under which pyiceberg looks
for its settings in `.pyiceberg.yaml` and in the environment, and settings that are given beside those.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from forebay.lazy import dataclass
from forebay.spark.extras import require
from forebay.spark.pipelines.jobs import PipelineError
from forebay.spark.pipelines.lake import OWN, Lake

NAMESPACE = "archive"
OWN_CATALOG = "forebay"
_FROM_ENVIRONMENT = {
    "s3.endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "s3.region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}
"""Variables by which the files of an archive are found, and which pyiceberg does not read."""
_SECRETS = ("secret", "token", "password", "credential", "key", "signer")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    name: str
    properties: Mapping[str, str] = field(default_factory=dict)
    table: str | None = None
    """NAMESPACE.NAME; `archive.<topic>` unless given."""

    def to_keep(self) -> dict[str, Any]:
        """For a file: without what looks like a secret."""
        public = {name: value for name, value in self.properties.items() if not _is_secret(name, value)}
        return {"name": self.name, "properties": public, "table": self.table}

    def identifier(self, topic: str) -> tuple[str, ...]:
        if self.table is None:
            return NAMESPACE, topic
        parts = tuple(self.table.split("."))
        if len(parts) < 2 or not all(parts):
            raise PipelineError(f"--table {self.table} is not NAMESPACE.NAME")
        return parts


def kept(values: Mapping[str, Any] | None, given: CatalogSettings | None = None) -> CatalogSettings | None:
    """The catalog of a position, with the settings that are given now, which may have secrets."""
    if values is None:
        return None
    known = CatalogSettings(**values)
    if given is None:
        return known
    properties = {**known.properties, **given.properties}
    return CatalogSettings(name=known.name, properties=properties, table=known.table)


def open_catalog(lake: Lake, settings: CatalogSettings | None) -> Any:
    """A catalog of pyiceberg; PipelineError if it cannot be used."""
    if settings is None:
        return _file_in(lake)
    catalogs = require("pyiceberg.catalog", "iceberg")
    config = require("pyiceberg.utils.config", "iceberg").Config()
    try:
        known = {**(config.get_catalog_config(settings.name) or {}), **settings.properties}
        return catalogs.load_catalog(settings.name, **_environment(known), **known)
    except Exception as error:
        # Each kind of catalog has errors of its own: of HTTP, of databases, of settings that are missing.
        raise PipelineError(
            f"the Iceberg catalog {settings.name} cannot be used: {error}. Its settings are those of"
            " pyiceberg: in ~/.pyiceberg.yaml, in the environment, or --catalog-conf uri=http://HOST:8181"
        ) from None


def _environment(known: Mapping[str, Any]) -> dict[str, str]:
    """Settings of the object store that the environment has, and the catalog's own settings do not."""
    found = {
        name: next((os.environ[each] for each in variables if os.environ.get(each)), "")
        for name, variables in _FROM_ENVIRONMENT.items()
        if name not in known
    }
    return {name: value for name, value in found.items() if value}


def _file_in(lake: Lake) -> Any:
    sql = require("pyiceberg.catalog.sql", "iceberg")
    if not lake.is_local:
        raise PipelineError(
            "an Iceberg archive outside of a directory needs a catalog: name one with --catalog NAME"
        )
    path = Path(lake.path(OWN, "iceberg.db"))
    path.parent.mkdir(parents=True, exist_ok=True)
    return sql.SqlCatalog(OWN_CATALOG, uri=f"sqlite:///{path}", warehouse=f"file://{lake.location}")


def _is_secret(name: str, value: str) -> bool:
    address = value.partition("://")[2].partition("/")[0]
    return "@" in address or any(part in name.lower() for part in _SECRETS)
