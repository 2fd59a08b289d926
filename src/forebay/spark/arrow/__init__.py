"""Rows as Arrow: the columns of a topic, buffers that numpy shares, and batches that are not too large."""
