"""The cluster as a whole: its state now, its brokers, and what has happened to them."""
