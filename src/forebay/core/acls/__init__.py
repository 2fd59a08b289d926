"""Access rules: who may do what with which resource."""
