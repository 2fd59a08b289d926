"""Topics, their number of partitions, and topics that are views."""
