"""What of a log can be believed when it is opened, above all after a crash."""
