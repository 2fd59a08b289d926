"""Leaders, in-sync sets and replicas: decisions of the controller and of administrators on an image."""
