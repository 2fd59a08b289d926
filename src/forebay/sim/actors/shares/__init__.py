"""Members of share groups, and those who look after them."""
