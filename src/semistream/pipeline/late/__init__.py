"""Rows without a master row: split, waiting, inferred members."""
