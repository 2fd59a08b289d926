"""What a broker, a group and a cluster cost by their size: `python -m bench.scale`, `make bench-scale`."""
