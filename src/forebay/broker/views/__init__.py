"""Views on this broker: how they are created, and how batches of their sources are filtered."""
