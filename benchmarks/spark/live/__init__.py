"""Enrichment from live databases, measured beside other ways of asking them."""
