"""Settings of short-lived brokers on one machine."""

from __future__ import annotations

from forebay.errors import ForebayError

# Tests need not survive a power failure: nothing has to be forced to disk. Internal topics need not be
# spread, and each of their partitions is a log to open. Most tests use few parts of a broker.
TEST_SETTINGS = {
    "forebay.warm.up.enable": "false",
    "forebay.flush.policy": "never",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
KEPT = {"forebay.flush.policy": "interval"}
"""Where the data directory outlives the broker: at most a second is lost with the machine."""


class BrokerFailed(ForebayError):
    """The broker did not start, or stopped by itself; the message says why."""


def setting_text(value: object) -> str:
    """A setting as in a config file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
