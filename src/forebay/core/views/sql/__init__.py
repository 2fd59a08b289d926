"""The SQL that views are written in: read by sqlglot, and taken over node by node."""
