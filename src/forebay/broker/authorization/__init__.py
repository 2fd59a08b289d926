"""Who may do what: the rules in force, the layer between dispatch and handlers, and the audit log."""
