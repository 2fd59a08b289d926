"""Parts of the cluster image: topics, users, ACLs, quotas, views, tokens, and what could not be read."""
