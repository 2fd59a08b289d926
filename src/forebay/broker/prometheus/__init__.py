"""The page for Prometheus: counters and gauges of the broker, served over HTTP."""
