"""Joins with a table in a database, which is queried by lists of keys."""
