"""Bringing a master to a newer version of its source by the rows that changed."""
