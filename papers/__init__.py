"""The papers' experiments, run here: what they ran, what they found, what is found now."""
