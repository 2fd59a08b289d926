"""The clients of a simulated cluster: each does what some real client does, and tells the models of it."""
