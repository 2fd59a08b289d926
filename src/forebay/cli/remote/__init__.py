"""`forebay remote`: the object store of tiered storage."""
