"""Client quotas: their entities, their precedence, and how long a client over its quota has to wait."""
