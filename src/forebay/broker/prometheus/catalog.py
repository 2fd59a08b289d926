"""Every metric of the page, with its help text. `scripts/monitoring_docs.py` writes the docs from it.

Names that the dashboards for Kafka know are used where the meaning is the same: those of the JMX exporter
(with the rules of its `kafka-2_0_0.yml`) and those of kafka_exporter. All others begin with `forebay_`.
"""

from __future__ import annotations

from forebay.broker.prometheus import data_families, service_families

SECTIONS = {
    "Traffic": service_families.TRAFFIC,
    "Requests and connections": service_families.REQUESTS,
    "Topics and partitions": data_families.TOPICS,
    "Groups": data_families.GROUPS,
    "Queues, delays and views": data_families.QUEUES,
    "Storage": data_families.STORAGE,
    "Replication": service_families.REPLICATION,
    "Cluster": service_families.CLUSTER,
    "Logins and certificates": service_families.SECURITY,
    "The process": service_families.PROCESS,
}
CATALOG = {family.name: family for families in SECTIONS.values() for family in families}
