"""Views: which records of a topic a condition lets through, and what is left of their values."""
