"""Tuning: the split of the memory, and the page size, with the highest rate."""
