"""The partitions of this broker: their state and role, how they are opened, and their waiters."""
