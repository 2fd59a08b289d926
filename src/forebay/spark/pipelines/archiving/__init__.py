"""Topics as files: writing them, merging small ones, and replaying them into a topic."""
