"""Users, access rules and quotas."""
