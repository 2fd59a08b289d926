"""Connections: sockets, frames, buffers, and the way of a request to its handler."""
