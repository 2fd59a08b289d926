"""The dead letters of share partitions: which records, and where to. `broker/record_moves` writes them."""
