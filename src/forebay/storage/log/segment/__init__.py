"""The files of one segment: batches, and the indexes beside them."""
