"""Brokers, etcd servers and clusters as processes on this machine, for tests and `forebay cluster start`."""
