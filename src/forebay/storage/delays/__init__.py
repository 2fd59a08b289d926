"""The index of the messages of a partition that wait for their time."""
