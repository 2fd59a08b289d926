"""The conditions of views: compiled from expressions, and applied to records."""
