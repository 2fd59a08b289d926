"""Connections to the other brokers of the cluster, and requests to them."""
