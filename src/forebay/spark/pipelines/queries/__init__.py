"""SQL from topics to a topic: its text, and the values of messages as columns."""
