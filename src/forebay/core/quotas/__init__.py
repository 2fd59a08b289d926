"""Client quotas: whom they are for, which one counts, and how long a client over its quota has to wait."""
