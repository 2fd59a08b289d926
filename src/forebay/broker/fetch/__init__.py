"""Reading: the fetches of consumers and followers, cold reads, offsets by time."""
