"""A share partition at its leader: records in flight, how they are acquired, acknowledged and archived."""
