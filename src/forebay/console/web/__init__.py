"""Everything about HTTP that pages need not know: sessions, safety, answers, changes, live streams."""
