"""Large requests: how they are cut into pieces, and how the answers are joined."""
