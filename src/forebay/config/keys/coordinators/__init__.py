"""The settings of the coordinators: of consumer groups, share groups and transactions."""
