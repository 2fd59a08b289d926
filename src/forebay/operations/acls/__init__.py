"""Access rules: reading, changing and explaining them."""
