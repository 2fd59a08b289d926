"""Recovery: how much of a log can be trusted when it is opened, above all after a crash."""
