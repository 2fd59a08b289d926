"""The partitions of this broker: their state and role, how they are opened, who waits for them."""
