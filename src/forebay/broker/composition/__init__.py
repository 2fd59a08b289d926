"""Units of parts that `node.py` builds as a whole."""
