"""The clients of a simulated cluster: each behaves like some real client, and reports to the models."""
