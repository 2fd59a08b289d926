"""Who a client is: users, their logins, and the order of the steps of a login."""
