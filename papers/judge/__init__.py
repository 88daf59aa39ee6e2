"""What runs say of the papers' claims: rules, verdicts, figures."""
