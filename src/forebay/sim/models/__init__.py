"""The oracles: models of what clients did and learned, and invariants of the brokers' state."""
