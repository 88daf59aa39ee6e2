"""Metrics of enrichments, a micro-batch at a time."""
