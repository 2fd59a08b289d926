"""What must be true: shadows of what clients did and heard, and invariants of the brokers' insides."""
