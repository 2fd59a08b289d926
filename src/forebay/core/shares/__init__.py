"""Share groups beyond the group itself: share partitions, their sessions, and the state that survives."""
