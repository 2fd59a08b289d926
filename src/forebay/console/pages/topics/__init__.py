"""Topics, who writes to them, and views of them."""
