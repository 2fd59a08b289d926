"""Blocking connections to brokers for Spark's driver and workers."""
