"""`forebay topic`: topics, their settings, and their number of partitions."""
