"""The formats of the store: a new kind of value is written only when every broker can read it.

A broker registers with the highest format that it reads. The cluster has one format in force, which is stored
(`format`) and only rises: a broker that wants to write what older formats do not have raises it first
(`Metadata.raise_format`). It rises only while all registered brokers read it. After that a broker that reads
less does not join: it would skip values that it must not miss.

Names that older versions ignore, in values and as keys, need no new format. Neither do values that older
readers should treat as unreadable (`unreadable.py`).

Kafka's features (`features.py`) do not fit: they say what clients may use, and an administrator raises them.
The format says what brokers tell each other, and rises automatically.

1  The first one. Its brokers end when they meet a value that they cannot read.
2  Brokers skip values that they cannot read.
"""

from __future__ import annotations

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.registration import FIRST_FORMAT, BrokerRegistration
from forebay.errors import ConfigError, ErrorCode, KafkaError

STORE_FORMAT = 2
"""The format that this version reads."""


def check_may_raise(image: ClusterImage, level: int) -> None:
    """Refuse to raise the format while a registered broker cannot read it. Raises KafkaError."""
    behind = {broker.id: broker.store_format for broker in image.brokers.values()}
    behind |= dict.fromkeys(image.unreadable.brokers, FIRST_FORMAT)
    unable = sorted(node for node, reads in behind.items() if reads < level)
    if unable:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the store cannot be written in format {level} before broker(s)"
            f" {', '.join(map(str, unable))} have been upgraded",
        )


def check_may_join(broker: BrokerRegistration, in_force: int) -> None:
    """Refuse a broker that cannot read what the others write. Raises ConfigError."""
    if broker.store_format < in_force:
        raise ConfigError(
            f"the store of this cluster is written in format {in_force}, and this version of Forebay reads"
            f" {broker.store_format}: start a version that is as new as the other brokers'"
        )
