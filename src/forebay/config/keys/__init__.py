"""Every setting by name: type, default, bounds, documentation."""
