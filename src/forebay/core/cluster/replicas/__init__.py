"""Who leads, who is in sync, who holds: what the controller and administrators decide on an image."""
