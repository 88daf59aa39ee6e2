"""Unit costs of a machine, measured with the join's own code on its own store."""
