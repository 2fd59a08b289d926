"""The settings of listeners with TLS and logins, and of authorization."""
