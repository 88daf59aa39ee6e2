"""The demonstration: a star schema is filled from a stream of sales."""
