"""Groups of the consumer protocol (KIP-848): the broker assigns the partitions."""
