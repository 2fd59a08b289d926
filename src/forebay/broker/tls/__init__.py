"""TLS on a stream: encrypting, handshakes, certificates and their names."""
