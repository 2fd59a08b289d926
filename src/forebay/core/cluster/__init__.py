"""Decisions about the cluster: the image, topics, settings, placement, leaders, reassignments."""
