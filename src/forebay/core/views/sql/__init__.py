"""The SQL of views: parsed by sqlglot, and translated node by node."""
