"""Consumer groups and share groups: their lag, members, offsets, and changes to them."""
