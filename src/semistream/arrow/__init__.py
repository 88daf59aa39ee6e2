"""Arrow memory by type, by size and by address: keys, columns, pages, gathers, allocation."""
