"""The server's side of SASL logins, without I/O: mechanisms, and the order of the steps on a connection."""
