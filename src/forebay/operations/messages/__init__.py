"""Single messages: their offsets, ages, positions to read from, and how they are shown."""
