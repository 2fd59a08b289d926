"""Requests of administrators about topics, decided on an image: create, delete, more and fewer partitions."""
