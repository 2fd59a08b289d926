"""Members of share groups, and their administrators and auditors."""
