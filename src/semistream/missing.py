"""What becomes of stream rows without a master row."""

from __future__ import annotations

__all__ = ["ABSENT", "MATCHED", "NULL_KEY"]

MATCHED, ABSENT, NULL_KEY = "matched", "absent", "null key"
"""What a status column says of a row."""
