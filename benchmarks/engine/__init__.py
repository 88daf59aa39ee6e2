"""Benchmarks of joins on one thread, without Spark."""
