"""Enrichment beside what a user would take instead, on the same data, in one run."""
