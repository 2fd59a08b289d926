"""The manifest of a tiered partition: read, claimed and changed by its leader, and what others know of it."""
