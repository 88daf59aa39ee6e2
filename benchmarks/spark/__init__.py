"""Benchmarks on Spark: enrichment beside Spark's own joins, and what Python costs."""
