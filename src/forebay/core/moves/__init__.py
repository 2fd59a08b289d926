"""Moving records from one log to another exactly once: what a mover does, and its journal."""
