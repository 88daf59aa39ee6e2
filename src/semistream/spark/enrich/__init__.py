"""From the arguments of `enrich` to a DataFrame."""
