"""A partition by the name of its topic and its index. Everything below the protocol uses it."""

TopicPartition = tuple[str, int]
