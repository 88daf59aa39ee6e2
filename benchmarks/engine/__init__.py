"""Benchmarks of joins without Spark, on one thread each."""
