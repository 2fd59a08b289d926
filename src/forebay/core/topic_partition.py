"""A partition by the name of its topic and its number, as everything below the protocol names it."""

TopicPartition = tuple[str, int]
