"""Topics as tables and streams of Spark."""
