"""Messages that wait for their time: the index that follows each log, and their delivery by the leader."""
