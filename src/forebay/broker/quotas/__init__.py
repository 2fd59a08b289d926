"""Client quotas in force: what limits each client, counting its requests, and making it wait."""
