"""Logs on the disk that no partition of this broker uses."""
