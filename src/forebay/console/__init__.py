"""The web console: see and run a cluster in a browser."""
