"""Views: a condition selects the records of a topic, and a selection reshapes their values."""
