"""The messages of SASL mechanisms, and the client's side of a login. The server's is in core/security."""
