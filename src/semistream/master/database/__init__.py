"""Master tables in databases."""
