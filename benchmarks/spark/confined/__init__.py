"""Enrichment with a master larger than memory: whole processes in a memory cgroup."""
