"""Archives as Delta and Iceberg tables."""
