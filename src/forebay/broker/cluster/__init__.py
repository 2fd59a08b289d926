"""The broker in its cluster: membership, the controller, other brokers, changes of the shared metadata."""
