"""Encoders and decoders, compiled from the declarations of messages."""
