"""The settings of the cluster: which one it is, its controller, and replication between its brokers."""
