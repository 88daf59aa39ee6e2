"""Rows whose master row comes late or never: split off, waiting, quarantined, inferred members."""
