"""Reading topics as batches and streams."""
