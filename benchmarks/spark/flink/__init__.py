"""Flink's lookup join from PostgreSQL, with its own cache, set beside ours."""
